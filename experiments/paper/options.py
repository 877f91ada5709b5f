"""How trainings are run."""

import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from experiments.paper.cells import Experiment
from experiments.pool import STREAMS
from torchlgm.errors import DataError

WORKERS = 24  # trainings at the same time on a GPU


@dataclass(frozen=True)
class Options:
    """How to run trainings: leave `minutes` after it `began`, with `epochs` as a cap; `quick` takes a few steps only.

    With `joined`, as on a GPU, the seeds of a cell are trained in one step. `cells` is a pattern for the cells that
    ablations train.
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
    cells: str = "*"
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
