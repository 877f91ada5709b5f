"""A model as the last part of a neural network: features in, log-probabilities out, gradients through both."""

from __future__ import annotations

from torch import Tensor, nn

from torchlgm.errors import EvidenceError, InferenceError
from torchlgm.mrf import Clamp
from torchlgm.ops import probs
from torchlgm.posterior import Posterior

WAYS = ("evidence", "unary")


class Head(nn.Module):
    """A model as the last part of a neural network: features go in, log-probabilities of the target come out.

    Parameters
    ----------
    posterior : Posterior
        Features enter at the layer that takes its inputs.
    entering : {"evidence", "unary"}
        `"evidence"` turns features, through a sigmoid or softmax, into probabilities with which the layer is observed,
        and which the rest of the model cannot change. `"unary"` adds them to the log-odds of the nodes, which stay
        free.
    """

    def __init__(self, posterior: Posterior, entering: str = "evidence") -> None:
        super().__init__()
        if entering not in WAYS:
            raise InferenceError(f"entering={entering!r}; expected one of {', '.join(WAYS)}")
        if not isinstance(posterior, Posterior):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InferenceError(
                f"a head is made of a Posterior, not {type(posterior).__name__}: Head(Posterior(model))"
            )
        self.posterior, self.entering = posterior, entering
        self.layer, *others = posterior.encoding.layers
        if others:
            raise InferenceError(f"features enter at one layer, but the posterior's inputs at '{self.layer}', {others}")
        layer = posterior.model.graph.layer(self.layer)
        self.nodes, self.k = layer.nodes, layer.labels - 1

    def forward(self, features: Tensor) -> Tensor:
        """Log-odds of the labels 1 .. K-1 against label 0, `(B, nodes * (K-1))` in any shape -> log-probabilities
        `(B, K)` of a target of one node, else `(B, *target shape, K)`."""
        if features.dim() < 2 or features.shape[1:].numel() != self.nodes * self.k:
            raise EvidenceError(
                f"features shaped {tuple(features.shape)}; layer '{self.layer}' takes {self.nodes * self.k} for each "
                f"sample: {self.nodes} nodes with {self.k + 1} labels"
            )
        posterior = self.posterior
        model, target = posterior.model, posterior.target
        odds = features.reshape(len(features), self.nodes, self.k).to(model.unary[self.layer].dtype)
        if self.entering == "evidence":
            mrf = model.condition({self.layer: Clamp(probs(odds))})
        else:
            mrf = model.condition()
            mrf = mrf._replace(evidence={self.layer: odds}, batch=len(odds))
        return posterior.log_beliefs(mrf, (target,))[target].reshape(len(odds), *posterior.target_shape)
