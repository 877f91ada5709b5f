"""The same training from several seeds, and what its figures are on average."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev

import torch
from torch import nn

from torchlgm._utils.validate import is_number
from torchlgm.errors import DivergedError, TrainingError
from torchlgm.learn.ensemble import Ensemble
from torchlgm.learn.objectives import Objective
from torchlgm.learn.progress import Result
from torchlgm.learn.reporting import Reporter
from torchlgm.learn.samples import Stream, Trainable, as_labelled, as_trainable
from torchlgm.learn.settings import Settings, settings_or_default
from torchlgm.learn.trainer import fit


@dataclass(frozen=True)
class SeedRun:
    seed: int
    predictor: nn.Module
    result: Result


@dataclass(frozen=True)
class MeanStd:
    """Mean and standard deviation (of the sample, 0 for a single value)."""

    mean: float
    std: float
    count: int

    def __str__(self) -> str:
        return f"{self.mean:.4f} ± {self.std:.4f} (n={self.count})"


def mean_std(values: Iterable[float]) -> MeanStd:
    """Mean, standard deviation and number of some values.

    Parameters
    ----------
    values : iterable of float
        At least one number.

    Returns
    -------
    MeanStd
        The standard deviation is that of the sample, 0 for a single value.

    Examples
    --------
    >>> print(mean_std([0.96, 0.97, 0.98]))
    0.9700 ± 0.0100 (n=3)
    """
    values = list(values)
    if not values or not all(map(is_number, values)):
        raise TrainingError(f"the mean of {values}; expected at least one number, none of them NaN or infinite")
    return MeanStd(fmean(values), stdev(values) if len(values) > 1 else 0.0, len(values))


def fit_seeds(
    make_predictor: Callable[[int], nn.Module],
    train: Trainable,
    valid: Trainable,
    objective: Objective | None = None,
    settings: Settings | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    folder: str | Path | None = None,
    resume: bool = False,
    device: str | torch.device = "cpu",
    reporters: Callable[[int], Sequence[Reporter]] | None = None,
    together: bool = False,
) -> list[SeedRun]:
    """Train a predictor from several seeds, one after the other or together.

    Parameters
    ----------
    make_predictor : callable
        Makes a predictor from a seed, which also orders the batches.
    train, valid, objective, settings, device
        As for `fit`.
    seeds : sequence of int
        The seeds; with `together`, consecutive ones.
    folder : str or Path, optional
        Where to write the states, in `seed-0` and so on.
    resume : bool
        Continue from the states in `folder`; trainings that have finished cost nothing.
    reporters : callable, optional
        Makes the reporters for a seed.
    together : bool
        Train all in one step, with one state and one reporter. On a GPU, several small models take much less than
        several times as long as one. If one of them diverges, all are trained one by one.

    Returns
    -------
    list of SeedRun
        For example, `mean_std(run.result.best_loss for run in runs)` summarises them.
    """
    if not callable(make_predictor):
        raise TrainingError(f"make_predictor={make_predictor!r}; expected a function of a seed that gives a Posterior")
    if isinstance(seeds, int):
        raise TrainingError(f"seeds={seeds}; expected the seeds themselves, such as range({seeds})")
    if not seeds or len(set(seeds)) != len(seeds):
        raise TrainingError(f"seeds={list(seeds)}; expected at least one, all different")
    settings = settings_or_default(settings)
    train, valid = as_trainable("train", train, settings.batch_size), as_labelled("valid", valid)
    if together and isinstance(train, Stream):
        raise TrainingError("together=True needs batches of their own for all seeds; pass the data in memory")

    def train_from(seed: int, predictor: nn.Module, name: str) -> Result:
        where = None if folder is None else Path(folder) / name
        own_reporters = None if reporters is None else reporters(seed)
        own_settings = replace(settings, seed=seed)
        return fit(predictor, train, valid, objective, own_settings, where, resume, device, own_reporters)

    if together and list(seeds) != list(range(seeds[0], seeds[0] + len(seeds))):
        raise TrainingError(f"seeds={list(seeds)}; together=True needs seeds that follow one another, such as 0, 1, 2")
    if together and len(seeds) > 1:
        ensemble = Ensemble(make_predictor(seed) for seed in seeds)
        with suppress(DivergedError):
            result = train_from(seeds[0], ensemble, f"seeds-{seeds[0]}-{seeds[-1]}")
            return [SeedRun(*run) for run in zip(seeds, ensemble.members(), result.members, strict=True)]
    return [
        SeedRun(seed, predictor := make_predictor(seed), train_from(seed, predictor, f"seed-{seed}")) for seed in seeds
    ]
