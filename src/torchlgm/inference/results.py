"""The answers of the approximate and of the exact methods."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from torchlgm._utils.tracing import is_traced
from torchlgm.errors import InferenceError
from torchlgm.inference import elimination
from torchlgm.inference.beliefs import Answer, LogZ, finite_log
from torchlgm.inference.engine import Outcome
from torchlgm.inference.free_energy import cavities, log_z
from torchlgm.inference.methods import Exact, Method
from torchlgm.inference.rules import BeliefPropagation, MeanField
from torchlgm.inference.sampling import conditional
from torchlgm.layout import LEFT, RIGHT
from torchlgm.mrf import MRF
from torchlgm.ops.compact import full
from torchlgm.ops.eager import full_joint

MOST_ROUNDS = 20  # over the layers, to lower the energy of a labelling


class ApproximateAnswer(Answer):
    def __init__(self, mrf: MRF, method: Method, outcome: Outcome) -> None:
        self.mrf = mrf
        self.method = method
        self.outcome = outcome
        made = outcome.iterations
        self.iterations = torch.full((mrf.batch,), made, device=mrf.like.device) if isinstance(made, int) else made
        self.residual = outcome.residual
        self.messages = outcome.messages
        self.layers = frozenset(outcome.beliefs)
        self.converged = None if outcome.residual is None else outcome.residual <= self._tolerance

    @property
    def _tolerance(self) -> float:
        return self.method.tolerance or torch.finfo(self.mrf.like.dtype).eps ** 0.5

    def _need_everything(self, what: str) -> None:
        if self.outcome.residual is None or self.layers != frozenset(self.mrf.unary):
            raise InferenceError(f"{what} needs the beliefs of all layers: leave want= out")

    def probs(self, layer: str) -> Tensor:
        return torch.softmax(full(self.outcome.beliefs[layer]), -1)

    def log_probs(self, layer: str) -> Tensor:
        return torch.log_softmax(full(self.outcome.beliefs[layer]), -1)

    def edge_probs(self, link: int) -> Tensor:
        self._need_everything("an edge belief")
        ends = self.mrf.links[link]
        if isinstance(self.method.rule, MeanField):
            left = ends.layout.gather(self.probs(ends.left), LEFT)
            right = ends.layout.gather(self.probs(ends.right), RIGHT)
            return left.unsqueeze(-1) * right.unsqueeze(-2)
        if not isinstance(self.method.rule, BeliefPropagation):
            raise InferenceError(f"no edge beliefs are known for the rule {self.method.rule}")
        t = self.method.rule.prepare(ends).t
        joint = full_joint(t, *cavities(self.mrf, self.outcome, link))
        return torch.softmax(joint.flatten(-2), -1).unflatten(-1, joint.shape[-2:])

    def log_z(self) -> LogZ:
        self._need_everything("log Z")
        rule = self.method.rule
        if not isinstance(rule, MeanField | BeliefPropagation):
            raise InferenceError(f"no log Z is known for the rule {rule}")
        if isinstance(rule, BeliefPropagation) and rule.maximise:
            raise InferenceError("max-product has no log Z; use product='sum', or best() for the least energy")
        if isinstance(rule, BeliefPropagation) and not rule.divided:
            raise InferenceError("no log Z is known for trw(divided=False); use trw() for an upper bound, or lbp()")
        value = log_z(self.mrf, self.method, self.outcome)
        if isinstance(rule, MeanField):
            return LogZ(value, value, None)
        if not rule.reweighted:
            return LogZ(value, None, None)
        assert self.converged is not None
        sent = len(self.messages) == 2 * len(self.mrf.links)  # a fixed point is one of all messages
        return LogZ(value, None, torch.where(self.converged & sent, value, torch.inf))

    def best(self) -> dict[str, Tensor]:
        rule = self.method.rule
        if not (isinstance(rule, BeliefPropagation) and rule.maximise):
            raise InferenceError("best() needs max-product or exact inference: use product='max' or exact()")
        self._need_everything("best()")
        with torch.no_grad():
            alone = {name: full(b).argmax(-1).expand(self.mrf.batch, -1) for name, b in self.outcome.beliefs.items()}
            return _lowered(self.mrf, alone)


def _lowered(mrf: MRF, labels: dict[str, Tensor]) -> dict[str, Tensor]:
    """The labels, layer by layer changed to the best ones given the others, as long as that lowers the energy.

    The best labels of single nodes need not go together where several labellings are equally good.
    """
    for _ in range(MOST_ROUNDS):
        before = labels
        for layer in mrf.unary:
            odds = full(conditional(mrf, layer, labels))
            now = odds.gather(-1, labels[layer].unsqueeze(-1)).squeeze(-1)
            best, where = odds.max(-1)
            labels = labels | {layer: torch.where(best > now, where, labels[layer])}
        if not is_traced(mrf.like) and all(torch.equal(labels[layer], before[layer]) for layer in labels):
            break
    return labels


class ExactAnswer(Answer):
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

    def best(self) -> dict[str, Tensor]:
        with torch.no_grad():
            pot = elimination.potentials(self.mrf)
            _, trail = elimination.eliminate(self.mrf, pot, self.method.limit, maximise=True)
            return elimination.best_labels(self.mrf, trail)
