"""Belief propagation: sum-product and max-product, plain and tree-reweighted, with the Bethe value of log Z."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from torchlgm._utils.tracing import is_traced
from torchlgm.errors import InferenceError
from torchlgm.inference.rules.base import LogZ, Message, Outcome, Prepared, Rule, cavities
from torchlgm.layout import LEFT, RIGHT
from torchlgm.mrf import MRF, Link
from torchlgm.ops.compact import log_norm
from torchlgm.ops.eager import full_joint, max_message, spread_limit, sum_message
from torchlgm.ops.send import send_sum


@dataclass(frozen=True)
class BeliefPropagation(Rule):
    """`m_ij = lse_xi(-E_ij/rho + c) - lse_xi(c)` with `c = b_i - m_ji`; `b_j = -E_j + sum_i rho_ij m_ij`.

    rho = 1 is loopy belief propagation, `reweighted` takes the link's rho (TRW), `maximise` puts max for lse. Without
    `divide_by_rho`, messages take E instead of E / rho.
    """

    uses_reverse: ClassVar[bool] = True
    reweighted: bool = False
    maximise: bool = False
    divide_by_rho: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.divide_by_rho, bool):
            raise InferenceError(f"divide_by_rho={self.divide_by_rho!r}; expected True or False")
        if not self.divide_by_rho and not self.reweighted:
            raise InferenceError(
                "divide_by_rho=False is for reweighted messages: without rho there is nothing to divide by"
            )

    @property
    def kernel_mode(self) -> Literal["sum", "max"] | None:
        if type(self) is not BeliefPropagation:  # a subclass may send other messages
            return None
        return "max" if self.maximise else "sum"

    @property
    def name(self) -> str:
        if type(self) is not BeliefPropagation:
            return ""
        return "trw" if self.reweighted else "lbp"

    @property
    def options(self) -> dict[str, object]:
        options: dict[str, object] = {"product": "max"} if self.maximise else {}
        return options if self.divide_by_rho else {**options, "divide_by_rho": False}

    def prepare(self, link: Link) -> Prepared:
        t = link.layout.expand(link.table * -link.scale)
        rho = None
        if self.reweighted:
            rho = link.rho.unsqueeze(-1)
            t = t / rho.unsqueeze(-1) if self.divide_by_rho else t
        return Prepared(link.layout, t, rho, not self.maximise and _is_small(t))

    def send(self, link: Prepared, side: int, belief: Tensor, reverse: Tensor | None) -> Message:
        t = link.t if side != RIGHT else link.t.transpose(-1, -2)
        if not self.maximise:
            return Message(*send_sum(link.layout, side, t, link.rho, belief, reverse, link.small))
        edges = max_message(t, link.layout.gather(belief, side), reverse)
        weighted = edges if link.rho is None else edges * link.rho
        return Message(edges, link.layout.scatter(weighted, 1 - side))

    def log_z(self, mrf: MRF, outcome: Outcome, fixed: Tensor) -> LogZ:
        """The (reweighted) Bethe value; reweighted, an upper bound at a fixed point."""
        if self.maximise:
            raise InferenceError("max-product has no log Z; use product='sum', or map() for the least energy")
        if not self.divide_by_rho:
            raise InferenceError(
                "no log Z is known for trw(divide_by_rho=False); use trw() for an upper bound, or lbp()"
            )
        value = self._bethe(mrf, outcome).expand(mrf.batch)
        return LogZ(value, upper=torch.where(fixed, value, torch.inf) if self.reweighted else None)

    def _bethe(self, mrf: MRF, outcome: Outcome) -> Tensor:
        """`sum_i log z_i + sum_ij rho_ij (log z_ij - log z_i - log z_j)`, z the normalisers of node and edge beliefs.

        It is stationary in the messages at a fixed point.
        """
        norms = {name: log_norm(b) for name, b in outcome.beliefs.items()}
        value = -mrf.constant
        for norm in norms.values():
            value = value + norm.sum((1, 2))
        for i, link in enumerate(mrf.links):
            prepared = self.prepare(link)
            left, right = cavities(mrf, outcome, i)
            onward = sum_message(prepared.t, left, None, prepared.small)
            joint = log_norm(left) + log_norm(right + onward)
            ends = link.layout.gather(norms[link.left], LEFT) + link.layout.gather(norms[link.right], RIGHT)
            excess = joint - ends if prepared.rho is None else prepared.rho * (joint - ends)
            value = value + link.layout.total(excess.squeeze(-1))
        return value

    def edge_probs(self, mrf: MRF, outcome: Outcome, link: int) -> Tensor:
        joint = full_joint(self.prepare(mrf.links[link]).t, *cavities(mrf, outcome, link))
        return torch.softmax(joint.flatten(-2), -1).unflatten(-1, joint.shape[-2:])


def _is_small(t: Tensor) -> bool:
    """Whether exponentials of `t` may be multiplied; asked only where the answer can be looked at cheaply."""
    if max(t.shape[-2:]) == 1 or t.device.type != "cpu" or is_traced(t):
        return False
    spread = t.detach().amax().clamp(min=0) - t.detach().amin().clamp(max=0)
    return float(spread) <= spread_limit(t.dtype)
