"""Checks of single values that a user gives, NumPy's numbers too; the errors say what was expected."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from numbers import Integral, Real
from typing import TypeGuard


def is_int_at_least(value: object, least: int = 1) -> bool:
    """Whether `value` is a whole number, not a bool, and at least `least`."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def check_int(name: str, value: object, ge: int = 1, *, error: type[Exception], what: str = "") -> int:
    """`value` as an int, or `error` unless it is a whole number of at least `ge`; `what` it belongs to, if that helps.

    >>> check_int("epochs", 3, error=ValueError)
    3
    """
    if not (isinstance(value, Integral) and is_int_at_least(value, ge)):
        raise error(f"{name}={value!r}{what}; expected a whole number >= {ge}")
    return int(value)


def is_number(value: object) -> TypeGuard[float]:
    """Whether `value` is a real number that a float can hold: neither NaN nor infinite, nor 10**400."""
    try:
        return isinstance(value, Real) and isfinite(value)
    except OverflowError:
        return False


def check_positive(name: str, value: object, *, error: type[Exception]) -> float:
    """`value` as a float, or `error` unless it is a positive, finite number."""
    if not (is_number(value) and value > 0):
        raise error(f"{name}={value!r}; expected a positive number")
    return float(value)


def check_share(name: str, value: object, *, error: type[Exception]) -> float:
    """`value` as a float, or `error` unless it is a number in [0, 1]."""
    if not (is_number(value) and 0 <= value <= 1):
        raise error(f"{name}={value!r}; expected a number in [0, 1]")
    return float(value)


def check_choice(name: str, value: object, choices: Iterable[object], *, error: type[Exception]) -> None:
    """`error` unless `value` is one of the `choices`."""
    choices = list(choices)
    if value not in choices:
        raise error(f"{name}={value!r}; expected {', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}")
