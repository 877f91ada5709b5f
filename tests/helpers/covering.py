"""Products of parameters, thinned: the default run draws a few rows that cover them, `-m slow` runs the rest.

A test marked `@pytest.mark.each` runs with every value of each parameter, one marked `@pytest.mark.pairs` with every
pair of values of two parameters. The fields of a named tuple count as parameters of their own. The choice depends on
the parameters alone, so it is the same in every run and every worker.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations
from random import Random
from typing import Any

import pytest

STRENGTH = {"each": 1, "pairs": 2}

Row = tuple[int, ...]


def covering(rows: Sequence[Row], strength: int) -> list[int]:
    """Indices of rows that have every combination of `strength` values that some row has, found greedily."""
    rest = [set(_combinations(row, strength)) for row in rows]
    missing = set[Any]().union(*rest)
    order = Random(0).sample(range(len(rows)), len(rows))  # ties go to any row, so that other values take turns
    chosen = []
    while missing:
        best = max(order, key=lambda i: len(rest[i] & missing))
        chosen.append(best)
        missing -= rest[best]
    return sorted(chosen)


def _combinations(row: Row, strength: int) -> Iterable[Any]:
    return combinations(enumerate(row), min(strength, len(row)))


def _values(item: Any) -> Row:
    """The parameters of a test by identity: `parametrize` puts one object into many rows."""
    row: list[Any] = []
    for value in item.callspec.params.values():
        row.extend(value if hasattr(value, "_fields") else [value])
    return tuple(map(id, row))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Mark as slow what is not drawn, before pytest looks at `-m`."""
    for name, strength in STRENGTH.items():
        tests: dict[Any, list[Any]] = {}
        for item in items:
            if hasattr(item, "callspec") and item.get_closest_marker(name):
                tests.setdefault((item.parent, item.originalname), []).append(item)
        for variants in tests.values():
            chosen = set(covering([_values(item) for item in variants], strength))
            for at, item in enumerate(variants):
                if at not in chosen:
                    item.add_marker("slow")
