"""Rows of Parquet files that need not fit into memory, as batches to train on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchlgm._utils.optional import import_optional
from torchlgm._utils.validate import check_int
from torchlgm.data.dataset import Columns
from torchlgm.data.parquet_files import (
    BLOCK,
    check_columns,
    check_groups,
    find_files,
    numbers_of,
    range_of,
    read_batches,
    read_metadata,
)
from torchlgm.data.shards import Shards
from torchlgm.errors import DataError

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
        The columns of the inputs, numbers or booleans; None for those of `columns`, else for all but the target. Null
        and NaN are missing.
    batch_size : int
        Rows in a batch, of all processes together.
    shuffle : int
        Rows come in another order in every epoch: groups of rows at random, and in them so many rows at a time. 0 keeps
        the order of the file. If the rows of a class lie together there, shuffle the file first.
    seed : int
        The seed of the order.
    columns : Columns, optional
        The names and ranges of the inputs of other rows, such as those of the training; None takes the least and the
        largest value of each column from the statistics that are part of the files, or reads them once if there are
        none. Values beyond them are cut off.
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
        self.files = find_files(path)
        self.target = target
        self.batch_size = check_int("batch_size", batch_size, 1, error=DataError)
        self.shuffle = check_int("shuffle", shuffle, 0, error=DataError)
        self.seed = check_int("seed", seed, 0, error=DataError)
        metadata = {file: read_metadata(file) for file in self.files}
        names = _names(inputs, columns, metadata[self.files[0]], target)
        for file, about in metadata.items():
            check_columns(file, about, names, target, numbers=classes is None)
            check_groups(file, about.num_row_groups, [*names, target])
        self.groups = [(file, i) for file, about in metadata.items() for i in range(about.num_row_groups)]
        self._rows = sum(about.num_rows for about in metadata.values())
        if self._rows == 0:
            raise DataError(f"{self.files[0]}: expected at least one row, got none")
        ranges = [] if columns is not None else [range_of(metadata, name) or (0.0, 0.0) for name in names]
        self.columns = columns or Columns(names, tuple(low for low, _ in ranges), tuple(high for _, high in ranges))
        self._labels = None if classes is None else _labels(classes, target)
        self.classes = range(_count(metadata, target, self._rows)) if self._labels is None else self._labels

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
            x[:, j] = ((numbers_of(batch.column(name)) - low) / (high - low or 1.0)).clamp(0, 1)
        return x

    def _targets(self, batch: Any, file: Path) -> Tensor:
        """`(rows,)` places among the classes, -1 for none."""
        column = batch.column(self.target)
        if self._labels is None:
            return numbers_of(column).nan_to_num(nan=-1).long()
        arrow, compute = (import_optional(name, "parquet") for name in ("pyarrow", "pyarrow.compute"))
        column = column.dictionary_decode() if hasattr(column, "dictionary_decode") else column
        labels = self._labels
        if arrow.types.is_boolean(column.type):
            column, labels = column.cast("int64"), [int(x) if isinstance(x, bool) else x for x in labels]
        try:
            known = arrow.array(labels, type=column.type)
        except (ValueError, TypeError) as error:  # pyarrow's own are among these
            raise DataError(
                f"{file}: column {self.target!r} holds {column.type}, but classes= are {list(self._labels)[:10]}"
            ) from error
        found, given = compute.index_in(column, value_set=known), compute.invert(column.is_null(nan_is_null=True))
        strange = compute.and_(compute.is_null(found), given)
        if compute.any(strange).as_py():
            label = column.filter(strange)[0].as_py()
            raise DataError(f"{file}: column {self.target!r} has {label!r}, which is not among the classes")
        return numbers_of(found).nan_to_num(nan=-1).long()


def _names(inputs: Sequence[str] | None, columns: Columns | None, metadata: Any, target: str) -> tuple[str, ...]:
    """The columns of the inputs."""
    if columns is not None and not isinstance(columns, Columns):
        raise DataError(f"columns={columns!r}; expected torchlgm.data.Columns, such as `rows.columns` of other rows")
    if inputs is None:
        known = metadata.schema.to_arrow_schema().names if columns is None else columns.names
        names = tuple(name for name in known if name != target or columns is not None)
    elif isinstance(inputs, str) or not isinstance(inputs, Sequence):
        raise DataError(f"inputs={inputs!r}; expected a list of names of columns")
    else:
        names = tuple(inputs)
    if columns is not None and names != tuple(columns.names):
        raise DataError(f"inputs={list(names)}, but columns= has {list(columns.names)}; leave one of them out")
    if not names:
        raise DataError(f"expected columns beside {target!r}, got none")
    if target in names or len(set(names)) < len(names):
        raise DataError(f"inputs {list(names)}; expected each column once, and not the target {target!r} among them")
    return names


def _labels(classes: Sequence[Any], target: str) -> tuple[Any, ...]:
    """The values of the target, each once."""
    if isinstance(classes, str) or not hasattr(classes, "__iter__"):
        raise DataError(f"classes={classes!r}; expected a list of the values of column {target!r}")
    labels = tuple(classes)
    if not labels or len(set(labels)) < len(labels) or any(label is None or label != label for label in labels):
        raise DataError(f"classes={list(labels)}; expected each value of column {target!r} once, and none missing")
    return labels


def _count(metadata: dict[Path, Any], target: str, rows: int) -> int:
    """How many classes there are, where they are 0, 1, ... up to the largest label."""
    found = range_of(metadata, target)
    if found is None:
        raise DataError(f"column {target!r} has no values, so there is nothing to learn")
    low, high = found
    if low < 0 or high >= rows:
        raise DataError(
            f"column {target!r} goes from {low:g} to {high:g}, in {rows:,} rows; name its values by classes=, in their "
            "order"
        )
    return int(high) + 1
