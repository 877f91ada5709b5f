"""Data sets from a .csv table."""

import csv
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import torch
from torch import Tensor

from torchlgm.data.dataset import Columns, Data, Dataset, mask_out, number_labels
from torchlgm.data.splits import holdout_indices
from torchlgm.errors import DataError, DataWarning, warn

_LABEL_NAMES = ("label", "target", "class")
_MISSING = ("", "nan", "na", "n/a", "?", "null", "none")
_MOST_LISTED = 6
_ENCODE = "encode words as numbers"
_NO_SAMPLE = 6  # so many cells that count 0, 1, 2, ... are taken for names, not for a sample

_Rows = list[tuple[int, list[str]]]


@dataclass(frozen=True, eq=False)
class Table:
    """The text of a table: its header, empty if it has none, and the cells of each row.

    `values` (N, inputs) are the numbers at `places` of each row, float64, unscaled, NaN = missing.
    """

    header: list[str]
    rows: list[list[str]]
    places: list[int]
    values: Tensor


def load_csv(
    path: Path, columns: Columns | None = None, label: str | None = None, missing_value: float | None = None
) -> Dataset:
    """Inputs (N, columns) scaled to [0, 1] as `columns` says, else by the range each has in the training part.

    `label` names the column of the labels, or is its number, from 1. Without it that is the one named label, target or
    class, else the last. A header is recognised by `label` and the names in `columns`, by a word where a number
    belongs, or by names that count 0, 1, 2, ... Empty cells are missing, and numbers that equal `missing_value`.
    """
    rows = _stripped(_read_rows(path))
    width = len(rows[0][1]) if rows else 0
    if width < 2:
        raise DataError(f"{path}: expected at least two comma-separated columns, found {width}{_separated(rows)}.")
    header, label_at = _header_and_label(path, rows, columns, label)
    rows = rows[1:] if header else rows
    if len(rows) < 2:
        raise DataError(f"{path}: expected at least two rows of data, found {len(rows)}.")
    labels = [_read_label(path, line, cells[label_at]) for line, cells in rows]
    if missing_value is not None and any(_is_number(label) and float(label) == missing_value for label in labels):
        what = f"{path}: {missing_value:g} stands for missing, but as a label it is taken for a class"
        warn(what, DataWarning)
    if columns is None:
        names = _input_names(path, header, labels, width, label_at)
        places = [place for place in range(width) if place != label_at]
    else:
        names, places = columns.names, _find_columns(path, columns, header, width, label_at)
    advice = "" if columns is not None else " (LGMClassifier takes text as it is)"
    advice = f"{_ENCODE}{advice}, or, if these are the labels, name their column with label= (--label)"
    numbers = [_read_numbers(path, line, names, [cells[place] for place in places], advice) for line, cells in rows]
    values = mask_out(torch.tensor(numbers, dtype=torch.float64), missing_value, path if columns is None else None)
    return _scaled_parts(path, values, labels, columns, names, header[label_at] if header else None)


def read_table(path: Path, columns: Columns) -> Table:
    """The table at `path`, and in it these columns.

    Without a header, here or in the table of the training, it may have just as many columns, which are taken in their
    order.
    """
    lines = _read_rows(path)
    first = _stripped(lines[:1])[0][1] if lines else []
    header = _distinct(path, first) if _has_word(first) or _has_names(first, columns) else []
    head, lines = (lines[0][1], lines[1:]) if header else ([], lines)
    if not lines:
        raise DataError(f"{path}: expected at least one row of data, found none.")
    places = _find_columns(path, columns, header, len(first))
    values = [
        _read_numbers(path, line, columns.names, [cells[place] for place in places]) for line, cells in _stripped(lines)
    ]
    return Table(head, [cells for _, cells in lines], places, torch.tensor(values, dtype=torch.float64))


def _input_names(path: Path, header: list[str], labels: list[str], width: int, label_at: int) -> list[str]:
    """Names for the columns beside that of the labels."""
    if not header:
        others = Counter(labels[1:])
        if labels[0] not in others and all(count > 1 for count in others.values()):
            warn(
                f"{path}, line 1: no other row has the label {labels[0]!r}; if this is the header, name the column of "
                "the labels with label= (--label)",
                DataWarning,
            )
        header = [str(number) for number in range(1, width + 1)]
    names = header[:label_at] + header[label_at + 1 :]
    if "" in names:
        raise DataError(
            f"{path}: column {header.index('') + 1} has no name; if it numbers the rows, as pandas does, remove it "
            "(index=False), else name it."
        )
    return names


