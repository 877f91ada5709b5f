"""The analytic gradient: a difference of expectations, with nothing differentiated through inference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from torchlgm._utils.tracing import is_traced
from torchlgm.errors import TrainingError
from torchlgm.inference import Beliefs, Method, solve
from torchlgm.layout import LEFT
from torchlgm.learn.objectives import Objective, nll, require_posterior
from torchlgm.model import LGM
from torchlgm.mrf import MRF, Clamp
from torchlgm.ops.compact import one_hot
from torchlgm.posterior import Posterior


@dataclass(frozen=True)
class MomentMatching(Objective):
    """The analytic gradient: dNLL/dE(x) = P(x | evidence and target) - P(x | evidence), from any method.

    Its gradient is the difference of the two expectations, and nothing is differentiated through inference. The value
    of the loss is the negative log-likelihood of each target node; with several of them the gradient is that of all
    nodes jointly. It needs a `Posterior`.
    """

    def check(self, predictor: nn.Module) -> None:
        require_posterior(self, predictor)
        if isinstance(predictor.method, Method) and not predictor.method.rule.divide_by_rho:
            raise TrainingError("no analytic gradient is known for trw(divide_by_rho=False); use trw(), or Likelihood")

    def loss(self, predictor: Posterior, x: Tensor, y: Tensor, complete: Tensor | None = None) -> Tensor:
        del complete
        self.check(predictor)
        if y.is_floating_point():
            raise TrainingError("the analytic gradient needs labels as targets, not probabilities; use Likelihood")
        model, target = predictor.model, predictor.target
        seen = predictor.encoding(model, x)
        labels = _target_clamp(model, target, y)
        with torch.no_grad():
            before = solve(model.absorb(seen), predictor.method)
            after = solve(model.absorb({**seen, target: labels}), predictor.method)
            value = nll(before[target].log_probs.flatten(1, -2), y)
            free, clamped = Expectations.of(before), Expectations.of(after)
        surrogate = clamped.energy(model) - free.energy(model)
        return surrogate - surrogate.detach() + value


def _target_clamp(model: LGM, target: str, y: Tensor) -> Clamp:
    layer = model.graph.layer(target)
    y = y.reshape(len(y), layer.nodes)
    unknown = y < 0
    free = unknown if is_traced(y) or bool(unknown.any()) else None
    return Clamp(one_hot(y, layer.labels - 1, model.unary[target].dtype), free)


@dataclass
class Expectations:
    """What beliefs expect of labels other than 0: of every node, and of edges whose ends depend on each other."""

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
            layout: Any = model.layouts[link.name]
            if link.name in self.edges:
                total = total + (layout.expand(model.energies(link.name)) * self.edges[link.name]).sum()
            else:
                field = layout.linear(model.energies(link.name), self.nodes[link.left], LEFT)
                total = total + (field * self.nodes[link.right]).sum((1, 2)).mean()
        return total
