"""From a cell of a table to what is trained: graph, start, objective and settings."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from typing import Any

import torch
from torch import nn

from experiments.paper.tables import CD, COLUMNS, NETWORK, TABLES, Number, Table
from torchlgm import LGM, Graph, Init, Method, lbp, learn, mean_field, trw, zoo
from torchlgm.baselines import network
from torchlgm.data import Data
from torchlgm.errors import DataError

METHODS = {"lbp": lbp, "trw": trw, "mf": mean_field, "published trw": partial(trw, divide_by_rho=False)}
STARTS = {
    "paper": Init(table=1.0, unary=1.0, scale="energy"),
    "default": Init(table=1.0, scale="balanced"),
    "weak": Init(table=0.1, scale="balanced"),
    "mild": Init(table=0.3, scale="balanced"),
    "strong": Init(table=1.0, scale="balanced"),
    "small": Init(table=0.1, scale="energy"),  # for contrastive divergence
}
FROM_DATA = ("weak", "mild", "strong")  # where inputs are missing, their unaries are taken from the data
OTHER = ("all", "figures", "questions", "report")  # what `python -m experiments.paper` takes beside tables
COUNTED = 10_000  # images from which the inputs' unaries are taken
_NETWORKS = threading.Lock()  # they are drawn from the global random numbers


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
    smoothing: float = 0.0
    fill: float = 0.0  # weight of learning to fill in hidden inputs
    start: str = "default"
    batch: int = 20
    learning_rate: float = 1e-2
    epochs: int = 12
    patience: int | None = None
    cosine: bool = True

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
    """One cell of a table in one of our columns ("paper" or "ours")."""

    table: Table
    row: str
    column: str
    number: Number
    way: str
    experiment: Experiment
    seeds: int

    @property
    def name(self) -> str:
        return f"{self.table.label}/{self.row}/{self.column}"

    @property
    def file(self) -> str:
        """Where its results are, below the folder of all results."""
        words = f"{self.row} {self.column}".lower().replace("+", " ")
        return f"{self.table.label}/{'-'.join(re.findall(r'[a-z0-9.]+', words))}.{self.way}.json".replace("..", ".")

    @property
    def is_lgm(self) -> bool:
        return self.experiment.learner == "lgm"

    @property
    def is_network(self) -> bool:
        return self.experiment.learner == "network"


def find_table(name: str) -> Table:
    """By LaTeX label, or as table1 to table8."""
    for number, table in enumerate(TABLES, 1):
        if name in (table.label, f"table{number}"):
            return table
    known = ", ".join(f"table{n} ({t.label})" for n, t in enumerate(TABLES, 1))
    raise DataError(f"{name!r} is no table of the paper; expected one of {known}, or {', '.join(OTHER)}.")


def all_cells(
    tables: Sequence[Table] = TABLES, ways: Sequence[str] = tuple(COLUMNS), pattern: str = "*"
) -> Iterator[Cell]:
    """The cells of tables in our columns. `pattern` is the end of their names, table/row/column, after a stroke, or, if
    no name ends so, a part of it."""
    cells = [
        cell
        for table in tables
        for row, column, number in table.cells()
        for way in ways
        if (cell := _cell(table, row, column, number, way)) is not None
    ]
    pattern = pattern.lower()
    exact = [cell for cell in cells if fnmatch(f"/{cell.name.lower()}", f"*/{pattern}")]
    yield from exact or [cell for cell in cells if fnmatch(cell.name.lower(), f"*{pattern}*")]


def _cell(table: Table, row: str, column: str, number: Number, way: str) -> Cell | None:
    """None if the cell is for the other column only."""
    words: dict[str, Any] = {**COLUMNS[way], **table.every, **table.columns[column], **table.rows[row]}
    learner = words.get("learner", "lgm")
    ours = {**table.ours, **words.pop("ours", {}), **table.exceptions.get(f"{row}/{column}", {})}
    if way == "ours":
        words["epochs"] = table.our_epochs
    words |= {"network": NETWORK, "cd": CD}.get(learner, ours if way == "ours" else {})
    if words.pop("only", way) != way:
        return None
    seeds = words.pop("seeds", table.seeds)
    return Cell(table, row, column, number, way, Experiment(**words), seeds)


def make_graph(e: Experiment) -> Graph:
    if e.model == "dense":
        return zoo.dense((1, 28, 28), e.hidden_nodes, 10, e.input_labels, e.hidden_labels)
    return zoo.windows(e.model, input_labels=e.input_labels, first_labels=e.first_labels)


def make_start(e: Experiment) -> Init:
    if e.start == "colours":  # N(0, 1) for two labels, weaker for more
        std = math.sqrt(2 / e.input_labels)
        return Init(table=std, unary=std, scale="energy")
    return STARTS[e.start]


def make_model(e: Experiment, seed: int, train: Data) -> nn.Module:
    """The model before training, on the device of the data."""
    device = train.inputs.device
    if e.learner == "network":
        with _NETWORKS, torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made = network(e.model, activation=e.activation, mask_channel=e.mask_channel)  # pyright: ignore
        return made.to(device)
    model = LGM(make_graph(e), make_start(e), generator=torch.Generator().manual_seed(seed)).to(device)
    if e.visible is not None and e.start in FROM_DATA:
        learn.start_from_data(model, "pixels", train.inputs[:COUNTED])
    return model


def make_method(e: Experiment) -> Method:
    return METHODS[e.method](e.iterations, e.schedule, damping=e.damping)


def make_objective(e: Experiment) -> learn.Objective:
    if e.learner == "network":
        return learn.NetworkLikelihood(e.smoothing)
    inputs = learn.Inputs(missing=e.visible is not None)
    if e.learner == "cd":
        return learn.TopOnly(inputs)
    if e.gradient == "analytic":
        return learn.Moments(make_method(e), inputs)
    if e.fill > 0:
        return learn.ClassAndInputs(make_method(e), inputs, smoothing=e.smoothing, weight=e.fill)
    return learn.Likelihood(make_method(e), inputs, smoothing=e.smoothing)


def make_settings(e: Experiment, seed: int) -> learn.Settings:
    return learn.Settings(
        epochs=e.epochs,
        batch=e.batch,
        learning_rate=e.learning_rate,
        patience=e.patience,
        seed=seed,
        visible=e.visible,
        scheduler="cosine" if e.cosine else None,
        valid_batch=valid_batch(e),
    )


def valid_batch(e: Experiment) -> int:
    """Large, so that validation costs little, but not where samples are."""
    return 1000 if e.model != "dense" else max(100, min(2000, 16_000 // e.input_labels))
