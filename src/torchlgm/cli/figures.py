"""What the figures of a run hold, in metrics.json."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

ANY = "*"  # stands for all names
MODELS = ("lgm", "network")
ROWS = [{"visible": float, "accuracy": float, "nll": float, "calibration_error": float}]
FIGURES = {
    "samples": {"train": float, "test": float},
    "most_frequent": float,
    "test": {"lgm": ROWS, ANY: ROWS},
    "seeds": {ANY: [{"seed": float, "seconds": float, "test": ROWS}]},
}


def what_lacks(metrics: Any) -> str | None:
    """What is expected and not there, if anything."""
    wrong = next(_lacking(metrics, FIGURES, "the figures"), None)
    if wrong is not None:
        return wrong
    shares = {tuple(row["visible"] for row in rows) for rows in metrics["test"].values()}
    if len(shares) > 1 or not {*metrics["test"], *metrics["seeds"]} <= {*MODELS}:
        return f"figures of {' and '.join(MODELS)} for the same shares"
    return None


def _lacking(value: Any, like: Any, place: str) -> Iterator[str]:
    if like is float:
        if not isinstance(value, int | float) or not math.isfinite(value):
            yield f"a number in {place}"
    elif isinstance(like, list):
        if not isinstance(value, list) or not value:
            yield f"a list in {place}"
            return
        for i, part in enumerate(value):
            yield from _lacking(part, like[0], f"{place}[{i}]")
    elif not isinstance(value, dict):
        yield f"a mapping in {place}"
    else:
        yield from (f"{name!r} in {place}" for name in like if name != ANY and name not in value)
        for name, part in value.items():
            if name in like or ANY in like:
                yield from _lacking(part, like.get(name, like.get(ANY)), f"{place}.{name}")
