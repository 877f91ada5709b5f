"""Tables in files, read by pandas: columns of numbers and of text, and the labels of the rows."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchlgm._utils.machine import as_path
from torchlgm._utils.optional import import_optional
from torchlgm._utils.validate import is_number
from torchlgm.data.parquet_files import read_frames
from torchlgm.errors import DataError, DataWarning, MissingExtraError, warn

if TYPE_CHECKING:
    from pandas import DataFrame, Series

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet", ".xlsx")
_SEPARATORS = (",", ";", "\t", "|")
_MISSING = "?"  # besides what pandas takes for missing: empty cells, NA, N/A, NaN, null, None
_MOST_LISTED = 6
_FEW_CLASSES = 10  # so many different numbers may be classes though hardly one occurs twice


@dataclass(frozen=True, eq=False)
class Table:
    """The rows of a table that have a label: `X` `(N, columns)` and `y` `(N,)`, as scikit-learn takes them.

    `target` is the name of the column of the labels, `unlabelled` the number of rows that were left out.
    """

    X: DataFrame
    y: Series
    target: str
    unlabelled: int = 0


def is_table(path: str | Path) -> bool:
    """Whether a path has the suffix of a table in a file: .csv, .tsv, .parquet or .xlsx."""
    path = as_path(path, DataError)
    return path.suffix.lower() in TABLE_SUFFIXES and not path.is_dir()


def load_table(
    path: str | Path,
    target: str | None = None,
    drop: Sequence[str] = (),
    header: bool = True,
    missing_value: float | None = None,
) -> Table:
    """Read the labelled rows of a .csv, .tsv, .parquet or .xlsx file.

    Empty cells, NA, NaN, null, None and ? count as missing.

    Parameters
    ----------
    path : str or Path
        The file.
    target : str, optional
        The column with the labels, by default the last one.
    drop : sequence of str
        Columns to leave out.
    header : bool
        Whether the first row names the columns; if not, they are called 1, 2, 3 and so on.
    missing_value : float, optional
        A number that counts as missing too.

    Returns
    -------
    Table
        With `X`, `y`, `target`, and how many rows were `unlabelled` and left out.
    """
    frame = read_frame(path, header)
    dropped = named_columns(drop, frame, path)
    frame = frame.drop(columns=dropped)
    if len(frame.columns) < 2:
        raise DataError(
            f"{path}: expected at least two columns, one of them with labels, got {_listed(list(frame.columns))}"
        )
    target = str(frame.columns[-1]) if target is None else target
    if target in dropped:
        raise DataError(f"{path}: column {target!r} is dropped, so it cannot be the target; leave out one of the two")
    _require_columns([target], frame, path)
    labels: Any = frame[target]
    labelled = labels.notna()
    if not labelled.any():
        raise DataError(f"{path}: no row has a label in column {target!r}; name another column as the target")
    X = without(frame.drop(columns=target).loc[labelled], missing_value, path).reset_index(drop=True)
    y = as_labels(labels[labelled], path).reset_index(drop=True)
    return Table(X, y, target, int((~labelled).sum()))


def read_frame(
    path: str | Path, header: bool = True, dtype: Mapping[str, Any] | type | None = None, keep: bool = False
) -> DataFrame:
    """The table at `path` as pandas reads it, with names as text.

    Of a text file, `dtype` is that of some columns or of all, and with `keep` no cell counts as missing.
    """
    path, pandas = as_path(path, DataError), import_optional("pandas", "cli")
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    suffix = path.suffix.lower()
    if suffix in (".parquet", ".xlsx"):
        frame = _read_binary(pandas, path, header)
    elif suffix in TABLE_SUFFIXES:
        frame = _read_text(pandas, path, header, dtype, keep)
    else:
        raise DataError(f"{path}: expected a name that ends in {', '.join(TABLE_SUFFIXES)}")
    if not header:
        frame.columns = range(1, len(frame.columns) + 1)
    frame.columns = [str(name) for name in frame.columns]
    if len(frame) == 0:
        raise DataError(f"{path}: expected at least one row below the header, got none")
    return _without_index(frame, path)


def read_parts(
    path: str | Path, rows: int, header: bool = True, dtype: Mapping[str, Any] | None = None
) -> Iterator[DataFrame]:
    """The table at `path`, .csv, .tsv or .parquet, in parts of so many rows, with names as text."""
    path, pandas = as_path(path, DataError), import_optional("pandas", "cli")
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if path.suffix.lower() == ".parquet":
        parts = read_frames(path, rows)
    else:
        options = {"header": 0 if header else None, "index_col": False, "dtype": dtype, "na_values": [_MISSING]}
        parts = _text_parts(pandas, path, options | {"chunksize": rows})
    for frame in parts:
        if len(frame) == 0:
            continue
        if not header:
            frame.columns = range(1, len(frame.columns) + 1)
        frame.columns = [str(name) for name in frame.columns]
        yield frame


def _text_parts(pandas: Any, path: Path, options: Mapping[str, Any]) -> Iterator[DataFrame]:
    with _text_errors(pandas, path), pandas.read_csv(path, **text_format(path), **options) as parts:
        yield from parts


def read_cells(path: str | Path, header: bool = True) -> DataFrame:
    """The text of all cells of the rows that `read_frame` gives."""
    path, pandas = as_path(path, DataError), import_optional("pandas", "cli")
    if path.suffix.lower() in (".parquet", ".xlsx"):
        frame = read_frame(path, header)
        return frame.astype(object).map(lambda value: "" if pandas.isna(value) else str(value))
    return read_frame(path, header, dtype=str, keep=True)


def named_columns(names: Sequence[str], frame: DataFrame, path: str | Path) -> list[str]:
    """The columns with these names; one text may have several, with commas between."""
    columns = [part.strip() for name in names for part in ([name] if name in frame.columns else name.split(","))]
    _require_columns(columns, frame, path)
    return columns


def without(frame: DataFrame, missing_value: float | None, path: str | Path | None = None) -> DataFrame:
    """The table without the numbers that equal `missing_value`; if none does, a warning says so of `path`."""
    if missing_value is None:
        return frame
    if not is_number(missing_value):
        raise DataError(f"missing_value={missing_value!r}; expected a number")
    equal = frame == missing_value
    if path is not None and not equal.to_numpy().any():
        warn(f"{path}: nothing in it equals the missing value {missing_value:g}", DataWarning)
    return frame.mask(equal)


def text_format(path: Path) -> dict[str, Any]:
    """How the cells of a text file are separated, by its first line, and the decimal mark, as pandas takes them."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            lines = [line for line, _ in zip(file, range(20), strict=False)]
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: expected text in UTF-8 ({error}); save it as that") from error
    first = re.sub(r'"[^"]*"', "", lines[0]) if lines else ""
    separator = "\t" if path.suffix.lower() == ".tsv" else max(_SEPARATORS, key=first.count)
    comma = separator == ";" and any(re.search(r"(^|;)-?\d+,\d+(;|$)", line.strip()) for line in lines)
    return {"sep": separator, "decimal": "," if comma else ".", "encoding": "utf-8-sig", "skipinitialspace": True}