def _find_columns(
    path: Path, columns: Columns, header: list[str], width: int, label_at: int | None = None
) -> list[int]:
    """Where the columns with these names are; that of the label is none of them."""
    names = columns.names
    places = [place for place in range(width) if place != label_at]
    named = {header[place]: place for place in places} if header else {}
    missing = [name for name in names if name not in named]
    beside = "" if label_at is None else " beside the label"
    if not missing:
        return [named[name] for name in names]
    if header and not _only_numbered(columns):
        raise DataError(
            f"{path}: expected columns named {_listed(names)}{beside}, but the header has no {_listed(missing)}; "
            f"found {_listed(list(named))}{beside}. Name them as in the table that the model was trained on."
        )
    if len(places) != len(names):
        raise DataError(
            f"{path}: expected {len(names)} columns ({_listed(names)}){beside} or a header with these names, "
            f"found {len(places)} columns{beside}."
        )
    return places


def _only_numbered(columns: Columns) -> bool:
    """Whether these are the names that a table without a header gets."""
    numbers = [str(number) for number in range(1, len(columns.names) + 1)]
    return columns.label is None and list(columns.names) == numbers


def _has_names(first: list[str], columns: Columns) -> bool:
    """Whether a first row of numbers is a header with these names."""
    return _counts(first, _NO_SAMPLE) if _only_numbered(columns) else set(columns.names) <= set(first)


def _distinct(path: Path, header: list[str]) -> list[str]:
    name, times = Counter(header).most_common(1)[0]
    if times > 1:
        raise DataError(f"{path}: expected each name once in the header, found {name!r} {times} times; rename columns.")
    return header


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= _MOST_LISTED else f"{names[0]}, ..., {names[-1]}"


