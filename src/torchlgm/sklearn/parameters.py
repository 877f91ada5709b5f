"""What a user may pass to LGMClassifier."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np

from torchlgm._utils.machine import usable_device
from torchlgm._utils.validate import is_int_at_least
from torchlgm.errors import DataError
from torchlgm.inference import Method
from torchlgm.sklearn.knots import SCALINGS
from torchlgm.spec import Graph

ARCHITECTURES = ("dense", "conv", "local")


def check_parameters(given: dict[str, Any]) -> None:
    """Raise ValueError for the first parameter that cannot be, and say what can."""
    for name, (fine, expected) in _RULES.items():
        if name in given and not fine(given[name]):
            raise ValueError(f"{name}={given[name]!r}; expected {expected}")
    check_device(given["device"])


def check_device(device: Any) -> None:
    """Raise DataError if PyTorch cannot use the device on this machine."""
    usable_device(device, DataError)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and bool(np.isfinite(float(value)))


def _is_auto(value: object) -> bool:
    return isinstance(value, str) and value == "auto"


def _is_switch(value: object) -> bool:
    return isinstance(value, bool | np.bool_)


def _is_range(value: Any) -> bool:
    return isinstance(value, Sequence) and len(value) == 2 and all(map(_is_number, value)) and _rises(*value)


def _rises(low: float, high: float) -> bool:
    return 0 < low <= high <= 1


_RULES = {
    "architecture": (
        lambda v: isinstance(v, Graph) or (isinstance(v, str) and v in ARCHITECTURES),
        f"one of {ARCHITECTURES} or a torchlgm.Graph",
    ),
    "hidden": (
        lambda v: (
            _is_auto(v)
            or is_int_at_least(v)
            or (isinstance(v, Sequence) and not isinstance(v, str) and all(map(is_int_at_least, v)))
        ),
        "'auto', a number of nodes or a tuple of them",
    ),
    "bins": (lambda v: _is_auto(v) or is_int_at_least(v, 2), "'auto' or a whole number >= 2"),
    "scaling": (lambda v: isinstance(v, str) and v in SCALINGS, f"one of {SCALINGS}"),
    "method": (lambda v: v is None or isinstance(v, Method), "None or a method such as torchlgm.lbp(iterations=2)"),
    "visible": (
        lambda v: v is None or (isinstance(v, str) and v in ("auto", "policy")) or _is_range(v),
        "'auto', 'policy', None or shares (low, high) with 0 < low <= high <= 1",
    ),
    "n_members": (lambda v: _is_auto(v) or is_int_at_least(v), "'auto' or a whole number >= 1"),
    "fill_weight": (lambda v: _is_auto(v) or (_is_number(v) and v >= 0), "'auto' or a number >= 0"),
    "epochs": (lambda v: _is_auto(v) or is_int_at_least(v), "'auto' or a whole number >= 1"),
    "batch_size": (lambda v: _is_auto(v) or is_int_at_least(v), "'auto' or a whole number >= 1"),
    "learning_rate": (lambda v: _is_auto(v) or (_is_number(v) and v > 0), "'auto' or a positive number"),
    "early_stopping": (lambda v: _is_auto(v) or _is_switch(v), "'auto', True or False"),
    "max_categories": (lambda v: v is None or is_int_at_least(v, 2), "None or a whole number >= 2"),
    "add_indicator": (_is_switch, "True or False"),
    "warm_start": (_is_switch, "True or False"),
    "calibration_fraction": (
        lambda v: v is None or (_is_number(v) and 0 < v < 1),
        "None or a share between 0 and 1",
    ),
    "validation_fraction": (lambda v: _is_number(v) and 0 < v < 1, "a share between 0 and 1"),
    "n_jobs": (lambda v: v is None or v == -1 or is_int_at_least(v), "None, -1 or a whole number >= 1"),
    "n_iter_no_change": (is_int_at_least, "a whole number >= 1"),
}


def marked_columns(chosen: Any, names: Sequence[str]) -> list[bool] | None:
    """Which columns hold names by `categorical_features`; None if only their types say so."""
    if chosen is None or (isinstance(chosen, str) and chosen == "from_dtype"):
        return None
    listed = np.asarray(chosen)
    if listed.dtype == bool and listed.shape == (len(names),):
        return listed.tolist()
    if listed.dtype == bool:
        raise ValueError(f"categorical_features={chosen!r} marks {listed.size} columns of {len(names)}")
    places = dict(zip(names, range(len(names)), strict=True)) | {j: j for j in range(len(names))}
    if listed.ndim != 1 or any(c not in places for c in listed.tolist()):
        raise ValueError(f"categorical_features={chosen!r} does not name columns; there are {list(names)}")
    numbers = {places[c] for c in listed.tolist()}
    return [j in numbers for j in range(len(names))]
