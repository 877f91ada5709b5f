"""Metrics of predicted probabilities `(N, K)` for targets `(N,)`, the numbers of their classes; tensors or arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor

from torchlgm._utils.arrays import Array, as_tensor
from torchlgm._utils.validate import check_int
from torchlgm.data import Data, Hiding, hide
from torchlgm.errors import DataError

_SUM_TOLERANCE = 1e-2  # what bfloat16 rounds away
MOST_BINS = 2**16
MOST_DRAWS = 100_000
MOST_DRAWN = 2**24  # random numbers at once
MOST_SEED = 2**63 - 1


def accuracy(probs: Array, targets: Array) -> float:
    """Share of samples whose most probable class is the target.

    Parameters
    ----------
    probs : Tensor or array_like
        Probabilities `(N, K)`.
    targets : Tensor or array_like
        Class numbers `(N,)`.

    Returns
    -------
    float
        From 0 to 1.
    """
    probs, targets = _checked(probs, targets)
    return (probs.argmax(1) == targets).float().mean().item()


def nll(probs: Array, targets: Array) -> float:
    """Mean negative log-probability of the targets; a probability of 0 counts as the smallest positive float.

    Parameters
    ----------
    probs : Tensor or array_like
        Probabilities `(N, K)`.
    targets : Tensor or array_like
        Class numbers `(N,)`.

    Returns
    -------
    float
        In nats.
    """
    probs, targets = _checked(probs, targets)
    of_target = probs.gather(1, targets[:, None]).clamp(min=torch.finfo(probs.dtype).tiny)
    return -of_target.log().mean().item()


def brier(probs: Array, targets: Array) -> float:
    """Mean squared distance of the probabilities from the one-hot targets.

    Parameters
    ----------
    probs : Tensor or array_like
        Probabilities `(N, K)`.
    targets : Tensor or array_like
        Class numbers `(N,)`.

    Returns
    -------
    float
        From 0 to 2.
    """
    probs, targets = _checked(probs, targets)
    return (probs - _one_hot(probs, targets)).square().sum(1).mean().item()


def calibration_error(probs: Array, targets: Array, bins: int = 15) -> float:
    """Mean gap between the confidence in the most probable class and its accuracy.

    With few samples, much of it is chance; see `calibration_chance`.

    Parameters
    ----------
    probs : Tensor or array_like
        Probabilities `(N, K)`.
    targets : Tensor or array_like
        Class numbers `(N,)`.
    bins : int
        Bins of confidence, of equal width.

    Returns
    -------
    float
        From 0 to 1.
    """
    probs, targets = _checked(probs, targets)
    confidence, predicted = probs.max(1)
    return _gaps(confidence, (predicted == targets).unsqueeze(0), bins).item()


def calibration_chance(probs: Array, bins: int = 15, draws: int = 200, seed: int = 0) -> float:
    """The calibration error that perfect probabilities would show by chance alone.

    Parameters
    ----------
    probs : Tensor or array_like
        Probabilities `(N, K)`, taken to be right.
    bins : int
        As for `calibration_error`.
    draws : int
        How often to draw which answers are right, at most 100,000.
    seed : int
        The seed of the draws, 0 or more.

    Returns
    -------
    float
        The mean over draws.

    Examples
    --------
    >>> few, many = torch.full((50, 2), 0.5), torch.full((5000, 2), 0.5)
    >>> round(calibration_chance(few), 2), round(calibration_chance(many), 3)
    (0.06, 0.006)
    """
    draws, seed = check_int("draws", draws, error=DataError), check_int("seed", seed, 0, error=DataError)
    if draws > MOST_DRAWS or seed > MOST_SEED:
        raise DataError(
            f"draws={draws}, seed={seed}; expected at most {MOST_DRAWS} draws, and a seed up to {MOST_SEED}"
        )
    probs = as_tensor("probabilities", probs)
    probs, _ = _checked(probs, torch.zeros(len(probs), dtype=torch.int64))
    confidence = probs.max(1).values.cpu()
    generator, total = torch.Generator().manual_seed(seed), 0.0
    at_once = max(1, MOST_DRAWN // len(confidence))
    for first in range(0, draws, at_once):
        size = min(at_once, draws - first), len(confidence)
        chance = torch.rand(size, generator=generator, dtype=confidence.dtype)
        total += _gaps(confidence, chance < confidence, bins).sum().item()
    return total / draws


def _gaps(confidence: Tensor, right: Tensor, bins: int) -> Tensor:
    """Calibration errors `(D,)` of answers `(N,)` that were `right` `(D, N)`."""
    bins = check_int("bins", bins, error=DataError)
    if bins > MOST_BINS:
        raise DataError(f"bins={bins}; expected at most {MOST_BINS}")
    gap = confidence - right.to(confidence.dtype)
    place = (confidence * bins).long().clamp(max=bins - 1)
    return gap.new_zeros(len(gap), bins).index_add(1, place, gap).abs().sum(1) / len(confidence)


def confusion(probs: Array, targets: Array) -> Tensor:
    """Count samples by target and by most probable class.

    Parameters
    ----------
    probs : Tensor or array_like
        Probabilities `(N, K)`.
    targets : Tensor or array_like
        Class numbers `(N,)`.

    Returns
    -------
    Tensor
        `(K, K)`; rows are targets, columns are predictions.
    """
    probs, targets = _checked(probs, targets)
    classes = probs.shape[1]
    return (targets * classes + probs.argmax(1)).bincount(minlength=classes**2).view(classes, classes)


def evaluate(probs: Array, targets: Array) -> dict[str, float]:
    """Compute `accuracy`, `nll`, `brier` and `calibration_error`.

    Parameters
    ----------
    probs : Tensor or array_like
        Probabilities `(N, K)`.
    targets : Tensor or array_like
        Class numbers `(N,)`.

    Returns
    -------
    dict
        Each figure by name.

    Examples
    --------
    >>> probs, targets = torch.tensor([[0.9, 0.1], [0.4, 0.6]]), torch.tensor([0, 0])
    >>> {name: round(value, 2) for name, value in evaluate(probs, targets).items()}
    {'accuracy': 0.5, 'nll': 0.51, 'brier': 0.37, 'calibration_error': 0.35}
    """
    measures = (accuracy, nll, brier, calibration_error)
    return {measure.__name__: measure(probs, targets) for measure in measures}


def by_visible_share(
    predict: Callable[[Tensor], Tensor],
    data: Data,
    shares: Sequence[float],
    generator: Generator | None = None,
    like: Hiding = "random",
) -> list[dict[str, float]]:
    """Evaluate predictions by the share of entries that is visible.

    Parameters
    ----------
    predict : callable
        Maps inputs `(N, *shape)`, NaN where hidden, to probabilities `(N, K)`.
    data : Data
        Inputs and targets.
    shares : sequence of float
        The shares, each from 0 to 1.
    generator : torch.Generator, optional
        PyTorch's default generator if None.
    like : {"random", "block", "band"}
        What is hidden, as for `torchlgm.data.hide`.

    Returns
    -------
    list of dict
        For each share, the share as `visible` and the figures of `evaluate`.
    """
    return [
        {"visible": share} | evaluate(predict(hide(data.inputs, share, generator, like)), data.targets)
        for share in shares
    ]


def _one_hot(probs: Tensor, targets: Tensor) -> Tensor:
    return torch.zeros_like(probs).scatter_(1, targets[:, None], 1)


def _checked(probs: Array, targets: Array) -> tuple[Tensor, Tensor]:
    """Both as tensors, probs at least float32 and targets int64, after a check that they are what they should be."""
    probs, targets = as_tensor("probabilities", probs), as_tensor("targets", targets)
    if probs.ndim != 2 or targets.shape != probs.shape[:1] or len(targets) == 0:
        raise DataError(
            f"expected probabilities (N, K) and targets (N,), N > 0, got {tuple(probs.shape)} and "
            f"{tuple(targets.shape)}"
        )
    numbers = targets.to(probs.device, torch.int64)
    if targets.is_floating_point() or ((numbers < 0) | (numbers >= probs.shape[1])).any():
        raise DataError(f"expected integer targets in 0..{probs.shape[1] - 1}, got others (type {targets.dtype})")
    probs = probs.detach().to(torch.promote_types(probs.dtype, torch.float32))
    if not ((probs >= 0).all() and ((probs.sum(1) - 1).abs() < _SUM_TOLERANCE).all()):
        raise DataError(
            "expected probabilities, none negative, summing to 1 in each row; apply softmax to logits first"
        )
    return probs, numbers
