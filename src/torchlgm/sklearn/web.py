"""A fitted LGMClassifier as a file for the playground: its members and the form of its columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from torchlgm.interop import Examples, Exported
from torchlgm.interop import export_web as export_posteriors
from torchlgm.sklearn.columns import Categories, Column
from torchlgm.sklearn.parts import split_up
from torchlgm.sklearn.reading import is_missing

if TYPE_CHECKING:
    from torchlgm.sklearn.classifier import LGMClassifier


def export_web(
    classifier: LGMClassifier,
    path: str | Path,
    about: Mapping[str, Any] | None = None,
    rows: Any = None,
    labels: Sequence[Any] = (),
) -> Exported:
    """Write a classifier to a `.safetensors` file that the playground reads, with `rows` of a table to begin with.

    `labels` are the classes of these rows. What else is in `about` is written beside it, see `interop.export_web`.
    """
    plan = classifier._plan
    columns = [_column(name, c) for name, c in zip(classifier.input_names, plan.columns, strict=True)]
    classes = classifier.classes_.tolist()
    head = {
        "classes": [str(name) for name in classes],
        "columns": columns,
        "places": [asdict(place) for place in plan.places],
        "mixture": asdict(classifier.mixture_),
        "fills": len(classifier.members_) == 1 and classifier.fill_weight != 0,
    }
    examples = None
    if rows is not None:
        raws = split_up(classifier._asked(rows), plan.parts)
        values = [_places(column, raw.values) for column, raw in zip(columns, raws, strict=True)]
        examples = Examples(torch.tensor(np.stack(values, 1)), [classes.index(label) for label in labels])
    return export_posteriors(classifier._posteriors, path, head | dict(about or {}), examples=examples)


def _column(name: str, column: Column | None) -> dict[str, Any]:
    if column is None:
        return {"name": name}
    if isinstance(column, Categories):
        return {"name": name, "values": column.texts}
    return {"name": name, "knots": list(column.knots)}


def _places(column: Mapping[str, Any], values: np.ndarray) -> np.ndarray:
    """Numbers as they are, names as their place among the values of their column; NaN where missing or unknown."""
    if "values" not in column:
        return values.astype(float) if "knots" in column else np.full(len(values), np.nan)
    place = {value: float(i) for i, value in enumerate(column["values"])}
    unknown = place.get("(others)", np.nan)
    return np.array([np.nan if is_missing(value) else place.get(str(value), unknown) for value in values])
