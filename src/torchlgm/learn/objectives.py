"""WHAT is minimised: objectives turn a model, inputs and targets into a loss. They know no optimiser.

Inputs are `(B, *shape)` with NaN for missing entries. Targets are labels `(B,)` or `(B, nodes)`, -1 for a missing one,
or probabilities `(B, nodes, K)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from torchlgm.errors import TrainingError
from torchlgm.infer import Exact, Method, solve
from torchlgm.infer.beliefs import Beliefs
from torchlgm.infer.run import run
from torchlgm.layout import LEFT
from torchlgm.model import LGM
from torchlgm.mrf import MRF, Clamp
from torchlgm.ops.compact import full, one_hot


class Objective(Protocol):
    """What a trainer needs: a loss to descend, and class probabilities `(B, nodes, K)` as logs to validate."""

    def loss(self, model: Any, x: Tensor, y: Tensor) -> Tensor: ...

    def log_probs(self, model: Any, x: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Inputs:
    """How raw inputs become evidence for one layer: soft values of binary nodes, or labels if there are more.

    `missing=False` promises that no entry is NaN, which is faster.
    """

    layer: str = "pixels"
    labels: int = 2
    missing: bool = True

    def __call__(self, x: Tensor) -> Mapping[str, Clamp]:
        x = x.flatten(1)
        free = x.isnan() if self.missing else None
        if free is not None:
            x = x.masked_fill(free, 0)
        q = x.unsqueeze(-1) if self.labels == 2 else one_hot(x, self.labels - 1, x.dtype)
        return {self.layer: Clamp(q, free)}


@dataclass(frozen=True)
class Likelihood:
    """Negative log-likelihood of the target by backpropagation through inference (the paper's Algorithm 1).

    `smoothing` gives every wrong label the probability smoothing / K.
    """

    method: Method | Exact
    inputs: Inputs = Inputs()
    target: str = "digit"
    smoothing: float = 0.0

    def loss(self, model: LGM, x: Tensor, y: Tensor) -> Tensor:
        return nll(self.log_probs(model, x), y, self.smoothing)

    def log_probs(self, model: LGM, x: Tensor) -> Tensor:
        return target_log_probs(model.condition(self.inputs(x)), self.method, self.target)


def target_log_probs(mrf: MRF, method: Method | Exact, target: str) -> Tensor:
    """log of the target's beliefs `(B, nodes, K)`."""
    if isinstance(method, Exact):
        return solve(mrf, method)[target].log_probs.flatten(1, -2)
    belief = run(mrf, method, want=(target,)).beliefs[target]
    return torch.log_softmax(full(belief), -1).expand(mrf.batch, -1, -1)


def nll(log_probs: Tensor, y: Tensor, smoothing: float = 0.0) -> Tensor:
    """Mean over samples of the summed negative log-likelihood of their known target nodes."""
    if y.is_floating_point():
        return -(y.reshape(log_probs.shape) * log_probs).sum((1, 2)).mean()
    y = y.reshape(log_probs.shape[:2])
    known = y >= 0
    right = log_probs.gather(-1, y.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    cost = -(1 - smoothing) * right - smoothing * log_probs.mean(-1)
    return (cost * known).sum(1).mean()


@dataclass(frozen=True)
class Moments:
    """The analytic gradient: dNLL/dE(x) = P(x | evidence and target) - P(x | evidence), from any method.

    The value of the loss is the negative log-likelihood; its gradient is the difference of the two expectations,
    and nothing is differentiated through inference.
    """

    method: Method | Exact
    inputs: Inputs = Inputs()
    target: str = "digit"

    def loss(self, model: LGM, x: Tensor, y: Tensor) -> Tensor:
        if y.is_floating_point() or bool((y < 0).any()):
            raise TrainingError("the analytic gradient needs hard, complete targets")
        seen = dict(self.inputs(x))
        k = model.graph.layer(self.target).labels - 1
        target = Clamp(one_hot(y.reshape(len(y), -1), k, x.dtype))
        with torch.no_grad():
            free = solve(model.condition(seen), self.method)
            clamped = solve(model.condition({**seen, self.target: target}), self.method)
            value = nll(free[self.target].log_probs.flatten(1, -2), y)
        surrogate = expected_energy(model, clamped) - expected_energy(model, free)
        return surrogate - surrogate.detach() + value

    def log_probs(self, model: LGM, x: Tensor) -> Tensor:
        return target_log_probs(model.condition(self.inputs(x)), self.method, self.target)


def expected_energy(model: LGM, beliefs: Beliefs) -> Tensor:
    """Mean over the batch of the energy expected under `beliefs`, differentiable in the energies alone."""
    with torch.no_grad():
        q = {name: beliefs[name].probs.flatten(1, -2)[..., 1:] for name in beliefs}
        edges = {link.name: beliefs.edges(link.name)[..., 1:, 1:].mean(0) for link in beliefs.mrf.links}
    total = torch.zeros((), device=beliefs.mrf.constant.device, dtype=beliefs.mrf.constant.dtype)
    for name, probs in q.items():
        total = total + (model.unary[name] * probs.mean(0)).sum()
    for link in beliefs.mrf.links:
        total = total + (link.layout.expand(model.energies(link.name)) * edges[link.name]).sum()
    for link in beliefs.mrf.settled:
        here = link.layout.linear(model.energies(link.name), q[link.left], LEFT)
        total = total + (here * q[link.right]).sum((1, 2)).mean()
    return total


@dataclass(frozen=True)
class NetworkLikelihood:
    """Negative log-likelihood of a module that maps inputs to logits `(B, K)`: for the neural baselines."""

    smoothing: float = 0.0

    def loss(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return nll(self.log_probs(model, x), y, self.smoothing)

    def log_probs(self, model: nn.Module, x: Tensor) -> Tensor:
        return torch.log_softmax(model(x), -1).unsqueeze(1)
