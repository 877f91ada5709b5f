"""WHAT is minimised: objectives turn a model, inputs and targets into a loss. They know no optimiser.

Inputs are `(B, *shape)` with NaN for missing entries. Targets are labels `(B,)` or `(B, nodes)`, -1 for a missing one,
or probabilities `(B, nodes, K)`, NaN for a missing one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from numbers import Real
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from torchlgm._utils.tracing import is_traced
from torchlgm.errors import EvidenceError, GraphError, TrainingError
from torchlgm.inference import Exact, Method, solve
from torchlgm.inference.beliefs import Beliefs
from torchlgm.inference.methods import require_method
from torchlgm.inference.run import run
from torchlgm.layout import LEFT
from torchlgm.model import LGM
from torchlgm.mrf import MRF, Clamp
from torchlgm.ops.compact import full, one_hot
from torchlgm.ops.nll import label_nll
from torchlgm.spec import Graph, Layer


class Answers(Protocol):
    """What a question to a model needs: class probabilities `(B, nodes, K)` as logs."""

    def log_probs(self, model: Any, x: Tensor) -> Tensor: ...


@contextmanager
def answering(model: nn.Module) -> Iterator[None]:
    """A model as it answers: not in training mode, and without gradients."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


class Objective(Answers, Protocol):
    """What a trainer needs: a loss to descend, and answers to validate."""

    def loss(self, model: Any, x: Tensor, y: Tensor, whole: Tensor | None = None) -> Tensor:
        """`whole` are the inputs before some of them were hidden for training; None if none were."""
        ...


def looks_at_values(objective: Answers) -> bool:
    """Whether what it computes depends on values, so that it cannot be captured as a CUDA graph."""
    method = getattr(objective, "method", None)
    return isinstance(method, Exact) or (isinstance(method, Method) and method.tolerance is not None)


@dataclass(frozen=True)
class Inputs:
    """How raw inputs in [0, 1] become evidence for one layer.

    They are the means of binary nodes; for more labels they are cut into as many bins of equal width, and whole numbers
    (integer dtype) are labels already, of which none is missing. `missing=False` promises that no entry is NaN, which
    is several times as fast: nothing has to be told to the inputs.
    """

    layer: str = "pixels"
    _: KW_ONLY
    missing: bool = True

    def layer_in(self, graph: Graph) -> Layer:
        if self.layer not in graph.layer_names:
            raise GraphError(
                f"no layer '{self.layer}' for the inputs; the graph has {', '.join(graph.layer_names)}; name the one "
                "that takes them with learn.Inputs(...)"
            )
        return graph.layer(self.layer)

    def __call__(self, model: LGM, x: Tensor) -> dict[str, Clamp]:
        """Inputs `(B, *shape)` -> the clamp of the layer."""
        layer = self.layer_in(model.graph)
        if x.shape[1:].numel() != layer.nodes:
            raise EvidenceError(
                f"inputs shaped {tuple(x.shape[1:])} do not fit layer '{layer.name}', which is shaped {layer.sizes}"
            )
        dtype = model.unary[self.layer].dtype
        x = x.flatten(1)
        free = x.isnan() if self.missing and x.is_floating_point() else None
        if free is not None:
            x = x.masked_fill(free, 0)
        if layer.labels == 2:
            return {self.layer: Clamp(x.unsqueeze(-1).to(dtype), free)}
        if x.is_floating_point():
            x = (x * layer.labels).floor().clamp(max=layer.labels - 1)
        return {self.layer: Clamp(one_hot(x, layer.labels - 1, dtype), free)}


@dataclass(frozen=True)
class _ByInference:
    """An objective whose answers are beliefs about the target."""

    method: Method | Exact
    inputs: Inputs = Inputs()
    target: str = "digit"

    def log_probs(self, model: LGM, x: Tensor) -> Tensor:
        return target_log_probs(model.condition(self.inputs(model, x)), self.method, self.target)


