"""What is to be trained: the options of a run, and its trainings in the order in which they begin."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from experiments.paper.cells import Cell, Experiment
from torchlgm.errors import DataError

STREAMS = 32  # PyTorch has no more on a GPU
WORKERS = 24  # trainings at the same time on a GPU
FIRST_SEEDS = 3  # before more seeds begin, all tables have these


@dataclass(frozen=True)
class Options:
    """How to run trainings: leave `minutes` after it `began`, with `epochs` as a cap; `quick` takes a few steps only.

    With `joined`, as on a GPU, the seeds of a cell are trained in one step.
    """

    out: Path
    data: str | None = None
    device: str = "auto"
    workers: int | None = None
    seeds: int | None = None
    epochs: int | None = None
    minutes: float | None = None
    quick: bool = False
    joined: bool | None = None
    began: float = field(default_factory=time.monotonic)

    @property
    def to_continue(self) -> str:
        """What may be done about trainings that are left."""
        return "--quick keeps nothing to continue with" if self.quick else "the same command continues with them"

    @property
    def torch_device(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise DataError("--device cuda: no CUDA device is available; use --device cpu")
        return torch.device(self.device)

    @property
    def most_workers(self) -> int:
        """Trainings at the same time."""
        cuda = self.torch_device.type == "cuda"
        workers = self.workers or (WORKERS if cuda else 1)
        if cuda and workers > STREAMS:
            raise DataError(f"--workers {workers}: a GPU has streams for {STREAMS} trainings; ask for at most as many")
        return workers

    def cap(self, e: Experiment) -> Experiment:
        """The experiment with no more epochs than are allowed."""
        cap = 1 if self.quick else self.epochs or e.epochs
        return replace(e, epochs=min(cap, e.epochs))


@dataclass(frozen=True)
class Job:
    """The training of a cell with one seed, or with several consecutive ones in one step."""

    cell: Cell
    seeds: tuple[int, ...]

    @property
    def order(self) -> tuple[int, int, float]:
        """The core of the paper first, more seeds and what is worth one seed only last; of equals the longest first,
        to end at the same time."""
        last = self.seeds[0] >= FIRST_SEEDS or self.cell.seeds == 1
        stage = 2 if last else 0 if self.cell.table.core else 1
        return stage, self.seeds[0], -_cost(self.cell.experiment)

    def __str__(self) -> str:
        return f"{self.cell.name}, {self.cell.way}, seed {', '.join(map(str, self.seeds))}"


def _cost(e: Experiment) -> float:
    """Roughly, what a training costs."""
    size = {"network": 0.2, "cd": 0.5 * e.gibbs}.get(e.learner, e.iterations * (1 if e.model == "dense" else 3))
    return size * min(e.epochs, 40) * 20 / e.batch


def plan(cells: Iterable[Cell], options: Options) -> list[Job]:
    """The trainings, in the order in which they begin; a cell has at most its own number of seeds."""
    jobs = [
        Job(cell, (seed,))
        for cell in (replace(cell, experiment=options.cap(cell.experiment)) for cell in cells)
        for seed in range(min(options.seeds or cell.seeds, cell.seeds))
    ]
    return sorted(jobs, key=lambda job: job.order)


def joined(jobs: Sequence[Job]) -> list[Job]:
    """The same trainings with consecutive seeds of a cell as one job, as early as the first of them."""
    result: list[Job] = []
    for job in jobs:
        for i, other in enumerate(result):
            follows = job.cell is other.cell and job.seeds[0] == other.seeds[-1] + 1 and job.order[0] == other.order[0]
            if follows and job.cell.experiment.learner != "cd":  # its pretraining takes single models
                result[i] = Job(job.cell, other.seeds + job.seeds)
                break
        else:
            result.append(job)
    return result
