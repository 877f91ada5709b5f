"""Class probabilities of tables that may be larger than memory: they are read, answered and written in parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from torchlgm._utils.atomic import atomic_file
from torchlgm._utils.optional import import_optional
from torchlgm.cli import tables
from torchlgm.cli.io import as_csv
from torchlgm.cli.runs import Run
from torchlgm.data.tables import read_parts
from torchlgm.errors import DataError

ROWS = 2**14  # in a part
KINDS = (".csv", ".tsv", ".parquet")  # that can be read in parts

Write = Callable[[int, np.ndarray], object]  # the number of the first row, and the probabilities


def predict_table(run: Run, file: Path, out: Path, missing_value: float | None = None) -> int:
    """Write the class probabilities of the rows of a table to a new .csv or .parquet file; how many rows there were."""
    model = tables.load_classifier(run)
    write_to = _parquet if out.suffix.lower() == ".parquet" else _csv
    count = 0
    with atomic_file(out) as part, write_to(part, tables.class_names(model)) as write:
        bar = import_optional("tqdm.auto", "cli").tqdm(desc=file.name, unit=" rows", disable=None, dynamic_ncols=True)
        with bar:
            for frame in read_parts(file, ROWS, run.config.header, tables.text_columns(model)):
                probs = tables.probabilities(model, tables.rows_of(frame, file, run, model, missing_value).X).numpy()
                write(count, probs)
                count += len(probs)
                bar.update(len(probs))
        if count == 0:
            raise DataError(f"{file}: expected at least one row below the header, got none")
    return count


@contextmanager
def _csv(path: Path, classes: Sequence[str]) -> Iterator[Write]:
    with path.open("w", newline="", encoding="utf-8") as file:
        file.write(as_csv(["sample", "class", *classes], []))

        def write(first: int, probs: np.ndarray) -> None:
            named = [classes[i] for i in probs.argmax(1)]
            cells = [[f"{p:.6g}" for p in row] for row in probs.tolist()]
            lines = [[first + i, name, *row] for i, (name, row) in enumerate(zip(named, cells, strict=True))]
            file.write(as_csv(lines[0], lines[1:]))

        yield write


@contextmanager
def _parquet(path: Path, classes: Sequence[str]) -> Iterator[Write]:
    arrow = import_optional("pyarrow", "parquet")
    fields = [("sample", arrow.int64()), ("class", arrow.string()), *[(name, arrow.float64()) for name in classes]]
    schema = arrow.schema(fields)
    with import_optional("pyarrow.parquet", "parquet").ParquetWriter(path, schema) as file:

        def write(first: int, probs: np.ndarray) -> None:
            named = [classes[i] for i in probs.argmax(1)]
            columns = [np.arange(first, first + len(probs)), named, *probs.T]
            arrays = [arrow.array(c, type=field.type) for c, field in zip(columns, schema, strict=True)]
            file.write_table(arrow.Table.from_arrays(arrays, schema=schema))

        yield write