@dataclass(frozen=True)
class Likelihood(_ByInference):
    """Negative log-likelihood of the target by backpropagation through inference (the paper's Algorithm 1).

    `smoothing` gives every wrong label the probability smoothing / K. The nodes of the target count as independent
    given the inputs.
    """

    smoothing: float = 0.0

    def __post_init__(self) -> None:
        _check_smoothing(self.smoothing)

    def loss(self, model: LGM, x: Tensor, y: Tensor, whole: Tensor | None = None) -> Tensor:
        del whole
        mrf = model.condition(self.inputs(model, x))
        if self.smoothing or y.is_floating_point() or isinstance(self.method, Exact):
            return nll(target_log_probs(mrf, self.method, self.target), y, self.smoothing)
        inflow = _inflow(mrf, self.method, self.target)
        return label_nll(inflow, mrf.unary[self.target], y.reshape(inflow.shape[:2]))


def target_log_probs(mrf: MRF, method: Method | Exact, target: str) -> Tensor:
    """log of the target's beliefs `(B, nodes, K)`."""
    return _log_probs(mrf, method, target)[target]


def _log_probs(mrf: MRF, method: Method | Exact, target: str, *others: str) -> dict[str, Tensor]:
    """log of the beliefs about the target and other layers with free nodes, `(B, nodes, K)` each."""
    _require(method, mrf, target)
    want = (target, *others)
    if isinstance(method, Exact):
        answer = solve(mrf, method)
        return {name: answer[name].log_probs.flatten(1, -2) for name in want}
    beliefs = run(mrf, method, want=want).beliefs
    return {name: torch.log_softmax(full(beliefs[name]), -1).expand(mrf.batch, -1, -1) for name in want}


def _inflow(mrf: MRF, method: Method, target: str) -> Tensor:
    """What others tell the target about its labels, as log-odds `(B, nodes, K-1)`."""
    _require(method, mrf, target)
    return run(mrf, method, want=(target,), own=False).beliefs[target].expand(mrf.batch, -1, -1)


def _require(method: Method | Exact, mrf: MRF, target: str) -> None:
    require_method(method)
    if target not in mrf.unary:
        known = ", ".join(mrf.unary)
        raise TrainingError(
            f"target '{target}' is not a layer with free nodes; expected one of {known}; name it with target=..."
        )


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


def _check_smoothing(smoothing: float) -> None:
    if not 0 <= smoothing <= 1:
        raise TrainingError(f"smoothing={smoothing!r}; expected 0 <= smoothing <= 1")


@dataclass(frozen=True)
class ClassAndInputs(_ByInference):
    """Negative log-likelihood of the target, plus `weight` times that of a hidden input, the mean over all hidden ones.

    A model that is only trained to classify learns little about inputs that it does not see. Here, its beliefs about
    the inputs that were hidden for training are scored too.
    """

    smoothing: float = 0.0
    weight: float = 1.0

    def __post_init__(self) -> None:
        _check_smoothing(self.smoothing)
        if not (isinstance(self.weight, Real) and 0 <= self.weight < math.inf):
            raise TrainingError(f"weight={self.weight!r}; expected a number >= 0")

    def loss(self, model: LGM, x: Tensor, y: Tensor, whole: Tensor | None = None) -> Tensor:
        mrf, layer = model.condition(self.inputs(model, x)), self.inputs.layer
        others = () if whole is None or layer not in mrf.unary else (layer,)
        log_probs = _log_probs(mrf, self.method, self.target, *others)
        loss = nll(log_probs[self.target], y, self.smoothing)
        if whole is None or not others:
            return loss
        asked = (x.isnan() & ~whole.isnan()).flatten(1)
        truth = self.inputs(model, whole)[layer]
        cost = hidden_cost(log_probs[layer], truth, asked * _weights(y, log_probs[self.target]))
        return loss + self.weight * cost / asked.sum().clamp(min=1)


def _weights(y: Tensor, log_probs: Tensor) -> Tensor | float:
    """How much each sample counts, `(B, 1)`: the mean weight of its targets, 1 where none is known."""
    if not y.is_floating_point():
        return 1.0
    return y.reshape(log_probs.shape).sum(-1).nanmean(1, keepdim=True).nan_to_num(1.0).to(log_probs.dtype)


