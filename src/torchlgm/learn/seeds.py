"""The same training from several seeds, and what its figures are on average."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev

import torch
from torch import nn

from torchlgm.errors import DivergedError, TrainingError
from torchlgm.learn.ensemble import Ensemble, Together
from torchlgm.learn.objectives import Objective
from torchlgm.learn.reporting import Reporter
from torchlgm.learn.samples import Labelled
from torchlgm.learn.settings import Settings, settings_or_default
from torchlgm.learn.trainer import Result, fit


@dataclass(frozen=True)
class SeedRun:
    seed: int
    model: nn.Module
    result: Result


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation (of the sample, 0 for a single value)."""

    mean: float
    std: float
    count: int

    def __str__(self) -> str:
        return f"{self.mean:.4f} ± {self.std:.4f} (n={self.count})"


def spread(values: Iterable[float]) -> Spread:
    """Mean, standard deviation and number of the values.

    >>> print(spread([0.96, 0.97, 0.98]))
    0.9700 ± 0.0100 (n=3)
    """
    values = list(values)
    if not values:
        raise TrainingError("the spread of no values; expected at least one")
    return Spread(fmean(values), stdev(values) if len(values) > 1 else 0.0, len(values))


def fit_seeds(
    make_model: Callable[[int], nn.Module],
    objective: Objective,
    train: Labelled,
    valid: Labelled,
    settings: Settings | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    folder: str | Path | None = None,
    resume: bool = False,
    device: str | torch.device = "cpu",
    reporters: Callable[[int], Sequence[Reporter]] | None = None,
    together: bool = False,
) -> list[SeedRun]:
    """`fit` for each seed, one after the other: `make_model(seed)` gives the model, the seed orders the batches.

    With `folder`, the states are in `folder/seed-0` and so on; with `resume`, trainings that are done cost nothing.
    `together` trains all of them in one step, in which a GPU does several small models in much less than several
    times the time of one; the seeds must then follow one another, there is one state and one reporter. If one of them
    diverges, they are trained one by one. `spread(run.result.best_loss for run in runs)` sums up.
    """
    if isinstance(seeds, int):
        raise TrainingError(f"seeds={seeds}; expected the seeds themselves, such as range({seeds})")
    if not seeds or len(set(seeds)) != len(seeds):
        raise TrainingError(f"seeds={list(seeds)}; expected at least one, all different")
    settings = settings_or_default(settings)

    def train_from(seed: int, model: nn.Module, objective: Objective, name: str) -> Result:
        where = None if folder is None else Path(folder) / name
        told = None if reporters is None else reporters(seed)
        return fit(model, objective, train, valid, replace(settings, seed=seed), where, resume, device, told)

    if together and list(seeds) != list(range(seeds[0], seeds[0] + len(seeds))):
        raise TrainingError(f"seeds={list(seeds)}; together=True needs seeds that follow one another, such as 0, 1, 2")
    if together and len(seeds) > 1:
        ensemble = Ensemble(make_model(seed) for seed in seeds)
        with suppress(DivergedError):
            result = train_from(seeds[0], ensemble, Together(objective), f"seeds-{seeds[0]}-{seeds[-1]}")
            return [SeedRun(*run) for run in zip(seeds, ensemble.members(), result.members, strict=True)]
    return [
        SeedRun(seed, model := make_model(seed), train_from(seed, model, objective, f"seed-{seed}")) for seed in seeds
    ]
