"""The cells of the tables: how each is trained, and the file that its results are in."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

from experiments.paper.tables import LEARNERS, TABLES, WAYS, Number, Table
from torchlgm.errors import DataError


@dataclass(frozen=True)
class Experiment:
    """Everything that says how a cell is trained."""

    data: str  # mnist or fashion-mnist
    model: str = "dense"  # dense, conv or local
    learner: str = "lgm"  # lgm, network, or cd: greedy pretraining by contrastive divergence
    colours: int | None = None  # labels of an input; None: soft
    hidden: tuple[int, ...] = (100,)  # nodes of the hidden layers of a dense model
    grow: str | None = None  # "nodes" or "labels" of the hidden layer with the colours
    first_labels: int = 2  # of the first hidden layer of conv and local
    method: str = "lbp"
    schedule: str = "sequential"
    iterations: int = 5
    damping: float = 0.0
    gradient: str = "backprop"  # or analytic
    gibbs: int = 1  # steps of contrastive divergence
    pretraining: int = 5  # its epochs for each pair of layers
    activation: str = "relu"  # of a network
    mask_channel: bool = False
    visible: float | tuple[float, float] | None = None  # share of the pixels, or a range of it
    fixed_masks: bool = False  # hide the same pixels of an image in every epoch
    smoothing: float = 0.0
    fill: float = 0.0  # weight of learning to fill in hidden inputs
    start: str = "default"
    batch: int = 20
    learning_rate: float = 1e-2
    epochs: int = 12
    patience: int | None = None
    cosine: bool = True
    weight_decay: float = 0.0  # decoupled, as AdamW's

    @property
    def hidden_nodes(self) -> tuple[int, ...]:
        return tuple(n * self._bits for n in self.hidden) if self.grow == "nodes" else self.hidden

    @property
    def hidden_labels(self) -> int:
        return self._bits + 1 if self.grow == "labels" else 2

    @property
    def input_labels(self) -> int:
        return self.colours or 2

    @property
    def _bits(self) -> int:
        return round(math.log2(self.input_labels))


@dataclass(frozen=True, eq=False)
class Cell:
    """One cell of a table in one of our columns ("paper" or "ours"); `paper` is the number published."""

    table: Table
    row: str
    column: str
    paper: Number
    way: str
    experiment: Experiment
    seeds: int

    @property
    def name(self) -> str:
        return f"{self.table.label}/{self.row}/{self.column}"

    @property
    def slug(self) -> str:
        """Row, column and way as part of a file's name."""
        words = re.findall(r"[a-z0-9.]+", f"{self.row} {self.column}".lower().replace("+", " "))
        return f"{'-'.join(words)}.{self.way}".replace("..", ".")

    @property
    def file(self) -> str:
        """Where its results are, below the folder of all results."""
        return f"{self.table.label}/{self.slug}.json"

    @property
    def is_lgm(self) -> bool:
        return self.experiment.learner == "lgm"

    @property
    def is_network(self) -> bool:
        return self.experiment.learner == "network"


def find_table(name: str) -> Table:
    """By LaTeX label, or as table1 to table8."""
    for table in TABLES:
        if name in (table.label, f"table{table.number}"):
            return table
    known = ", ".join(f"table{table.number} ({table.label})" for table in TABLES)
    raise DataError(f"{name!r} is no table of the paper; expected one of {known}")


def all_cells(
    tables: Sequence[Table] = TABLES, ways: Sequence[str] = tuple(WAYS), pattern: str = "*"
) -> Iterator[Cell]:
    """The cells of tables in our columns. `pattern` matches the end of their names, table/row/column, from a slash on;
    if no name ends so, any part of it."""
    made = (
        _cell(table, row, column, paper, way)
        for table in tables
        for row, column, paper in table.cells()
        for way in ways
    )
    cells, pattern = [cell for cell in made if cell is not None], pattern.lower()
    exact = [cell for cell in cells if fnmatch(f"/{cell.name.lower()}", f"*/{pattern}")]
    yield from exact or [cell for cell in cells if fnmatch(cell.name.lower(), f"*{pattern}*")]


def find_cell(name: str, way: str = "ours") -> Cell:
    """By its full name, table/row/column."""
    return next(cell for cell in all_cells(ways=[way]) if cell.name == name)


def _cell(table: Table, row: str, column: str, paper: Number, way: str) -> Cell | None:
    """None if the cell is for the other column only."""
    settings: dict[str, Any] = {**WAYS[way], **table.every, **table.columns[column], **table.rows[row]}
    learner = settings.get("learner", "lgm")
    ours = {**table.ours, **settings.pop("ours", {}), **table.exceptions.get(f"{row}/{column}", {})}
    if way == "ours":
        settings["epochs"] = table.our_epochs
    settings |= LEARNERS.get(learner, ours if way == "ours" else {})
    if settings.pop("only", way) != way:
        return None
    seeds = settings.pop("seeds", table.seeds)
    if "hidden" in settings:
        settings["hidden"] = tuple(settings["hidden"])
    return Cell(table, row, column, paper, way, Experiment(**settings), seeds)
