"""What Parquet files say of their columns, and their rows in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchlgm._utils.machine import as_path
from torchlgm._utils.optional import import_optional
from torchlgm.errors import DataError

BLOCK = 2**14  # rows that are decoded at once
BUFFER = 2**16  # bytes that are read at once of each column
FAR = 2.0**1000  # numbers beyond which no range can be scaled


def find_files(path: str | Path | Sequence[str | Path]) -> list[Path]:
    """A .parquet file, those of a folder, or several of both."""
    if not isinstance(path, str | Path) and not hasattr(path, "__iter__"):
        raise DataError(f"expected a path or a list of them, got {path!r}")
    files: list[Path] = []
    for one in (as_path(p, DataError) for p in ([path] if isinstance(path, str | Path) else path)):
        found = sorted(one.glob("*.parquet")) if one.is_dir() else [one]
        if not found or not found[0].is_file():
            raise DataError(f"{one}: " + ("has no .parquet files" if one.is_dir() else "no such file"))
        files += found
    if not files:
        raise DataError("expected a .parquet file or a folder of them, got none")
    return files


def read_metadata(file: Path) -> Any:
    parquet = import_optional("pyarrow.parquet", "parquet")
    with _errors(file):
        return parquet.read_metadata(file)


def read_batches(
    file: Path, rows: int, groups: Sequence[int] | None = None, columns: Sequence[str] | None = None
) -> Iterator[Any]:
    """Record batches of so many rows, of some groups of rows and columns; of the file, little is in memory."""
    parquet = import_optional("pyarrow.parquet", "parquet")
    with _errors(file), parquet.ParquetFile(file, pre_buffer=False, buffer_size=BUFFER) as opened:
        yield from opened.iter_batches(rows, groups, columns, use_threads=False)


def read_frames(file: Path, rows: int) -> Iterator[Any]:
    """Frames of pandas of so many rows."""
    for batch in read_batches(file, rows):
        with _errors(file):  # such as in what pandas has noted about the columns
            frame = batch.to_pandas()
        yield frame


def numbers_of(column: Any) -> Tensor:
    """Numbers or booleans, NaN for null."""
    return torch.tensor(column.cast("float64", safe=False).to_numpy(zero_copy_only=False))


def check_columns(file: Path, metadata: Any, names: Sequence[str], target: str, numbers: bool) -> None:
    """Raise DataError unless the inputs are numbers, and the target too if it has to be `numbers`."""
    types = import_optional("pyarrow.types", "parquet")
    schema = metadata.schema.to_arrow_schema()
    for name in (*names, target):
        if name not in schema.names:
            raise DataError(f"{file}: there is no column {name!r}; it has {', '.join(schema.names[:10])}")
        if schema.names.count(name) > 1:
            raise DataError(f"{file}: there are {schema.names.count(name)} columns {name!r}; give each its own name")
    for name in names:
        kind = schema.field(name).type
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
            raise DataError(
                f"{file}: column {name!r} holds {kind}, expected numbers or booleans; leave it out by inputs=, or "
                "write it as numbers"
            )
    kind = schema.field(target).type
    if numbers and not (types.is_integer(kind) or types.is_boolean(kind)):
        raise DataError(f"{file}: column {target!r} holds {kind}; name its values by classes=, in their order")


def check_groups(file: Path, groups: int, names: Sequence[str]) -> None:
    """Raise DataError unless the first row of each group of rows can be read.

    It is what pyarrow says of a damaged group: where it is asked for statistics it ends the process.
    """
    parquet = import_optional("pyarrow.parquet", "parquet")
    with _errors(file), parquet.ParquetFile(file, pre_buffer=False, buffer_size=BUFFER) as opened:
        for number in range(groups):
            next(opened.iter_batches(1, [number], names, use_threads=False), None)


def range_of(metadata: dict[Path, Any], name: str) -> tuple[float, float] | None:
    """The least and the largest value of a column of some files, None if it has no values.

    That is read from the statistics of each group of rows, or from the group where there are none.
    """
    ends: list[float] = []
    for file, about in metadata.items():
        place = next(i for i in range(about.num_columns) if about.schema.column(i).path == name)
        for number in range(about.num_row_groups):
            group = about.row_group(number)
            statistics = group.column(place).statistics
            if statistics is None or not statistics.has_min_max or isinstance(statistics.min, bytes):
                if statistics is None or statistics.null_count != group.num_rows:
                    ends += _read_range(file, number, name)
            else:
                ends += [float(statistics.min), float(statistics.max)]
    if not ends:
        return None
    low, high = min(ends), max(ends)
    if not -FAR < low <= high < FAR:
        raise DataError(
            f"column {name!r} has infinite or huge values, from {low:g} to {high:g}; make them null, or pass its range "
            "as columns=Columns(names, low, high)"
        )
    return low, high


def _read_range(file: Path, number: int, name: str) -> list[float]:
    """Of a group of rows; empty if all is missing there."""
    ends: list[float] = []
    for batch in read_batches(file, BLOCK, [number], [name]):
        values = numbers_of(batch.column(0))
        values = values[~values.isnan()]
        if len(values):
            ends += [float(values.min()), float(values.max())]
    return ends


@contextmanager
def _errors(file: Path) -> Iterator[None]:
    """What pyarrow raises about a file, as DataError."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # a damaged file may make anything of a reader
        raise DataError(f"{file}: not a readable table ({' '.join(str(error).split())})") from error
