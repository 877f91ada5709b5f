"""What looks wrong in the columns of a training table, and is warned of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from torchlgm.errors import DataWarning, warn
from torchlgm.sklearn.columns import FEW, listed
from torchlgm.sklearn.reading import NUMBER, Raw

NEARLY = 0.9  # of all
_PUNCTUATION = {"", " ", "?", "-", "--", ".", "*"}
_WORDS = _PUNCTUATION | {"NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "null", "NULL", "None", "none", "missing"}
_LIMITS = frozenset(float(sign * 2**bits - (sign > 0)) for bits in (15, 31, 63) for sign in (1, -1))


def warn_of_oddities(raws: Sequence[Raw]) -> None:
    """Warn the caller of `fit` of values that may stand for missing, of text that is numbers, and of columns that name
    rows rather than kinds of them."""
    _warn_of_sentinels(raws)
    numbers, keys = [], []
    for raw in raws:
        different = raw.distinct.seen() if raw.named else []
        if len(different) <= FEW:
            continue
        seen = ~raw.missing()
        if not raw.chosen and raw.distinct.spread(_reads_as_number, bool)[seen].mean() > NEARLY:
            numbers.append(f"{raw.name!r}{_exceptions(different)}")
        elif len(different) > NEARLY * seen.sum():
            keys.append(raw.name)
    if numbers:
        warn(
            f"text that reads as numbers, in {_some(numbers)}: each different text becomes a category. Turn it into "
            "numbers with pandas.to_numeric, or name the columns in categorical_features if categories are meant.",
            DataWarning,
        )
    if keys:
        warn(
            f"nearly every row has a category of its own, in {listed(keys)}: nothing can be learned from that. Leave "
            "such columns out.",
            DataWarning,
        )


def _warn_of_sentinels(raws: Sequence[Raw]) -> None:
    """Warn once, with the columns and the values that look as if they stood for missing."""
    found = [f"{raw.name!r} ({shown})" for raw in raws if (shown := _sentinels(raw))]
    if found:
        warn(
            f"values that seem to stand for missing, in {_some(found)}: they are taken as they are. If they mean "
            "missing, make them NaN, such as by table.replace(-999, numpy.nan).",
            DataWarning,
        )


def _some(found: Sequence[str]) -> str:
    return ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")


def _exceptions(values: Sequence[Any]) -> str:
    """The first texts that are no numbers: with them as missing, the column would be one of numbers."""
    others = [value for value in values if not _reads_as_number(value)]
    return f" (except {listed(others[:3])})" if others else ""


def _sentinels(raw: Raw) -> str:
    if raw.named:
        count = np.bincount(raw.distinct.place)
        words = [
            (v, n)
            for v, n in zip(raw.distinct.values, count, strict=True)
            if isinstance(v, str) and v.strip() in _WORDS
        ]
        return ", ".join(f"{word!r} in {n:,} rows" for word, n in sorted(words))
    values = raw.values[~raw.missing()]
    if raw.kind != NUMBER or len(values) == 0:
        return ""
    distinct, count = np.unique(values, return_counts=True)
    ends = {0: distinct[1:], len(distinct) - 1: distinct[:-1]} if len(distinct) > 2 else {}
    return ", ".join(
        f"{distinct[i]:g} in {count[i]:,} rows"
        for i, others in ends.items()
        if count[i] > 1 and _is_code(float(distinct[i])) and _far(float(distinct[i]), others)
    )


def _is_code(value: float) -> bool:
    """Two nines or more and nothing else, or the limit of a type of integers."""
    return value in _LIMITS or (value.is_integer() and len(digits := f"{abs(value):.0f}") > 1 and set(digits) == {"9"})


def _far(value: float, others: np.ndarray) -> bool:
    """Whether a number is farther from all others than these are from each other."""
    return min(abs(value - others[0]), abs(value - others[-1])) > others[-1] - others[0]


def _reads_as_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