def _read_text(pandas: Any, path: Path, header: bool, dtype: Any, keep: bool) -> DataFrame:
    missing = {"keep_default_na": False} if keep else {"na_values": [_MISSING]}
    options = {"header": 0 if header else None, "low_memory": False, "index_col": False, "dtype": dtype, **missing}
    with _text_errors(pandas, path):
        frame = pandas.read_csv(path, **text_format(path), **options)
    if header:
        _warn_of_numbers_as_names(list(frame.columns), path)
    return frame


@contextmanager
def _text_errors(pandas: Any, path: Path) -> Iterator[None]:
    """What pandas raises about a text file, as DataError."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pandas.errors.ParserWarning)  # cells without a column
            yield
    except pandas.errors.EmptyDataError as error:
        raise DataError(f"{path}: expected a table, got an empty file") from error
    except (pandas.errors.ParserError, pandas.errors.ParserWarning) as error:
        raise DataError(f"{path}: rows differ in their number of cells ({_one_line(error)}); mend the file") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: expected text in UTF-8 ({error}); save it as that") from error


def _read_binary(pandas: Any, path: Path, header: bool) -> DataFrame:
    try:
        if path.suffix.lower() == ".parquet":
            return pandas.read_parquet(path)
        return pandas.read_excel(path, header=0 if header else None, na_values=[_MISSING])
    except ImportError as error:
        needed = "pyarrow" if path.suffix.lower() == ".parquet" else "openpyxl"
        raise MissingExtraError(
            f"{path}: pandas needs {needed} to read this; pip install {needed}, or save the table as .csv"
        ) from error
    except Exception as error:  # a damaged file may make anything of a reader
        raise DataError(f"{path}: not a readable table ({_one_line(error)})") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _without_index(frame: DataFrame, path: Path) -> DataFrame:
    """Without a first column that has no name and numbers the rows, as pandas writes it."""
    first = str(frame.columns[0])
    if first != "Unnamed: 0" or len(frame.columns) < 2:
        return frame
    numbers = frame[first].tolist()
    if any([str(n) for n in numbers] == [str(start + i) for i in range(len(frame))] for start in (0, 1)):
        warn(f"{path}: the first column has no name and numbers the rows, so it is left out", DataWarning)
        return frame.drop(columns=first)
    return frame


def _warn_of_numbers_as_names(names: list[str], path: Path) -> None:
    counted = [str(i) for i in range(len(names) + 1)]
    if all(_is_number(name) for name in names[:-1]) and names[:-1] not in (counted[:-2], counted[1:-1]):
        warn(
            f"{path}: the first row is taken for the names of the columns, but holds numbers ({_listed(names)}); if it "
            "is data, pass header=False (--no-header)",
            DataWarning,
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _require_columns(names: Sequence[str], frame: DataFrame, path: str | Path) -> None:
    for name in names:
        if name not in frame.columns:
            near = get_close_matches(name, list(frame.columns), 1)
            hint = f"did you mean {near[0]!r}?" if near else f"expected one of {_listed(list(frame.columns))}"
            raise DataError(f"{path}: there is no column {name!r}; {hint}")


def as_labels(labels: Series, path: str | Path) -> Series:
    """Whole numbers as such, also where missing labels made floats of them; anything else as it is."""
    if labels.dtype.kind != "f":
        if len(labels) > _FEW_CLASSES and labels.nunique() == len(labels):
            warn(
                f"{path}: every row has a label of its own, such as {labels.iloc[0]}; are these the labels?",
                DataWarning,
            )
        return labels
    if (labels == labels.round()).all():
        return labels.astype("int64")
    if labels.nunique() > max(len(labels) / 2, _FEW_CLASSES):
        raise DataError(
            f"{path}: the labels in column {labels.name!r} are {labels.nunique()} different numbers in {len(labels)} "
            f"rows, such as {labels.iloc[0]:g}, which are no classes; name another column as the target, or divide "
            "them into a few ranges"
        )
    return labels.astype(str)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _MOST_LISTED else f"{', '.join(names[:2])}, ..., {names[-1]}"
