"""Dropout for networks and for layered graphical models, of inputs and of the last hidden layer."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from torchlgm import Posterior, learn
from torchlgm.learn.objectives import nll
from torchlgm.mrf import pin


def with_dropout(network: nn.Sequential, inputs: float, hidden: float) -> nn.Sequential:
    """The network with dropout after its first module, which fills in missing inputs, and before its last one."""
    first, *others, last = network
    return nn.Sequential(first, *_dropout(inputs), *others, *_dropout(hidden), last)


def _dropout(rate: float) -> list[nn.Module]:
    return [nn.Dropout(rate)] if rate else []


@dataclass(frozen=True)
class DropoutLikelihood(learn.Likelihood):
    """The likelihood of the class with some inputs and hidden nodes left out, others in each sample.

    A hidden node that is left out is pinned to the label whose energies are 0, so it tells the class nothing. What is
    left counts for as much more, as in networks: inputs are divided by the share that is kept, and so are the
    log-probabilities of the class, which are sums over the hidden nodes. Networks have dropout of their own, and both
    rates are 0.
    """

    capturable = False  # trainings in other threads would draw from the same generator
    inputs: float = 0.0
    hidden: float = 0.0

    def loss(self, predictor: Any, x: Tensor, y: Tensor, complete: Tensor | None = None) -> Tensor:
        if self.inputs:
            x = nn.functional.dropout(x, self.inputs)
        if not self.hidden:
            return super().loss(predictor, x, y, complete)
        mrf, name = predictor.condition(x), _last_hidden(predictor)
        free = torch.rand((mrf.batch, mrf.unary[name].shape[1]), device=x.device) >= self.hidden
        mrf = mrf._replace(unary={**mrf.unary, name: pin(mrf.unary[name], free)})
        log_probs = predictor.log_beliefs(mrf, (predictor.target,))[predictor.target] / (1 - self.hidden)
        return nll(log_probs.log_softmax(-1), y, self.smoothing)


def _last_hidden(predictor: Posterior) -> str:
    graph = predictor.model.graph
    return next(c.left for c in graph.connections if c.right == predictor.target)
