"""What came: the columns of an array or a frame as floats, or as names, with their holes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from torchlgm.sklearn.times import TIMES, days_of, kind_of_times, parsed

NUMBER, BOOLEAN = "number", "boolean"
_NAMED_TYPES = ("category", "categorical", "enum")


class Distinct(NamedTuple):
    """The different values of a column, and the place of each row's among them."""

    values: list[Any]
    place: np.ndarray

    def spread(self, function: Callable[[Any], Any], dtype: type) -> np.ndarray:
        """What the function gives for the value of each row, asked once for each that differs."""
        return np.array([function(value) for value in self.values], dtype=dtype)[self.place]

    def seen(self) -> list[Any]:
        return [value for value in self.values if not is_missing(value)]


def distinct(values: np.ndarray) -> Distinct:
    """Of objects; those of different types differ, as 1 and True do."""
    listed = values.tolist()
    keys = list(zip(map(type, listed), listed, strict=True))
    try:
        places = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    except TypeError:  # they have no hash
        return Distinct(listed, np.arange(len(listed)))
    return Distinct([value for _, value in places], np.fromiter(map(places.__getitem__, keys), int, len(keys)))


@dataclass(frozen=True, eq=False)
class Raw:
    """The values `(N,)` of a column as they came: floats, NaN = missing, or names as objects.

    Of dates, times and durations `values` are days, and `given` is what came.
    """

    name: str
    values: np.ndarray
    whole: bool = False  # of an integer or boolean type
    named: bool = False  # of a categorical type, or text
    chosen: bool = False  # named because the caller said so, by the type or by categorical_features
    kind: str = NUMBER  # or BOOLEAN, or one of TIMES
    given: np.ndarray | None = None

    @property
    def came(self) -> np.ndarray:
        """The values as they came."""
        return self.values if self.given is None else self.given

    @cached_property
    def distinct(self) -> Distinct:
        return distinct(self.values)

    def missing(self) -> np.ndarray:
        return self.distinct.spread(is_missing, bool) if self.named else np.isnan(self.values)


def take_rows(raws: Sequence[Raw], chosen: np.ndarray) -> list[Raw]:
    """Some rows of all columns, by a mask or their numbers."""
    return [
        replace(raw, values=raw.values[chosen], given=None if raw.given is None else raw.given[chosen]) for raw in raws
    ]


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
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def require_labels(y: Any) -> None:
    """Raise if a row has no class."""
    if hasattr(y, "isna"):
        missing = np.asarray(y.isna())
    elif isinstance(y, np.ndarray) and y.dtype.kind == "f":
        missing = np.isnan(y)
    elif isinstance(y, list | tuple) or (isinstance(y, np.ndarray) and y.dtype.kind in "OM"):
        missing = np.array([is_missing(value) for value in y], dtype=bool)
    else:
        return
    if missing.any():
        raise ValueError(
            f"Input y contains NaN or None in {missing.sum():,} of {len(missing):,} rows; a row without a class "
            "teaches nothing about classes, so leave these rows out"
        )


def raw_columns(table: Any, names: Sequence[str], categorical: Sequence[bool] | None = None) -> list[Raw]:
    """The columns of an array `(N, columns)` or of a pandas or polars frame; `categorical` marks columns of names."""
    kind = getattr(getattr(table, "dtype", None), "kind", "O")  # of an array
    if categorical is None and kind in "biuf":
        return _numeric(names, np.asarray(table, float), kind)
    came = (
        (series for _, series in table.items()) if hasattr(table, "iloc") else (table[:, j] for j in range(len(names)))
    )
    raws = []
    for j, (name, series) in enumerate(zip(names, came, strict=True)):
        marked = categorical is not None and bool(categorical[j])
        raws.append(_raw(name, series, marked or str(getattr(series, "dtype", "")).lower() in _NAMED_TYPES))
    return raws


