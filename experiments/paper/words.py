"""Counts and measures in words."""

from __future__ import annotations

MEASURES = {"accuracy": "accuracy", "nll": "NLL", "brier": "Brier score", "calibration_error": "calibration error"}


def number_of(count: int, noun: str) -> str:
    """Such as "1 cell" or "2 cells"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def left(count: int, noun: str) -> str:
    """Such as "1 cell is left" or "2 cells are left"."""
    return f"{number_of(count, noun)} {'is' if count == 1 else 'are'} left"
