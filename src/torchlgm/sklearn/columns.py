"""What the columns of a table are: each becomes one node, and each value of it a number in [0, 1], NaN = missing.

A node has a label for each category, or for each of a few knots of a numeric column. A number between two knots is a
soft value, shared by both labels in proportion; label k of K stands at k / (K - 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any, NamedTuple

import numpy as np

from torchlgm.errors import DataError, DataWarning, warn
from torchlgm.sklearn.knots import knots_of

FEW = 12  # a column of whole numbers with no more values than this has a label for each
NEARLY = 0.9  # of all


@dataclass(frozen=True)
class Numbers:
    """A numeric column; `knots` rise strictly. What lies outside counts as the nearest knot.

    A constant column has one knot, on a node with a second label that stands for nothing.
    """

    knots: tuple[float, ...]

    @property
    def labels(self) -> int:
        return max(2, len(self.knots))

    def scale(self, values: np.ndarray) -> np.ndarray:
        """Numbers `(N,)` -> [0, 1], linear between knots."""
        scaled = np.interp(values, self.knots, np.linspace(0, 1, len(self.knots)))
        return np.where(np.isnan(values), np.nan, scaled)

    def expected(self, probs: np.ndarray) -> np.ndarray:
        """Probabilities of the knots `(N, labels)` -> the expected values `(N,)`."""
        return np.full(len(probs), self.knots[0]) if len(self.knots) == 1 else probs @ np.asarray(self.knots)


@dataclass(frozen=True)
class Categories:
    """A column of names, on a node with at least as many labels. A name not seen in training counts as missing."""

    values: tuple[Any, ...]
    labels: int

    def scale(self, values: np.ndarray) -> np.ndarray:
        """Names `(N,)` -> [0, 1]."""
        place = {value: i / (self.labels - 1) for i, value in enumerate(self.values)}
        return np.array([np.nan if is_missing(value) else place.get(value, np.nan) for value in values], dtype=float)

    def check(self, raw: Raw) -> None:
        """Raise if names are of another type than in training, and warn if none of them is known."""
        given = raw.values[~raw.missing()]
        if len(given) == 0:
            return
        was, came = self.values[0], given[0]
        if isinstance(was, str) != isinstance(came, str):
            then, now = ("text", "numbers") if isinstance(was, str) else ("numbers", "text")
            raise DataError(
                f"{raw.name} held {then} in training, such as {was!r}, but holds {now} now, such as {came!r}. Pass the "
                "same type in both."
            )
        if not set(given.tolist()) & set(self.values):
            warn(
                f"{raw.name}: no value is among the categories of training, {_listed(self.values)}, so all count as "
                f"missing; got {_listed(sorted(set(given.tolist())))}",
            )

    def expected(self, probs: np.ndarray) -> np.ndarray:
        """Probabilities `(N, labels)` -> the most probable names `(N,)`."""
        names = np.empty(len(self.values), dtype=object)
        names[:] = self.values
        return names[probs[:, : len(names)].argmax(1)]


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(map(repr, values[:5])) + (", ..." if len(values) > 5 else "")


Column = Numbers | Categories


class LabelledRows(NamedTuple):
    """The rows that columns are learned from: the number of the class of each, `(N,)`, and its weight, `(N,)`."""

    number: np.ndarray
    weights: np.ndarray
    classes: int


@dataclass(frozen=True, eq=False)
class Raw:
    """The values `(N,)` of a column as they came: floats, NaN = missing, or names as objects."""

    name: str
    values: np.ndarray
    whole: bool = False  # of an integer or boolean type
    named: bool = False  # of a categorical type, or text
    chosen: bool = False  # named because the caller said so, by the type or by categorical_features

    def missing(self) -> np.ndarray:
        if not self.named:
            return np.isnan(self.values)
        return np.array([is_missing(value) for value in self.values], dtype=bool)


def unmasked(table: Any) -> Any:
    """A masked array as a plain one whose masked entries are missing; other tables as they are."""
    if not isinstance(table, np.ma.MaskedArray):
        return table
    plain = table.data.astype(table.dtype if table.dtype.kind == "f" else object)
    plain[np.ma.getmaskarray(table)] = np.nan if table.dtype.kind == "f" else None
    return plain


def is_missing(value: object) -> bool:
    """None, NaN, and what pandas puts for nothing."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def raw_columns(table: Any, names: Sequence[str], categorical: Sequence[bool] | None = None) -> list[Raw]:
    """The columns of an array `(N, columns)` or of a pandas or polars frame; `categorical` marks columns of names."""
    frame = hasattr(table, "columns")
    raws = []
    for j, name in enumerate(names):
        series = (table.iloc[:, j] if hasattr(table, "iloc") else table[:, j]) if frame else table[:, j]
        marked = categorical is not None and bool(categorical[j])
        raws.append(_raw(name, series, marked or str(getattr(series, "dtype", "")).lower() in _NAMED_TYPES))
    return raws


