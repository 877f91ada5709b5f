"""The choice of parameters that the default run draws covers what its mark says."""

from itertools import combinations, product
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from helpers.covering import covering, pytest_collection_modifyitems


class Range(NamedTuple):
    first: str
    last: str


ROWS = [row for row in product(range(4), range(3), range(2)) if row != (0, 0, 0)]  # not every combination is there


@pytest.mark.parametrize(("strength", "most"), [(1, 4), (2, 13)])
def test_every_combination_is_covered_by_few_rows(strength, most):
    def combinations_of(rows):
        return {chosen for row in rows for chosen in combinations(enumerate(row), strength)}

    rows = [ROWS[i] for i in covering(ROWS, strength)]
    assert combinations_of(rows) == combinations_of(ROWS)
    assert len(rows) <= most


def test_the_choice_is_repeatable():
    assert covering(ROWS, 2) == covering(ROWS, 2)


class Item:
    """What the hook reads of a test that pytest has collected."""

    parent, originalname = "module", "test"

    def __init__(self, mark, *values):
        self.callspec = SimpleNamespace(params=dict(enumerate(values)))
        self.marks = {mark}

    def get_closest_marker(self, name):
        return name in self.marks

    def add_marker(self, name):
        self.marks.add(name)


@pytest.mark.parametrize(("mark", "drawn"), [("each", 3), ("pairs", 9), ("other", 27)])
def test_what_is_not_drawn_is_slow(mark, drawn):
    items = [Item(mark, *row) for row in product("abc", "def", "ghi")]
    pytest_collection_modifyitems(items)
    assert drawn <= sum("slow" not in item.marks for item in items) <= 1.3 * drawn


def test_fields_of_a_named_tuple_are_parameters():
    items = [Item("each", Range(first, last)) for first, last in product("abc", "def")]
    pytest_collection_modifyitems(items)
    assert sum("slow" not in item.marks for item in items) == 3
