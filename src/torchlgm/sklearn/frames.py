"""Tables as they come and go: columns in the order of the training, and what was filled in as a table again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np

from torchlgm.errors import DataError, DataWarning, warn
from torchlgm.sklearn.columns import Categories, Column, listed
from torchlgm.sklearn.reading import BOOLEAN, Raw, is_missing, is_time
from torchlgm.sklearn.times import DATE


def aligned(table: Any, names: Any) -> Any:
    """A frame with the columns `names` in their order; one that is lacking is missing in all rows.

    A frame with none of them is returned as it is.
    """
    came = list(table.columns)
    if names is None or came == list(names) or not set(came) & set(names):
        return table
    lacking, extra = [n for n in names if n not in came], [n for n in came if n not in set(names)]
    if lacking:
        warn(f"the table lacks {listed(lacking)}, which the training had, so it is missing in all rows", DataWarning)
    if extra:
        warn(f"the table has {listed(extra)}, which the training did not have, so it is left out", DataWarning)
    if hasattr(table, "reindex"):
        return table.reindex(columns=list(names))
    return table.with_columns(**dict.fromkeys(lacking)).select(list(names))


def require_different_names(table: Any) -> None:
    """Raise if a frame has several columns of one name."""
    came = list(table.columns)
    twice = sorted({str(name) for name in came if came.count(name) > 1})
    if twice:
        raise DataError(f"the table has several columns named {listed(twice)}; expected one of each name")


def completed(
    raws: Sequence[Raw], columns: Sequence[Column | None], probs: Sequence[np.ndarray | None]
) -> list[np.ndarray]:
    """The columns with their holes filled in: floats, or objects where there are names, dates or times."""
    return [
        filled(raw, column, None if column is None or p is None else column.expected(p[raw.missing()]))
        for raw, column, p in zip(raws, columns, probs, strict=True)
    ]


def filled(raw: Raw, column: Column | None, values: Any) -> np.ndarray:
    """A column with `values` in its holes, in their order; None leaves them."""
    holes = raw.missing()
    numbers = not raw.named and not is_time(raw) and (column is None or _is_numeric(column))
    whole = raw.came.astype(float if numbers else object)
    if values is not None and holes.any():
        whole[holes] = _as_given(values, raw)
    return whole


def _as_given(values: np.ndarray, raw: Raw) -> Any:
    """Dates as dates without a time, and as text, where those that were seen are."""
    seen = [] if raw.given is None else raw.given[~raw.missing()]
    text = any(isinstance(value, str) for value in seen)
    if raw.kind == DATE and (text or (len(seen) and not any(isinstance(value, datetime) for value in seen))):
        values = np.array([value.date() for value in values], dtype=object)
    return np.array([str(value) for value in values], dtype=object) if text else values


def _is_numeric(column: Column) -> bool:
    return not isinstance(column, Categories) and not column.is_time


def as_array(columns: Sequence[np.ndarray]) -> np.ndarray:
    return np.column_stack(columns)


def as_frame(columns: Sequence[np.ndarray], raws: Sequence[Raw], table: Any) -> Any:
    """The columns as a frame like `table`, with its index."""
    typed = as_typed(columns, raws, table)
    if hasattr(table, "iloc"):
        frame = type(table)(typed, index=table.index)
        return frame if _named(raws, table) else frame.set_axis(table.columns, axis=1)
    return type(table)(typed)


def as_typed(columns: Sequence[np.ndarray], raws: Sequence[Raw], table: Any) -> dict[str, Any]:
    """The columns by name, for pandas or polars; of a pandas `table` each keeps its type where that can hold it."""
    typed: dict[str, Any] = {}
    named = _named(raws, table)
    for j, (values, raw) in enumerate(zip(columns, raws, strict=True)):
        series = None
        if hasattr(table, "iloc") and (not named or raw.name in table.columns):
            series = table[raw.name] if named else table.iloc[:, j]
        if series is not None and not raw.missing().any():
            typed[raw.name] = series.array
        elif series is not None:
            typed[raw.name] = _like(values, series, raw)
        elif raw.kind == BOOLEAN and not any(map(is_missing, values)):
            typed[raw.name] = values.astype(bool)
        else:
            typed[raw.name] = values.tolist() if values.dtype == object else values
    return typed


def _named(raws: Sequence[Raw], table: Any) -> bool:
    """Whether the columns of a table are known by their names, and not by their places."""
    return not {raw.name for raw in raws}.isdisjoint(getattr(table, "columns", ()))


def _like(values: np.ndarray, series: Any, raw: Raw) -> Any:
    """Values without holes in the type of a pandas `series` that has some, or in the next one that can hold them."""
    make, dtype = type(series), series.dtype
    name, holes = str(dtype), raw.missing()
    if name == "category":
        unknown = {v for v in values if not is_missing(v)} - set(series.cat.categories)
        return make(values, dtype=series.cat.add_categories(sorted(unknown)).dtype).array
    if getattr(dtype, "kind", "") in "mM":
        ours = make(values[holes].tolist(), index=series.index[holes])
        return _joined(series, holes, ours.dt.tz_localize("UTC") if getattr(dtype, "tz", None) else ours)
    if raw.kind == BOOLEAN and not any(map(is_missing, values)):
        return make(values.astype(bool), dtype=dtype if name == "boolean" else bool).array
    if name.lstrip("U").startswith("Int"):
        whole = not np.isnan(values).any() and (values == np.round(values)).all()
        return make(values, dtype=name if whole else "Float64").array
    return values.tolist() if values.dtype == object else values


def _joined(series: Any, holes: np.ndarray, ours: Any) -> Any:
    array = series.array.copy()
    array[holes] = ours.array
    return array
