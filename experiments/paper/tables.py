"""The paper's eight tables, read from `tables.toml`: its numbers, and what each row and each column sets."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Changes = Mapping[str, Any]


@dataclass(frozen=True)
class Number:
    """What the paper says of a cell: None if it says nothing."""

    accuracy: float | None
    failed: bool = False


@dataclass(frozen=True, eq=False)
class Table:
    """One table of the paper; `label` is its LaTeX label, `seeds` how many we give it."""

    number: int
    label: str
    title: str
    every: Changes
    rows: Mapping[str, Changes]
    columns: Mapping[str, Changes]
    numbers: str
    ours: Changes = field(default_factory=dict)
    exceptions: Mapping[str, Changes] = field(default_factory=dict)  # by "row/column"
    our_epochs: int = 12  # of all cells, networks too, unless `ours` says otherwise
    seeds: int = 3
    core: bool = True

    def cells(self) -> Iterator[tuple[str, str, Number]]:
        """Row, column and number of each cell, in the order of the table."""
        for row, line in zip(self.rows, self.numbers.strip().splitlines(), strict=True):
            for column, word in zip(self.columns, line.removeprefix(row).split(), strict=True):
                if word != "-":
                    yield row, column, Number(None if word == "?" else float(word.rstrip("*")), word.endswith("*"))


_CONTENT = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
WAYS: Mapping[str, Changes] = _CONTENT["ways"]  # what our two columns set
LEARNERS: Mapping[str, Changes] = _CONTENT["learners"]
TABLES = tuple(Table(number, **table) for number, table in enumerate(_CONTENT["table"], 1))
TABLE1, TABLE2, TABLE3, TABLE4, TABLE5, TABLE6, TABLE7, TABLE8 = TABLES
