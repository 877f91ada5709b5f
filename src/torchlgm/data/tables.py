"""Data sets from a .csv table."""

import csv
import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from torchlgm.data.dataset import Columns, Data, Dataset, number_labels
from torchlgm.data.splits import holdout_indices
from torchlgm.errors import DataError

_LABEL_NAMES = ("label", "target", "class")
_MISSING = ("", "nan", "na", "n/a", "?")
_MOST_LISTED = 6

_Rows = list[tuple[int, list[str]]]


def load_csv(path: Path, columns: Columns | None = None) -> Dataset:
    """Inputs (N, columns) scaled to [0, 1] as `columns` says, else by the range each has in the training part.

    The label is in the column named label, target or class, else in the last one. A header is recognised by
    a word where a number belongs. Empty cells are missing.
    """
    rows = _read_rows(path)
    width = len(rows[0][1]) if rows else 0
    if width < 2:
        raise DataError(f"{path}: expected at least two comma-separated columns, found {width}.")
    header = rows[0][1] if _is_header(rows[0][1]) else None
    label_at = _label_column(path, header, width)
    rows = rows[1:] if header else rows
    if len(rows) < 2:
        raise DataError(f"{path}: expected at least two rows of data, found {len(rows)}.")
    labels = [_read_label(path, line, cells[label_at]) for line, cells in rows]
    values = [_read_numbers(path, line, cells[:label_at] + cells[label_at + 1 :]) for line, cells in rows]
    names = header or [str(number) for number in range(1, width + 1)]
    return _scaled_parts(path, values, labels, names[:label_at] + names[label_at + 1 :], columns)


def read_table(path: Path, names: Sequence[str]) -> Tensor:
    """Unscaled values (N, len(names)), float64, of the columns with these names; NaN = missing.

    Without a header that has them all, the table must have just as many columns, which are taken in their order.
    """
    rows = _read_rows(path)
    first = rows[0][1] if rows else []
    has_header = any(not _is_number(cell) and not _is_missing(cell) for cell in first)
    rows = rows[1:] if has_header else rows
    if not rows:
        raise DataError(f"{path}: expected at least one row of data, found none.")
    if has_header and set(names) <= set(first):
        places = [first.index(name) for name in names]
    elif len(first) == len(names):
        places = list(range(len(names)))
    else:
        listed = ", ".join(names) if len(names) <= _MOST_LISTED else f"{names[0]}, ..., {names[-1]}"
        raise DataError(
            f"{path}: expected {len(names)} columns ({listed}) or a header with these names, "
            f"found {len(first)} columns."
        )
    values = [_read_numbers(path, line, [cells[place] for place in places]) for line, cells in rows]
    return torch.tensor(values, dtype=torch.float64)


def _read_rows(path: Path) -> _Rows:
    """(line number, stripped cells) of each line that is not blank."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            rows = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if cells]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: not a readable .csv file ({error}).") from error
    for line, cells in rows:
        width = len(rows[0][1])
        if len(cells) != width:
            raise DataError(f"{path}, line {line}: expected {width} cells, found {len(cells)}.")
    return rows


def _is_missing(cell: str) -> bool:
    return cell.lower() in _MISSING


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _is_header(cells: list[str]) -> bool:
    has_word = any(not _is_number(cell) and not _is_missing(cell) for cell in cells[:-1])
    return has_word or cells[-1].lower() in _LABEL_NAMES


def _label_column(path: Path, header: list[str] | None, width: int) -> int:
    named = [at for at, name in enumerate(header or []) if name.lower() in _LABEL_NAMES]
    if len(named) > 1:
        raise DataError(f"{path}: expected one column named label, target or class, found {len(named)}; rename one.")
    return named[0] if named else width - 1


def _read_label(path: Path, line: int, cell: str) -> str:
    if _is_missing(cell):
        raise DataError(f"{path}, line {line}: the label is missing; fill it in or remove the row.")
    return cell


def _read_numbers(path: Path, line: int, cells: list[str]) -> list[float]:
    try:
        numbers = [math.nan if _is_missing(cell) else float(cell) for cell in cells]
    except ValueError:
        word = next(cell for cell in cells if not _is_missing(cell) and not _is_number(cell))
        raise DataError(
            f"{path}, line {line}: expected a number or nothing, found {word!r}; encode words as numbers."
        ) from None
    if any(math.isinf(number) for number in numbers):
        raise DataError(f"{path}, line {line}: expected finite numbers, found an infinite one.")
    return numbers


def _scaled_parts(
    path: Path, values: list[list[float]], labels: list[str], names: list[str], columns: Columns | None
) -> Dataset:
    classes, targets = number_labels(labels)
    table = torch.tensor(values, dtype=torch.float64)
    train_rows, test_rows = holdout_indices(targets)
    if columns is None:
        columns = _column_ranges(path, table[train_rows], names)
    elif set(columns.names) == set(names):
        table = table[:, [names.index(name) for name in columns.names]]
    elif len(columns.names) != len(names):
        raise DataError(f"{path}: expected {len(columns.names)} input columns and a label, found {len(names)}.")
    whole = Data(columns.scale(table), targets, classes, path.stem)
    return Dataset(whole.take(train_rows), whole.take(test_rows), columns=columns)


def _column_ranges(path: Path, train: Tensor, names: list[str]) -> Columns:
    """The least and greatest value of each column, missing ones aside."""
    missing = train.isnan()
    if missing.all(0).any():
        empty = names[int(missing.all(0).nonzero()[0])]
        raise DataError(f"{path}: column {empty} has no value in the training part; remove the column.")
    low, high = train.masked_fill(missing, math.inf).amin(0), train.masked_fill(missing, -math.inf).amax(0)
    return Columns(tuple(names), tuple(low.tolist()), tuple(high.tolist()))
