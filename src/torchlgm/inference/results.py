"""The results of message passing and of exact inference: what `Beliefs` reads."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from torchlgm._utils.tracing import is_traced
from torchlgm.errors import InferenceError
from torchlgm.inference import elimination
from torchlgm.inference.beliefs import InferenceResult, finite_log
from torchlgm.inference.methods import Exact, Method
from torchlgm.inference.rules import LogZ, Outcome
from torchlgm.inference.sampling import conditional
from torchlgm.mrf import MRF
from torchlgm.ops.compact import full

MAX_ROUNDS = 20  # of coordinate descent over the layers


class MessagePassingResult(InferenceResult):
    def __init__(self, mrf: MRF, method: Method, outcome: Outcome) -> None:
        self.mrf = mrf
        self.method = method
        self.outcome = outcome
        count = outcome.iterations
        self.iterations = torch.full((mrf.batch,), count, device=mrf.like.device) if isinstance(count, int) else count
        self.residual = outcome.residual
        self.messages = outcome.messages
        self.layers = frozenset(outcome.beliefs)
        self.converged = None if outcome.residual is None else outcome.residual <= self._tolerance

    @property
    def _tolerance(self) -> float:
        return self.method.tolerance or torch.finfo(self.mrf.like.dtype).eps ** 0.5

    def _require_all_layers(self, what: str) -> None:
        if self.outcome.residual is None or self.layers != frozenset(self.mrf.unary):
            raise InferenceError(f"{what} needs the beliefs of all layers: leave want= out")

    def probs(self, layer: str) -> Tensor:
        return torch.softmax(full(self.outcome.beliefs[layer]), -1)

    def log_probs(self, layer: str) -> Tensor:
        return torch.log_softmax(full(self.outcome.beliefs[layer]), -1)

    def edge_probs(self, link: int) -> Tensor:
        self._require_all_layers("an edge belief")
        return self.method.rule.edge_probs(self.mrf, self.outcome, link)

    def log_z(self) -> LogZ:
        self._require_all_layers("log Z")
        assert self.converged is not None
        all_sent = len(self.messages) == 2 * len(self.mrf.links)
        return self.method.rule.log_z(self.mrf, self.outcome, self.converged & all_sent)

    def map(self) -> dict[str, Tensor]:
        if not self.method.rule.maximise:
            raise InferenceError("map() needs max-product or exact inference: use product='max' or exact()")
        self._require_all_layers("map()")
        with torch.no_grad():
            labels = {name: full(b).argmax(-1).expand(self.mrf.batch, -1) for name, b in self.outcome.beliefs.items()}
            return _coordinate_descent(self.mrf, labels)


def _coordinate_descent(mrf: MRF, labels: dict[str, Tensor]) -> dict[str, Tensor]:
    """Set layer after layer, colour by colour inside one, to its best labels given the others, as long as that lowers
    the energy.

    The best labels of single nodes need not fit together where several labellings are equally good.
    """
    for _ in range(MAX_ROUNDS):
        before = labels
        for layer in mrf.unary:
            for part in mrf.parts(layer):
                odds = full(conditional(mrf, layer, labels))
                current = odds.gather(-1, labels[layer].unsqueeze(-1)).squeeze(-1)
                best, best_label = odds.max(-1)
                better = best > current if part is None else (best > current) & part
                labels = labels | {layer: torch.where(better, best_label, labels[layer])}
        if not is_traced(mrf.like) and all(torch.equal(labels[layer], before[layer]) for layer in labels):
            break
    return labels


class ExactResult(InferenceResult):
    def __init__(self, mrf: MRF, method: Exact) -> None:
        self.mrf = mrf
        self.method = method
        self.iterations = torch.zeros(mrf.batch, dtype=torch.long, device=mrf.like.device)
        self.residual = mrf.like.new_zeros(mrf.batch)
        self.converged = mrf.like.new_ones(mrf.batch, dtype=torch.bool)
        self.messages = {}
        self.layers = frozenset(mrf.unary)

    @cached_property
    def _solution(self) -> tuple[Tensor, elimination.Potentials]:
        if self.method.by == "enumeration":
            return elimination.enumerated_marginals(self.mrf, self.method.limit)
        return elimination.marginals(self.mrf, self.method.limit)

    def probs(self, layer: str) -> Tensor:
        return self._solution[1].nodes[layer]

    def log_probs(self, layer: str) -> Tensor:
        return finite_log(self.probs(layer))

    def edge_probs(self, link: int) -> Tensor:
        return self._edge_solution[1].edges[link]

    @cached_property
    def _edge_solution(self) -> tuple[Tensor, elimination.Potentials]:
        return elimination.marginals(self.mrf, self.method.limit, edges=True)

    def log_z(self) -> LogZ:
        value = self._solution[0]
        return LogZ(value, value, value)

    def map(self) -> dict[str, Tensor]:
        with torch.no_grad():
            pot = elimination.potentials(self.mrf)
            _, trail = elimination.eliminate(self.mrf, pot, self.method.limit, maximise=True)
            return elimination.best_labels(self.mrf, trail)
