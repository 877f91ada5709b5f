"""WHAT is minimised: an objective turns a predictor, inputs and targets into a loss. It knows no optimizer.

Inputs are `(B, *shape)` with NaN for missing entries. Targets are labels `(B,)` or `(B, nodes)`, -1 for a missing one,
or probabilities `(B, nodes, K)`, NaN for a missing one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from numbers import Real
from typing import Any

from torch import Tensor, nn

from torchlgm._utils.validate import check_share
from torchlgm.errors import TrainingError
from torchlgm.learn.ensemble import log_probs_of
from torchlgm.mrf import Clamp
from torchlgm.posterior import Posterior

_masked_in_each: ContextVar[Tensor | None] = ContextVar("masked in each sample", default=None)


@contextmanager
def masked_in_each(entries: Tensor | None) -> Iterator[None]:
    """Say how many entries are masked in a sample on average, where a process has only a part of the batch."""
    token = _masked_in_each.set(entries)
    try:
        yield
    finally:
        _masked_in_each.reset(token)


class Objective(ABC):
    """What training minimises. A subclass has to define only `loss`."""

    capturable = True  # as a CUDA graph, that is, without a look at values

    @abstractmethod
    def loss(self, predictor: Any, x: Tensor, y: Tensor, complete: Tensor | None = None) -> Tensor:
        """Compute the loss of a batch, a scalar.

        Parameters
        ----------
        predictor : Module
            Such as a `Posterior`.
        x : Tensor
            Inputs, of which some may be hidden.
        y : Tensor
            Targets.
        complete : Tensor, optional
            The inputs before some were hidden for training; None if none were.
        """

    def check(self, predictor: nn.Module) -> None:  # noqa: B027  most objectives suit any predictor
        """Raise TrainingError if the predictor cannot be trained so; called once, before a training starts."""


@dataclass(frozen=True)
class Likelihood(Objective):
    """Negative log-likelihood of the target, by backpropagation through whatever the predictor computes.

    For a `Posterior` that is inference (the paper's Algorithm 1); other modules map inputs to logits, `(B, K)` or `(B,
    *shape, K)`. The nodes of the target count as independent given the inputs.

    Parameters
    ----------
    smoothing : float
        Every wrong label gets the probability smoothing / K.
    """

    smoothing: float = 0.0

    def __post_init__(self) -> None:
        _check_smoothing(self.smoothing)

    def loss(self, predictor: nn.Module, x: Tensor, y: Tensor, complete: Tensor | None = None) -> Tensor:
        del complete
        if isinstance(predictor, Posterior) and not self.smoothing and not y.is_floating_point():
            return predictor.label_nll(x, y)
        return nll(log_probs_of(predictor, x), y, self.smoothing)


@dataclass(frozen=True)
class JointLikelihood(Objective):
    """Negative log-likelihood of the target and of masked inputs. It needs a `Posterior`.

    A model trained only to classify learns little about inputs that it does not see; here, its beliefs about the inputs
    that were masked for training are scored too.

    Parameters
    ----------
    weight : float
        The weight of the mean over all masked inputs.
    smoothing : float
        As for `Likelihood`.
    """

    weight: float = 1.0
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        _check_smoothing(self.smoothing)
        if not (isinstance(self.weight, Real) and 0 <= self.weight < math.inf):
            raise TrainingError(f"weight={self.weight!r}; expected a number >= 0")

    def check(self, predictor: nn.Module) -> None:
        require_posterior(self, predictor)

    def loss(self, predictor: Posterior, x: Tensor, y: Tensor, complete: Tensor | None = None) -> Tensor:
        require_posterior(self, predictor)
        encoding, target = predictor.encoding, predictor.target
        mrf = predictor.condition(x)
        layers = tuple(name for name in encoding.layers if self.weight and complete is not None and name in mrf.unary)
        log_probs = predictor.log_beliefs(mrf, (target, *layers))
        loss = nll(log_probs[target], y, self.smoothing)
        if complete is None or not layers:
            return loss
        masked = (x.isnan() & ~complete.isnan()).flatten(1)
        weights = encoding.split(masked * _sample_weights(y, log_probs[target]))
        truth = encoding(predictor.model, complete)
        cost = sum(_weighted_nll(log_probs[name], truth[name], weights[name]) for name in layers)
        in_each = _masked_in_each.get()
        entries = masked.sum().clamp(min=1) if in_each is None else in_each.clamp(min=1e-9) * len(x)
        return loss + self.weight * cost / entries


def nll(log_probs: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
    """Mean over samples of the summed negative log-likelihood of their known target nodes."""
    if y.is_floating_point():
        y = y.reshape(log_probs.shape).to(log_probs.dtype)
        y = y.masked_fill(y.isnan().any(-1, keepdim=True), 0)
        right, weight = (y * log_probs).sum(-1), y.sum(-1)
    elif smoothing == 0:
        total = nn.functional.nll_loss(log_probs.flatten(0, 1), y.flatten(), ignore_index=-1, reduction="sum")
        return total / len(log_probs)
    else:
        y = y.reshape(log_probs.shape[:2])
        weight = (y >= 0).to(log_probs.dtype)
        right = weight * log_probs.gather(-1, y.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    cost = -right if smoothing == 0 else -(1 - smoothing) * right - smoothing * weight * log_probs.mean(-1)
    return cost.sum(1).mean()


def require_posterior(objective: Objective, predictor: nn.Module) -> None:
    if not isinstance(predictor, Posterior):
        raise TrainingError(
            f"{type(objective).__name__} needs a Posterior, got {type(predictor).__name__}; use Likelihood for networks"
        )


def _check_smoothing(smoothing: float) -> None:
    check_share("smoothing", smoothing, error=TrainingError)


def _sample_weights(y: Tensor, log_probs: Tensor) -> Tensor | float:
    """How much each sample counts, `(B, 1)`: the mean weight of its targets, 1 where none is known."""
    if not y.is_floating_point():
        return 1.0
    return y.reshape(log_probs.shape).sum(-1).nanmean(1, keepdim=True).nan_to_num(1.0).to(log_probs.dtype)


def _weighted_nll(log_probs: Tensor, truth: Clamp, weights: Tensor) -> Tensor:
    """Sum of the negative log-likelihoods of nodes `(B, nodes, K)` by their `weights` `(B, nodes)`."""
    return -((truth.probs * log_probs).sum(-1) * weights).sum()
