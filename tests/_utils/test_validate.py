"""Checks of single values."""

import math

import numpy as np
import pytest

from torchlgm._utils.validate import check_choice, check_int, check_positive


@pytest.mark.parametrize("value", [1, np.int64(3), np.uint8(7)])
def test_whole_numbers_become_ints(value):
    checked = check_int("epochs", value, error=ValueError)
    assert checked == value
    assert type(checked) is int


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "3", None, math.nan])
def test_what_is_no_whole_number(value):
    with pytest.raises(ValueError, match=r"^epochs=.*of a run; expected a whole number >= 1$"):
        check_int("epochs", value, error=ValueError, what=" of a run")


def test_least():
    assert check_int("seed", 0, 0, error=ValueError) == 0
    with pytest.raises(KeyError, match=">= 2"):
        check_int("labels", 1, 2, error=KeyError)


@pytest.mark.parametrize("value", [1, 0.5, np.float32(2)])
def test_positive_numbers_become_floats(value):
    assert type(check_positive("clip", value, error=ValueError)) is float


@pytest.mark.parametrize("value", [0, -1.0, math.inf, math.nan, "1", None])
def test_what_is_not_positive(value):
    with pytest.raises(ValueError, match=r"^clip=.*; expected a positive number$"):
        check_positive("clip", value, error=ValueError)


def test_choices():
    check_choice("by", "a", ("a", "b"), error=ValueError)
    with pytest.raises(ValueError, match=r"^by='c'; expected 'a', 'b' or 'd'$"):
        check_choice("by", "c", ("a", "b", "d"), error=ValueError)
