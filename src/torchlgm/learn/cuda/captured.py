"""A trained model ready to answer again and again at a fixed batch size, without Python in between."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchlgm._utils.arrays import Array, as_tensor
from torchlgm._utils.validate import check_int
from torchlgm.errors import InferenceError
from torchlgm.learn.cuda.capture import capture
from torchlgm.learn.ensemble import answer_of
from torchlgm.learn.learner import Learner, evaluation
from torchlgm.model import LGM
from torchlgm.model.parameters import require_finite


class CapturedPredictor:
    """A trained predictor for batches of one size, for fast answers.

    On a GPU the forward pass is captured at the first call and replayed; it follows the weights of the model if they
    change. Inputs that come from the CPU are checked to be in [0, 1], or labels; those on a GPU are checked in the
    first call only. Elsewhere, this is a plain forward pass.

    Parameters
    ----------
    predictor : Module
        Maps inputs `(N, *shape)` to log-probabilities.
    batch_size : int
        More inputs go batch by batch, fewer are padded: 1 is best for latency, some thousands for throughput.
    capture : bool
        False for a plain forward pass.
    """

    def __init__(self, predictor: nn.Module, batch_size: int, capture: bool = True) -> None:
        self.predictor, self.batch_size = predictor, check_int("batch_size", batch_size, error=InferenceError)
        self.device = next(predictor.parameters()).device
        self.learner = Learner(predictor)
        self.captured = capture and self.device.type == "cuda" and self.learner.capturable
        self.models = [part for part in predictor.modules() if isinstance(part, LGM)]
        self.parameters = list(predictor.parameters())
        self.versions: list[int] = []  # of the parameters that were looked at
        self.asked = False
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs = self.outputs = torch.empty(0)  # of the graph

    def check(self, x: Tensor) -> None:
        """Raise EvidenceError for inputs out of range, InferenceError for parameters that are not finite."""
        self.learner.check_inputs(x)
        versions = [p._version for p in self.parameters if not p.is_inference()]
        if versions != self.versions:
            for model in self.models:
                require_finite(model)
            self.versions = versions

    def answer(self, x: Tensor) -> Tensor:
        return answer_of(self.predictor, x)

    def __call__(self, x: Array) -> Tensor:
        x = as_tensor("inputs", x)
        if len(x) == 0:
            raise InferenceError("no inputs; expected at least one")
        if x.device.type == "cpu" or not self.asked:
            self.check(x)
        self.asked = True
        with evaluation(self.predictor) if self.graph is None else torch.no_grad():
            if len(x) <= self.batch_size:
                return self._one(x.to(self.device))
            return torch.cat([self._one(part.to(self.device)) for part in x.split(self.batch_size)])

    def _one(self, x: Tensor) -> Tensor:
        if not self.captured:
            return self.answer(x)
        graph = self.graph or self._capture(x)
        if x.shape[1:] != self.inputs.shape[1:] or x.dtype != self.inputs.dtype:
            raise InferenceError(
                f"inputs shaped {tuple(x.shape[1:])} of {x.dtype}; served are {tuple(self.inputs.shape[1:])} of "
                f"{self.inputs.dtype}, as in the first call"
            )
        self.inputs[: len(x)].copy_(x)
        graph.replay()
        return self.outputs[: len(x)].clone()

    def _capture(self, x: Tensor) -> torch.cuda.CUDAGraph:
        self.inputs = x[:1].expand(self.batch_size, *x.shape[1:]).clone()

        def work() -> None:
            self.outputs = self.answer(self.inputs)

        self.graph = capture(work, torch.Generator(self.device))
        return self.graph


class CapturedMembers(CapturedPredictor):
    """Log-probabilities `(N, members or 1, nodes, K)` of each member of an ensemble, or of the only predictor.

    Parameters are not checked: a training looks at its loss.
    """

    def check(self, x: Tensor) -> None:
        self.learner.check_inputs(x)

    def answer(self, x: Tensor) -> Tensor:
        return self.learner.log_probs(x)
