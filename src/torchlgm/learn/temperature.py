"""One temperature that makes a trained predictor as sure as it is right."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from torchlgm.data import hide
from torchlgm.errors import DataError, TrainingError
from torchlgm.learn.ensemble import by_node
from torchlgm.learn.objectives import nll
from torchlgm.learn.prediction import predict_log_proba
from torchlgm.learn.samples import Trainable, as_labelled
from torchlgm.posterior import Predictor

DRAWS = 16  # how often each sample is asked about, each time with another share visible
MOST = 10.0  # times as sure, or as unsure, at most
STEPS = 40  # of the search, each of which leaves 0.618 of the range


def fit_temperature(
    predictor: Predictor,
    data: Trainable,
    visible: tuple[float, float] = (0.2, 1.0),
    batch_size: int = 1000,
    seed: int = 0,
) -> float:
    """Fit the temperature of a predictor: the one under which some data are most likely.

    A temperature above 1 means that the predictor was too sure, below 1 that it was not sure enough. The most probable
    class never changes. `predictor.temperature = 1.0` undoes it, and so does `fit`.

    Parameters
    ----------
    predictor : Posterior
        Its temperature is set.
    data : Data, Samples, tuple or Dataset
        Samples that it was not trained on, such as the validation data.
    visible : tuple of float
        Inputs are hidden at random so that shares between these two remain visible; `(1.0, 1.0)` hides none.
    batch_size : int
        Samples at a time.
    seed : int
        The seed of what is hidden.

    Returns
    -------
    float
        The temperature.
    """
    if not isinstance(predictor, Predictor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TrainingError(f"{type(predictor).__name__} cannot be calibrated; expected a Posterior")
    before, predictor.temperature = predictor.temperature, 1.0
    try:
        predictor.temperature = best_temperature(*asked_at_shares(predictor, data, visible, batch_size, seed))
    except BaseException:
        predictor.temperature = before
        raise
    return predictor.temperature


def reset_temperature(module: nn.Module) -> None:
    """Set the temperature of every predictor inside to 1, since it is that of other energies than those to come."""
    for part in module.modules():
        if isinstance(part, Predictor):
            part.temperature = 1.0


def asked_at_shares(
    predictor: nn.Module,
    data: Trainable,
    visible: tuple[float, float] = (0.2, 1.0),
    batch_size: int = 1000,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """Log-probabilities `(DRAWS N, nodes, K)` of all samples at shares from complete down, and their targets."""
    low, high = visible
    if not 0 < low <= high <= 1:
        raise DataError(f"visible={visible}; expected shares (low, high) with 0 < low <= high <= 1")
    samples, generator = as_labelled("data", data), torch.Generator().manual_seed(seed)
    shares = torch.linspace(high, low, DRAWS if low < 1 else 1).tolist()
    asked = (hide(samples.inputs, share, generator) for share in shares)
    parts = [by_node(predict_log_proba(predictor, x, batch_size)).cpu().double() for x in asked]
    return torch.cat(parts), torch.cat([samples.targets.cpu()] * len(parts))


def best_temperature(log_probs: Tensor, targets: Tensor) -> float:
    """The one under which the targets of log-probabilities `(N, nodes, K)` are most likely, by golden section."""

    def loss(at: float) -> float:
        return float(nll(torch.log_softmax(log_probs / math.exp(at), -1), targets))

    low, high, ratio = -math.log(MOST), math.log(MOST), (math.sqrt(5) - 1) / 2
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    loss_left, loss_right = loss(left), loss(right)
    for _ in range(STEPS):
        if loss_left <= loss_right:
            high, right, loss_right = right, left, loss_left
            left = high - ratio * (high - low)
            loss_left = loss(left)
        else:
            low, left, loss_left = left, right, loss_right
            right = low + ratio * (high - low)
            loss_right = loss(right)
    return math.exp((low + high) / 2)
