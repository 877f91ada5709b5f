"""Naive mean field, with its lower bound of log Z."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from torchlgm.inference.rules.base import LogZ, Message, Outcome, Prepared, Rule
from torchlgm.layout import LEFT, RIGHT
from torchlgm.mrf import MRF, Link
from torchlgm.ops.compact import entropy, full, probs
from torchlgm.ops.linear import linear


@dataclass(frozen=True)
class MeanField(Rule):
    """`b_j = -E_j - sum_i sum_xi E_ij(x_i, .) softmax(b_i)(x_i)`: the state is the beliefs, no message is kept."""

    uses_reverse: ClassVar[bool] = False

    @property
    def name(self) -> str:
        return "mean_field"

    def prepare(self, link: Link) -> Prepared:
        return Prepared(link.layout, link.table, None, False, link.scale)

    def send(self, link: Prepared, side: int, belief: Tensor, reverse: Tensor | None) -> Message:
        del reverse
        return Message(None, linear(link.layout, link.t, probs(belief), side, -link.scale))

    def log_z(self, mrf: MRF, outcome: Outcome, fixed: Tensor) -> LogZ:
        """`-<E> + H` under the product of the beliefs: a lower bound at any iteration."""
        del fixed
        q = {name: probs(b) for name, b in outcome.beliefs.items()}
        value = -mrf.constant
        for name, b in outcome.beliefs.items():
            value = value + entropy(b).sum(1) + (q[name] * mrf.field(name)).sum((1, 2))
        for link in mrf.links:
            expected = linear(link.layout, link.table, q[link.left], LEFT, link.scale)
            value = value - (expected * q[link.right]).sum((1, 2))
        value = value.expand(mrf.batch)
        return LogZ(value, lower=value)

    def edge_probs(self, mrf: MRF, outcome: Outcome, link: int) -> Tensor:
        ends = mrf.links[link]
        left, right = (torch.softmax(full(outcome.beliefs[name]), -1) for name in (ends.left, ends.right))
        left, right = ends.layout.gather(left, LEFT), ends.layout.gather(right, RIGHT)
        return left.unsqueeze(-1) * right.unsqueeze(-2)