_NAMED_TYPES = ("category", "categorical", "enum")


def _raw(name: str, series: Any, named: bool) -> Raw:
    kind = getattr(series.dtype, "kind", "O")
    if not named and kind in "biuf":
        values = series.to_numpy(dtype=float, na_value=np.nan) if hasattr(series, "iloc") else np.asarray(series, float)
        return _checked(Raw(name, values, whole=kind != "f"))
    values = np.asarray(series, dtype=object)
    seen = [value for value in values if not is_missing(value)]
    if not named and all(isinstance(v, int | float | np.number | np.bool_) for v in seen):
        floats = np.array([np.nan if is_missing(value) else float(value) for value in values])
        whole = bool(seen) and all(isinstance(v, int | np.integer | np.bool_) for v in seen)
        return _checked(Raw(name, floats, whole))
    for what, types in (("dates", date | np.datetime64), ("durations", timedelta | np.timedelta64)):
        if any(isinstance(value, types) for value in seen):
            raise TypeError(f"column '{name}' holds {what}; turn them into numbers, such as days, or leave them out")
    kinds = sorted({type(value).__name__ for value in seen})
    if len(kinds) > 1 or not all(isinstance(v, str | int | float | np.generic) for v in seen):
        raise TypeError(f"{name}: the values of an argument must be uniformly strings or numbers. Got {kinds}")
    return Raw(name, values, named=True, chosen=named)


def _checked(raw: Raw) -> Raw:
    if np.isinf(raw.values).any():
        raise ValueError(f"Input X contains infinity in {raw.name}; expected finite numbers, or NaN where missing.")
    return raw


def warn_of_odd_names(raws: Sequence[Raw]) -> None:
    """Warn the caller of `fit` of text that is numbers, and of columns that name rows rather than kinds of them."""
    numbers, keys = [], []
    for raw in raws:
        values = raw.values[~raw.missing()].tolist() if raw.named else []
        if len(set(values)) <= FEW:
            continue
        if not raw.chosen and np.mean([_reads_as_number(value) for value in values]) > NEARLY:
            numbers.append(raw.name)
        elif len(set(values)) > NEARLY * len(values):
            keys.append(raw.name)
    if numbers:
        warn(
            f"text that reads as numbers, in {_listed(numbers)}: each different text becomes a category. Turn it into "
            "numbers with pandas.to_numeric, or name the columns in categorical_features if categories are meant.",
            DataWarning,
        )
    if keys:
        warn(
            f"nearly every row has a category of its own, in {_listed(keys)}: nothing can be learned from that. Leave "
            "such columns out.",
            DataWarning,
        )


def _reads_as_number(value: Any) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def learn_column(raw: Raw, rows: LabelledRows, labels: int, scaling: str, exactly: bool = False) -> Column | None:
    """The column that fits the values, None if all are missing.

    A numeric column gets `labels` knots: by `scaling`, where they tell classes apart, at the quantiles of its values,
    or evenly between the least and the greatest. One with few whole values gets a knot for each. `exactly` asks for
    just `labels` labels, or raises.
    """
    seen = ~raw.missing()
    values = raw.values[seen]
    if len(values) == 0:
        return None
    if raw.named:
        return _categories(raw.name, tuple(sorted(set(values.tolist()))), labels if exactly else None)
    distinct, place = np.unique(values, return_inverse=True)
    most = labels if exactly else max(labels, FEW) if raw.whole else labels
    if len(distinct) == 1:
        return Numbers((float(distinct[0]),))
    if len(distinct) > most or labels == 2:
        counts = np.zeros((len(distinct), rows.classes))
        np.add.at(counts, (place, rows.number[seen]), rows.weights[seen])
        distinct = knots_of(distinct, counts, labels, scaling)
    if exactly and len(distinct) < labels:
        distinct = np.linspace(distinct[0], distinct[-1], labels)
    return Numbers(tuple(distinct.tolist()))


def _categories(name: str, values: tuple[Any, ...], labels: int | None) -> Categories:
    if labels is not None and len(values) > labels:
        raise DataError(f"{name}: {len(values)} categories do not fit a node with {labels} labels.")
    return Categories(values, labels or max(2, len(values)))


def take_rows(raws: Sequence[Raw], chosen: np.ndarray) -> list[Raw]:
    """Some rows of all columns, by a mask or their numbers."""
    return [replace(raw, values=raw.values[chosen]) for raw in raws]
