"""A model as the last part of a neural network: features in, log-probabilities out, gradients through both."""

from __future__ import annotations

from torch import Tensor, nn

from torchlgm.errors import EvidenceError, InferenceError
from torchlgm.inference import Method, lbp, solve
from torchlgm.model import LGM
from torchlgm.mrf import Clamp
from torchlgm.ops.compact import probs

WAYS = ("evidence", "unary")


class Head(nn.Module):
    """Features enter at one layer of a model, beliefs about another one leave.

    `entering="evidence"` makes the features, through a sigmoid or softmax, probabilities that the layer was observed
    with: nothing that comes later changes them. `entering="unary"` adds them to the log-odds of the layer's nodes,
    which stay free: the rest of the model may overrule them.
    """

    def __init__(
        self,
        model: LGM,
        method: Method | None = None,
        layer: str = "pixels",
        target: str = "digit",
        entering: str = "evidence",
    ) -> None:
        super().__init__()
        if entering not in WAYS:
            raise InferenceError(f"entering={entering!r}; expected one of {', '.join(WAYS)}")
        self.model, self.method = model, method or lbp()
        self.layer, self.target, self.entering = layer, target, entering
        self.nodes, self.k = model.graph.layer(layer).nodes, model.graph.layer(layer).labels - 1
        model.graph.layer(target)

    def forward(self, features: Tensor) -> Tensor:
        """Log-odds of the labels 1 .. K-1 against label 0, `(B, nodes * (K-1))` in any shape -> log-probabilities of
        the target `(B, *shape, labels)`."""
        if features.dim() < 2 or features.shape[1:].numel() != self.nodes * self.k:
            raise EvidenceError(
                f"features shaped {tuple(features.shape)}; layer '{self.layer}' takes {self.nodes * self.k} for each "
                f"sample: {self.nodes} nodes with {self.k + 1} labels"
            )
        odds = features.reshape(len(features), self.nodes, self.k).to(next(self.model.parameters()).dtype)
        if self.entering == "evidence":
            mrf = self.model.condition({self.layer: Clamp(probs(odds))})
        else:
            mrf = self.model.condition()
            mrf = mrf._replace(evidence={self.layer: odds}, batch=len(odds))
        return solve(mrf, self.method, want=(self.target,))[self.target].log_probs
