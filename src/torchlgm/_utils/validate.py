"""Whole numbers that a user gives, NumPy's too."""

from __future__ import annotations

from numbers import Integral


def is_int_at_least(value: object, least: int = 1) -> bool:
    """Whether `value` is a whole number, not a bool, and at least `least`."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least
