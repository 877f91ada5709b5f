"""Rows of Parquet files that need not fit into memory, as batches to train on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchlgm._utils.machine import as_path
from torchlgm._utils.optional import import_optional
from torchlgm._utils.validate import check_int
from torchlgm.data.dataset import Columns
from torchlgm.data.shards import Shards
from torchlgm.errors import DataError

BLOCK = 2**14  # rows that are decoded at once
BUFFER = 2**16  # bytes that are read at once of each column

Group = tuple[Path, int]  # a file, and the number of one of its groups of rows


class ParquetRows(Shards):
    """Batches of rows of Parquet files: columns of numbers in [0, 1], and the class of each row.

    Of the rows, a block at a time is in memory, so that there may be any number of them. Each process and each worker
    of a loader reads other groups of rows; where these are fewer than its readers, each takes every so many rows. It
    needs the extra `parquet`.

    Parameters
    ----------
    path : str, Path or a list of them
        A .parquet file, a folder of such files, or several files.
    target : str
        The column of the class; a row where it is null has none.
    inputs : list of str, optional
        The columns of the inputs, numbers or booleans; None for all others. Null and NaN are missing.
    batch_size : int
        Rows in a batch, of all processes together.
    shuffle : int
        Rows come in another order in every epoch: groups of rows at random, and in them so many rows at a time. 0 keeps
        the order of the file. If the rows of a class lie together there, shuffle the file first.
    seed : int
        The seed of the order.
    columns : Columns, optional
        The names and ranges of the inputs of other rows, such as those of the training; None takes the least and the
        largest value of each column from the statistics that are part of the files. Values beyond them are cut off.
    classes : list, optional
        The values of the target, in the order of the classes; None for 0, 1, ... up to the largest one.

    Attributes
    ----------
    columns
        The names and ranges of the inputs, a `Columns`.
    classes
        The values of the target.
    """

    def __init__(
        self,
        path: str | Path | Sequence[str | Path],
        target: str,
        *,
        inputs: Sequence[str] | None = None,
        batch_size: int = 500,
        shuffle: int = 2**16,
        seed: int = 0,
        columns: Columns | None = None,
        classes: Sequence[Any] | None = None,
    ) -> None:
        self.files = _files(path)
        self.target = target
        self.batch_size = check_int("batch_size", batch_size, 1, error=DataError)
        self.shuffle = check_int("shuffle", shuffle, 0, error=DataError)
        self.seed = check_int("seed", seed, 0, error=DataError)
        metadata = {file: _metadata(file) for file in self.files}
        names = tuple(columns.names if columns is not None else inputs or _others(metadata[self.files[0]], target))
        for file, about in metadata.items():
            _check_columns(file, about, names, target, numbers=classes is None)
        self.groups = [(file, i) for file, about in metadata.items() for i in range(about.num_row_groups)]
        self._rows = sum(about.num_rows for about in metadata.values())
        if self._rows == 0:
            raise DataError(f"{self.files[0]}: expected at least one row, got none")
        self.columns = columns or Columns(names, *_ranges(metadata, names))
        self._labels = None if classes is None else tuple(classes)
        self.classes = tuple(range(_most(metadata, target) + 1)) if classes is None else tuple(classes)

    def __len__(self) -> int:
        """How many rows there are."""
        return self._rows

    def __repr__(self) -> str:
        return f"ParquetRows({len(self):,} rows of {len(self.columns.names)} columns, {len(self.classes)} classes)"

    def shard(self, index: int, count: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of the groups of rows of one of so many readers."""
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + self.epoch) % 2**63)
        order = torch.randperm(len(self.groups), generator=generator) if self.shuffle else range(len(self.groups))
        groups = [self.groups[int(i)] for i in order]
        if len(groups) >= count:
            groups, index, count = groups[index::count], 0, 1
        size, gathered, some = self.share(self.batch_size), [], 0
        for block in self._blocks(groups, index, count):
            gathered.append(block)
            some += len(block[0])
            if some >= max(size, self.shuffle):
                *batches, rest = self._batches(gathered, size, generator)
                yield from batches
                gathered, some = [rest], len(rest[0])
        if some:
            yield from self._batches(gathered, size, generator)

    def _blocks(self, groups: Sequence[Group], index: int, count: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Every `count`th row of some groups, from `index` on."""
        before, names = 0, [*self.columns.names, self.target]
        for file, number in groups:
            for batch in read_batches(file, BLOCK, [number], names):
                first, before = (index - before) % count, before + batch.num_rows
                if first < batch.num_rows:
                    yield self._inputs(batch)[first::count], self._targets(batch, file)[first::count]

    def _batches(
        self, blocks: Sequence[tuple[Tensor, Tensor]], size: int, generator: torch.Generator
    ) -> list[tuple[Tensor, Tensor]]:
        x, y = (torch.cat(parts) for parts in zip(*blocks, strict=True))
        if self.shuffle:
            order = torch.randperm(len(x), generator=generator)
            x, y = x[order], y[order]
        return list(zip(x.split(size), y.split(size), strict=True))

    def _inputs(self, batch: Any) -> Tensor:
        """`(rows, columns)` in [0, 1], NaN = missing."""
        x = torch.empty(batch.num_rows, len(self.columns.names), dtype=torch.get_default_dtype())
        for j, (name, low, high) in enumerate(
            zip(self.columns.names, self.columns.low, self.columns.high, strict=True)
        ):
            x[:, j] = ((_numbers(batch.column(name)) - low) / (high - low or 1.0)).clamp(0, 1)
        return x

    def _targets(self, batch: Any, file: Path) -> Tensor:
        """`(rows,)` places among the classes, -1 for none."""
        column = batch.column(self.target)
        if self._labels is not None:
            arrow, compute = (import_optional(name, "parquet") for name in ("pyarrow", "pyarrow.compute"))
            found = compute.index_in(column, value_set=arrow.array(self._labels, type=column.type))
            strange = compute.and_(compute.is_null(found), compute.is_valid(column))
            if compute.any(strange).as_py():
                label = column.filter(strange)[0].as_py()
                raise DataError(f"{file}: column {self.target!r} has {label!r}, which is not among the classes")
            column = found
        return _numbers(column).nan_to_num(nan=-1).long()


def read_batches(
    file: Path, rows: int, groups: Sequence[int] | None = None, columns: Sequence[str] | None = None
) -> Iterator[Any]:
    """Record batches of so many rows, of some groups of rows and columns; of the file, little is in memory."""
    parquet = import_optional("pyarrow.parquet", "parquet")
    with _errors(file), parquet.ParquetFile(file, pre_buffer=False, buffer_size=BUFFER) as opened:
        yield from opened.iter_batches(rows, groups, columns, use_threads=False)


def _numbers(column: Any) -> Tensor:
    """Numbers or booleans, NaN for null."""
    return torch.tensor(column.cast("float64").to_numpy(zero_copy_only=False))


def _files(path: str | Path | Sequence[str | Path]) -> list[Path]:
    given = [path] if isinstance(path, str | Path) else list(path)
    files: list[Path] = []
    for one in (as_path(p, DataError) for p in given):
        found = sorted(one.glob("*.parquet")) if one.is_dir() else [one]
        if not found or not found[0].is_file():
            raise DataError(f"{one}: " + ("has no .parquet files" if one.is_dir() else "no such file"))
        files += found
    if not files:
        raise DataError("expected a .parquet file or a folder of them, got none")
    return files


def _metadata(file: Path) -> Any:
    parquet = import_optional("pyarrow.parquet", "parquet")
    with _errors(file):
        return parquet.read_metadata(file)


@contextmanager
def _errors(file: Path) -> Iterator[None]:
    """What pyarrow raises about a file, as DataError."""
    try:
        yield
    except DataError:
        raise
    except (ValueError, OSError, KeyError, NotImplementedError, MemoryError) as error:  # pyarrow's own are among these
        raise DataError(f"{file}: not a readable table ({' '.join(str(error).split())})") from error


def _others(metadata: Any, target: str) -> list[str]:
    return [name for name in metadata.schema.to_arrow_schema().names if name != target]


def _check_columns(file: Path, metadata: Any, names: Sequence[str], target: str, numbers: bool) -> None:
    types = import_optional("pyarrow.types", "parquet")
    schema = metadata.schema.to_arrow_schema()
    for name in (*names, target):
        if name not in schema.names:
            raise DataError(f"{file}: there is no column {name!r}; it has {', '.join(schema.names[:10])}")
    if not names:
        raise DataError(f"{file}: expected columns beside {target!r}")
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


def _ranges(metadata: dict[Path, Any], names: Sequence[str]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The least and the largest value of each column, by the statistics of all groups of rows."""
    both = [_range(metadata, name) for name in names]
    return tuple(low for low, _ in both), tuple(high for _, high in both)


def _range(metadata: dict[Path, Any], name: str) -> tuple[float, float]:
    ends: list[float] = []
    for file, about in metadata.items():
        place = about.schema.to_arrow_schema().names.index(name)
        for i in range(about.num_row_groups):
            group = about.row_group(i)
            statistics = group.column(place).statistics
            if statistics is not None and statistics.has_min_max:
                ends += [float(statistics.min), float(statistics.max)]
            elif statistics is None or statistics.null_count != group.num_rows:
                raise DataError(
                    f"{file}: has no statistics of column {name!r}; pass its range as columns=Columns(names, low, "
                    "high), or write the file with statistics"
                )
    low, high = min(ends, default=0.0), max(ends, default=0.0)
    if not abs(low) + abs(high) < float("inf"):
        raise DataError(f"column {name!r} has infinite values; make them null, or pass its range as columns=")
    return low, high


def _most(metadata: dict[Path, Any], target: str) -> int:
    low, high = _range(metadata, target)
    if low < 0:
        raise DataError(f"column {target!r} goes from {low:g}; name its values by classes=, in their order")
    return int(high)
