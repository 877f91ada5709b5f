"""The same training from several seeds, and what its figures are on average."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev

import torch
from torch import nn

from torchlgm.errors import TrainingError
from torchlgm.learn.objectives import Objective
from torchlgm.learn.reporting import Reporter
from torchlgm.learn.samples import Labelled
from torchlgm.learn.settings import Settings
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
) -> list[SeedRun]:
    """`fit` for each seed, one after the other: `make_model(seed)` gives the model, the seed orders the batches.

    With `folder`, the states are in `folder/seed-0` and so on; with `resume`, trainings that are done cost nothing.
    `spread(run.result.best_loss for run in runs)` sums up.
    """
    if not seeds or len(set(seeds)) != len(seeds):
        raise TrainingError(f"seeds={list(seeds)}; expected at least one, all different")
    runs = []
    for seed in seeds:
        model = make_model(seed)
        result = fit(
            model,
            objective,
            train,
            valid,
            replace(settings or Settings(), seed=seed),
            None if folder is None else Path(folder) / f"seed-{seed}",
            resume,
            device,
            None if reporters is None else reporters(seed),
        )
        runs.append(SeedRun(seed, model, result))
    return runs