def _read_rows(path: Path) -> _Rows:
    """(line number, cells) of each line that is not blank."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            rows = [(reader.line_num, cells) for cells in reader if cells]
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: expected text in UTF-8 ({error}); save it as that.") from error
    except (OSError, csv.Error) as error:
        raise DataError(f"{path}: not a readable .csv file ({error}).") from error
    for line, cells in rows:
        width = len(rows[0][1])
        if len(cells) != width:
            raise DataError(f"{path}, line {line}: expected {width} cells, found {len(cells)}{_separated(rows)}.")
    return rows


def _separated(rows: _Rows) -> str:
    """Advice, if the first row seems to have another separator."""
    first = rows[0][1] if rows else [""]
    names = {";": "semicolons", "\t": "tabs", "|": "strokes"}
    found = [name for mark, name in names.items() if mark in first[0]]
    return f"; they seem to be separated by {found[0]}, save them with commas, and points for decimals" if found else ""


def _stripped(rows: _Rows) -> _Rows:
    return [(line, [cell.strip() for cell in cells]) for line, cells in rows]


def _is_missing(cell: str) -> bool:
    return cell.lower() in _MISSING


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell  # which Python takes between digits


def _has_word(cells: list[str]) -> bool:
    return any(not _is_number(cell) and not _is_missing(cell) for cell in cells)


def _counts(cells: list[str], least: int) -> bool:
    """Whether there are at least so many, and they are 0, 1, 2, ... or 1, 2, 3, ..., perhaps behind an empty one."""
    cells = cells[1:] if cells[:1] == [""] else cells
    return len(cells) >= least and any(cells == [str(start + i) for i in range(len(cells))] for start in (0, 1))


def _is_header(rows: _Rows) -> bool:
    """Whether the first row of a table with labels has names, if only numbers and a name for the label."""
    first = rows[0][1]
    if _has_word(first[:-1]) or first[-1].lower() in _LABEL_NAMES or _counts(first, _NO_SAMPLE):
        return True
    labels = [cells[-1] for _, cells in rows[1:]]
    names_the_label = not _is_missing(first[-1]) and first[-1] not in labels
    return names_the_label and (_counts(first[:-1], 2) or (_has_word(first[-1:]) and not _has_word(labels)))


def _label_column(path: Path, header: list[str], width: int) -> int:
    named = [at for at, name in enumerate(header) if name.lower() in _LABEL_NAMES]
    if len(named) > 1:
        raise DataError(f"{path}: expected one column named label, target or class, found {len(named)}; rename one.")
    return named[0] if named else width - 1


def _header_and_label(path: Path, rows: _Rows, columns: Columns | None, label: str | None) -> tuple[list[str], int]:
    """The header, empty if there is none, and where the labels are."""
    first = rows[0][1]
    asked = label is not None
    if not asked and columns is not None:
        label = columns.label
    numbers = [str(number) for number in range(1, len(first) + 1)]
    at = numbers.index(label) if label in numbers else None
    known = (at is None and label in first) or (columns is not None and _has_names(first, columns))
    known = known or _counts(first, _NO_SAMPLE) or (not _has_word(first) and _is_header(rows))
    header = _distinct(path, first) if known or _is_header(_with_last(rows, at)) else []
    if label is None:
        return header, _label_column(path, header, len(first))
    if label in header:
        return header, header.index(label)
    if at is not None:
        return header, at
    where = f"the header has no column {label!r}" if header else f"there is no header, so no column {label!r}"
    inputs = () if columns is None else columns.names
    near = get_close_matches(label, [name for name in header if name not in inputs], 1)
    where += f" (but {near[0]!r})" if near else ""
    if not asked:
        raise DataError(
            f"{path}: {where}, which held the labels in the training; if another column holds them, name it with "
            "--label; if none does, `torchlgm predict` needs none."
        )
    named = f" or one of {_listed(header)}" if header else ""
    raise DataError(f"{path}: {where} for the labels; expected a number from 1 to {len(first)}{named}.")


def _with_last(rows: _Rows, at: int | None) -> _Rows:
    """With the cells of one column behind all others."""
    if at is None:
        return rows
    return [(line, [*cells[:at], *cells[at + 1 :], cells[at]]) for line, cells in rows]


def _read_label(path: Path, line: int, cell: str) -> str:
    if _is_missing(cell):
        found = f" ({cell!r} counts as that)" if cell else ""
        raise DataError(f"{path}, line {line}: the label is missing{found}; fill it in or remove the row.")
    return cell


def _read_numbers(path: Path, line: int, names: Sequence[str], cells: list[str], advice: str = _ENCODE) -> list[float]:
    for name, cell in zip(names, cells, strict=True):
        if not _is_missing(cell) and not _is_number(cell):
            raise DataError(
                f"{path}, line {line}, column {name}: expected a number or nothing, found {cell!r}; {advice}."
            )
    numbers = [math.nan if _is_missing(cell) else float(cell) for cell in cells]
    for name, number in zip(names, numbers, strict=True):
        if math.isinf(number):
            raise DataError(f"{path}, line {line}, column {name}: expected a finite number, found {number}.")
    return numbers


def _scaled_parts(
    path: Path,
    table: Tensor,
    labels: list[str],
    columns: Columns | None,
    names: Sequence[str],
    label: str | None,
) -> Dataset:
    classes, targets = number_labels(labels, path)
    train_rows, test_rows = holdout_indices(targets)
    if columns is not None:
        columns.warn_of_other_units(table)
    else:
        columns = _column_ranges(path, table, train_rows, names, label)
    whole = Data(columns.scale(table), targets, classes, path.stem)
    return Dataset(whole.take(train_rows), whole.take(test_rows), columns=columns, split_here=True)


def _column_ranges(path: Path, table: Tensor, train_rows: Tensor, names: Sequence[str], label: str | None) -> Columns:
    """The least and greatest value of each column in the training part, missing ones aside."""
    train = table[train_rows]
    missing = train.isnan()
    if missing.all(0).any():
        empty = int(missing.all(0).nonzero()[0])
        advice = "remove the column" if table[:, empty].isnan().all() else "add rows in which it has one, or remove it"
        raise DataError(
            f"{path}: column {names[empty]} has no value in the training part ({len(train)} of {len(table)} rows); "
            f"{advice}."
        )
    low, high = train.masked_fill(missing, math.inf).amin(0), train.masked_fill(missing, -math.inf).amax(0)
    wide = (high - low).isinf()
    if wide.any():
        at = int(wide.nonzero()[0])
        raise DataError(f"{path}: column {names[at]} reaches from {low[at]:g} to {high[at]:g}; scale it down.")
    return Columns(tuple(names), tuple(low.tolist()), tuple(high.tolist()), label)
