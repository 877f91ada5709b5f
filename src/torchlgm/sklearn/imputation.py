"""From probabilities of columns back to a table without holes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from torchlgm._utils.sklearn_private import as_frame, wants_frame
from torchlgm.sklearn.columns import Categories, Column, Raw, is_missing


def completed(
    raws: Sequence[Raw], columns: Sequence[Column | None], probs: Sequence[np.ndarray | None]
) -> list[np.ndarray]:
    """The columns with their holes filled in: floats, or objects where there are names."""
    filled = []
    for raw, column, p in zip(raws, columns, probs, strict=True):
        holes = raw.missing()
        values = raw.values.astype(object if raw.named or isinstance(column, Categories) else float)
        if column is not None and p is not None and holes.any():
            values[holes] = column.expected(p[holes])
        filled.append(values)
    return filled


def contained(filled: Sequence[np.ndarray], table: Any, estimator: Any) -> Any:
    """The columns of `table` as an array, or as the kind of frame that `set_output` asked for."""
    return as_frame(_typed(filled, table), table, estimator) if wants_frame(estimator) else np.column_stack(filled)


def _typed(filled: Sequence[np.ndarray], table: Any) -> dict[str, Any]:
    """Columns by their number, for pandas or polars; those that were categories in a pandas `table` still are."""
    typed: dict[str, Any] = {}
    for j, values in enumerate(filled):
        series = table.iloc[:, j] if hasattr(table, "iloc") else None
        if series is not None and str(series.dtype) == "category":
            unknown = {v for v in values if not is_missing(v)} - set(series.cat.categories)
            typed[str(j)] = type(series)(values, dtype=series.cat.add_categories(sorted(unknown)).dtype).array
        else:
            typed[str(j)] = values.tolist() if values.dtype == object else values
    return typed
