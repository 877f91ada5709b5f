"""To classify and to fill in what is missing, both at once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from torchlgm.infer import Method
from torchlgm.infer.run import run
from torchlgm.learn import Inputs
from torchlgm.learn.objectives import nll, target_log_probs
from torchlgm.model import LGM
from torchlgm.ops.compact import full


@dataclass(frozen=True)
class ClassAndInputs:
    """Negative log-likelihood of the target, plus `weight` times that of an input, the mean over inputs.

    A classifier learns nothing about inputs that it does not see. So a `share` of the inputs that are seen is hidden as
    well, and the beliefs about these are scored too.
    """

    method: Method
    inputs: Inputs
    target: str
    smoothing: float = 0.0
    weight: float = 1.0
    share: float = 0.2

    def loss(self, model: LGM, x: Tensor, y: Tensor) -> Tensor:
        asked = _scattered(x, self.share) & ~x.isnan()
        mrf = model.condition(self.inputs(model, x.masked_fill(asked, math.nan)))
        beliefs = run(mrf, self.method, want=(self.target, self.inputs.layer)).beliefs
        log_probs = {name: torch.log_softmax(full(b), -1).expand(mrf.batch, -1, -1) for name, b in beliefs.items()}
        truth = self.inputs(model, x)[self.inputs.layer].q
        truth = torch.cat([1 - truth.sum(-1, keepdim=True), truth], -1)
        cost = -(truth * log_probs[self.inputs.layer]).sum(-1) * asked.flatten(1)
        filling = cost.sum() / asked.sum().clamp(min=1)
        return nll(log_probs[self.target], y, self.smoothing) + self.weight * filling

    def log_probs(self, model: LGM, x: Tensor) -> Tensor:
        return target_log_probs(model.condition(self.inputs(model, x)), self.method, self.target)


def _scattered(x: Tensor, share: float) -> Tensor:
    """A mask, broadcastable to `x`, of about `share` of the entries of each sample; channels of a pixel go together.

    It is a hash of what the sample shows, so a training that hides entries at random draws a new one each time, and one
    that is resumed draws the same.
    """
    shape = (len(x), 1, *x.shape[2:]) if x.dim() == 4 else x.shape
    shown = (x.flatten(1).double() + 1).nan_to_num(0)
    key = shown @ (0.7548776662 * _count(shown[0])).sin()
    place = _count(torch.empty(shape[1:], device=x.device))
    noise = ((12.9898 * place + 78.233 * key.unsqueeze(1)).sin() * 43758.5453) % 1
    return (noise < share).reshape(shape)


def _count(entries: Tensor) -> Tensor:
    return torch.arange(entries.numel(), dtype=torch.float64, device=entries.device)