def hidden_cost(log_probs: Tensor, truth: Clamp, weights: Tensor) -> Tensor:
    """Sum of the negative log-likelihoods of hidden nodes `(B, nodes, K)` by their `weights` `(B, nodes)`."""
    return -((truth.probs * log_probs).sum(-1) * weights).sum()


@dataclass(frozen=True)
class Moments(_ByInference):
    """The analytic gradient: dNLL/dE(x) = P(x | evidence and target) - P(x | evidence), from any method.

    Its gradient is the difference of the two expectations, and nothing is differentiated through inference. The value
    of the loss is the negative log-likelihood of each target node; with several of them the gradient is that of all
    nodes jointly.
    """

    def __post_init__(self) -> None:
        if isinstance(self.method, Method) and not self.method.rule.divide_by_rho:
            raise TrainingError("no analytic gradient is known for trw(divide_by_rho=False); use trw(), or Likelihood")

    def loss(self, model: LGM, x: Tensor, y: Tensor, whole: Tensor | None = None) -> Tensor:
        del whole
        if y.is_floating_point():
            raise TrainingError("the analytic gradient needs labels as targets, not probabilities; use Likelihood")
        seen = self.inputs(model, x)
        layer = model.graph.layer(self.target)
        y = y.reshape(len(y), layer.nodes)
        unknown = y < 0
        free = unknown if is_traced(y) or bool(unknown.any()) else None
        target = Clamp(one_hot(y, layer.labels - 1, model.unary[self.target].dtype), free)
        with torch.no_grad():
            before = solve(model.condition(seen), self.method)
            after = solve(model.condition({**seen, self.target: target}), self.method)
            value = nll(before[self.target].log_probs.flatten(1, -2), y)
            free, clamped = Expectations.of(before), Expectations.of(after)
        surrogate = clamped.energy(model) - free.energy(model)
        return surrogate - surrogate.detach() + value


@dataclass
class Expectations:
    """What beliefs expect of labels other than 0: of every node, and of edges whose ends they hold for dependent."""

    mrf: MRF
    nodes: dict[str, Tensor]  # (B, nodes, labels - 1)
    edges: dict[str, Tensor]  # (*edge, left labels - 1, right labels - 1), mean over the batch

    @classmethod
    def of(cls, beliefs: Beliefs) -> Expectations:
        nodes = {name: beliefs[name].probs.flatten(1, -2)[..., 1:] for name in beliefs}
        edges = {link.name: beliefs.edges(link.name)[..., 1:, 1:].mean(0) for link in beliefs.mrf.links}
        return cls(beliefs.mrf, nodes, edges)

    def energy(self, model: LGM) -> Tensor:
        """Its mean over the batch, differentiable in the energies."""
        total = torch.zeros((), device=self.mrf.like.device, dtype=self.mrf.like.dtype)
        for name, probs in self.nodes.items():
            total = total + (model.unary[name] * probs.mean(0)).sum()
        for link in (*self.mrf.links, *self.mrf.observed_links):
            if link.name in self.edges:
                total = total + (link.layout.expand(model.energies(link.name)) * self.edges[link.name]).sum()
            else:
                here = link.layout.linear(model.energies(link.name), self.nodes[link.left], LEFT)
                total = total + (here * self.nodes[link.right]).sum((1, 2)).mean()
        return total


@dataclass(frozen=True)
class NetworkLikelihood:
    """Negative log-likelihood of a module that maps inputs to logits `(B, K)`: for the neural baselines."""

    smoothing: float = 0.0

    def __post_init__(self) -> None:
        _check_smoothing(self.smoothing)

    def loss(self, model: nn.Module, x: Tensor, y: Tensor, whole: Tensor | None = None) -> Tensor:
        del whole
        return nll(self.log_probs(model, x), y, self.smoothing)

    def log_probs(self, model: nn.Module, x: Tensor) -> Tensor:
        return torch.log_softmax(model(x), -1).unsqueeze(1)