def _raw(name: str, series: Any, named: bool) -> Raw:
    dtype = getattr(series, "dtype", None)
    kind = getattr(dtype, "kind", "O")
    if not named and kind in "biuf":
        values = series.to_numpy(dtype=float, na_value=np.nan) if hasattr(series, "iloc") else np.asarray(series, float)
        return _numeric([name], values[:, None], kind)[0]
    values = _objects(series, kind)
    unlike = distinct(values)
    seen = unlike.seen()
    if not named and all(_is_number(value) for value in seen):
        return _numbers(name, unlike, seen)
    times = None if named else kind_of_times(seen)
    if times is not None:
        days = unlike.spread(lambda value: np.nan if is_missing(value) else days_of(parsed(value)), float)
        return Raw(name, days, kind=times, given=values)
    kinds = sorted({type(value).__name__ for value in seen})
    if len(kinds) > 1 or not all(isinstance(v, str | int | float | np.generic) for v in seen):
        raise TypeError(
            f"{name}: the values of an argument must be uniformly strings or numbers, but this column holds "
            f"{' and '.join(kinds)}; {_advice(kinds)}"
        )
    return Raw(name, values, named=True, chosen=named)


def _numeric(names: Sequence[str], values: np.ndarray, kind: str) -> list[Raw]:
    """Columns of numbers `(N, columns)`, which came as a type of this kind."""
    _check(names, values)
    kinds: dict[str, Any] = {"whole": kind != "f", "kind": BOOLEAN if kind == "b" else NUMBER}
    return [Raw(name, column, **kinds) for name, column in zip(names, values.T, strict=True)]


def _advice(kinds: Sequence[str]) -> str:
    """How to make numbers or names of a column with such types."""
    if len(kinds) > 1:
        return "make numbers of it by pandas.to_numeric(column, errors='coerce'), or categories by column.astype(str)"
    known = {
        "Decimal": "make numbers of it by column.astype(float)",
        "Fraction": "make numbers of it by column.astype(float)",
        "Period": "make dates of it by column.dt.to_timestamp()",
        "complex": "pass the real and the imaginary parts as two columns",
    }
    return known.get(kinds[0], "make numbers or text of it, or leave it out")


def in_days(series: Any) -> np.ndarray:
    """Dates, times or durations as numbers of days `(N,)`, NaN = missing."""
    return _raw(str(series.name), series, named=False).values.astype(float)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number | np.bool_) and not isinstance(value, np.timedelta64)


def _objects(series: Any, kind: str) -> np.ndarray:
    if kind in "mM" and isinstance(series, np.ndarray):  # nanoseconds would become integers
        return series.astype(f"{'datetime64' if kind == 'M' else 'timedelta64'}[us]").astype(object)
    return np.asarray(series, dtype=object)


def _numbers(name: str, values: Distinct, seen: Sequence[Any]) -> Raw:
    floats = values.spread(lambda value: np.nan if is_missing(value) else float(value), float)
    _check([name], floats[:, None])
    whole = bool(seen) and all(isinstance(v, int | np.integer | np.bool_) for v in seen)
    boolean = bool(seen) and all(isinstance(v, bool | np.bool_) for v in seen)
    return Raw(name, floats, whole, kind=BOOLEAN if boolean else NUMBER)


def _check(names: Sequence[str], values: np.ndarray) -> None:
    """Raise if columns `(N, columns)` hold numbers that are too large."""
    infinite = np.isinf(values).any(0)
    if infinite.any():
        name = names[int(infinite.argmax())]
        raise ValueError(f"Input X contains infinity in {name}; expected finite numbers, or NaN where missing.")
    with np.errstate(over="ignore"):
        width = np.fmax.reduce(values, initial=np.nan) - np.fmin.reduce(values, initial=np.nan)  # NaN aside
    if np.isinf(width).any():
        name = names[int(np.isinf(width).argmax())]
        raise ValueError(
            f"Input X has numbers in {name} whose range is beyond what a float can hold; divide them by a constant."
        )


def is_time(raw: Raw) -> bool:
    return raw.kind in TIMES
