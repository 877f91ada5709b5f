"""Dates, times and durations as numbers of days, and the cyclic parts of them.

A date is the number of days since 1970, in UTC where it has a time zone. Month, day of the week and hour come around
again: each is a node of its own, on which no label is the first or the last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import numpy as np

DATE, DATETIME, TIME, DURATION = TIMES = ("date", "datetime", "time", "duration")
_EPOCH = datetime(1970, 1, 1)
_DAY = timedelta(days=1)
_ISO = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d{1,6})?)?)?")


def kind_of_times(seen: Sequence[Any]) -> str | None:
    """Which of `TIMES` all these values are, text in the form of ISO 8601 included; None for other values."""
    if not seen:
        return None
    if all(isinstance(value, timedelta | np.timedelta64) for value in seen):
        return DURATION
    if all(isinstance(value, time) for value in seen):
        return TIME
    if not all(isinstance(v, date | np.datetime64) or (isinstance(v, str) and _ISO.fullmatch(v)) for v in seen):
        return None
    try:
        values = [parsed(value) for value in seen]
    except ValueError:  # a date that does not exist
        return None
    midnight = all(not isinstance(v, datetime) or v.time() == time() for v in values)
    return DATE if midnight else DATETIME


def parsed(value: Any) -> Any:
    """Text, and what NumPy has for dates, as Python has it."""
    if isinstance(value, np.datetime64):
        return value.astype("datetime64[us]").item()
    if isinstance(value, np.timedelta64):
        return value.astype("timedelta64[us]").item()
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def days_of(value: Any) -> float:
    """Days since 1970, or of a duration, or since midnight."""
    if isinstance(value, time):
        value = timedelta(hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond)
    if isinstance(value, timedelta):
        return value / _DAY
    if not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    return (value - _EPOCH) / _DAY


def times_of(days: np.ndarray, kind: str) -> np.ndarray:
    """Numbers of days `(N,)`, none missing, as what they stand for: to the second, dates to the day."""
    made = np.empty(len(days), dtype=object)
    for i, count in enumerate(days.tolist()):
        length = timedelta(seconds=round(count * 86400))
        if kind == DURATION:
            made[i] = length
        elif kind == TIME:
            made[i] = (_EPOCH + length % _DAY).time()
        else:
            made[i] = _EPOCH + (timedelta(days=round(count)) if kind == DATE else length)
    return made


def _month(days: np.ndarray) -> np.ndarray:
    return days.astype("datetime64[D]").astype("datetime64[M]").astype(int) % 12 + 1


def _weekday(days: np.ndarray) -> np.ndarray:
    return (np.floor(days).astype(int) + 3) % 7  # Monday is 0, as in pandas


def _hour(days: np.ndarray) -> np.ndarray:
    return np.floor(np.round(days * 86400) / 3600).astype(int) % 24


CYCLES: Mapping[str, tuple[tuple[str, ...], Callable[[np.ndarray], np.ndarray]]] = {
    "month": ((DATE, DATETIME), lambda days: _month(np.floor(days).astype(int))),
    "weekday": ((DATE, DATETIME), _weekday),
    "hour": ((DATETIME, TIME), _hour),
}
"""For each cyclic part the kinds that have it, and how it follows from days."""
