"""WHAT one message is: a rule turns a source belief and the message in the other direction into a new message.

A rule is prepared once per inference with the tables of each link, and then only sends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from torchlgm._utils.tracing import is_traced
from torchlgm.errors import InferenceError
from torchlgm.layout import RIGHT, Layout
from torchlgm.mrf import Link
from torchlgm.ops.compact import probs
from torchlgm.ops.eager import max_message, spread_limit
from torchlgm.ops.linear import linear
from torchlgm.ops.send import send_sum


class Message(NamedTuple):
    """What a layer sends: `edges` `(B, *edge, k)`, or None where the rule keeps none, and its sum at the target's
    nodes, weighted by rho: `inflow` `(B, nodes, k)`."""

    edges: Tensor | None
    inflow: Tensor


def damped(new: Message, old: Message | None, damping: float) -> Message:
    """`new` with a share of `old`, which is 0 where it is None; in any form, since a sum at nodes is linear."""

    def mix(a: Tensor, b: Tensor | None) -> Tensor:
        return (1 - damping) * a if b is None else (1 - damping) * a + damping * b

    edges = None if new.edges is None else mix(new.edges, None if old is None else old.edges)
    return Message(edges, mix(new.inflow, None if old is None else old.inflow))


class Prepared(NamedTuple):
    """A link made ready: `t` is the table that the rule multiplies or adds, `(*edge, kl, kr)`."""

    layout: Layout
    t: Tensor
    rho: Tensor | None  # (*edge, 1)
    small: bool
    scale: float = 1.0


class Rule(ABC):
    """Abstract: how one link is prepared and how one message is made. Pure; the same for every layout.

    `answering` says whether a message depends on the message in the other direction.
    """

    answering: ClassVar[bool]

    @abstractmethod
    def prepare(self, link: Link) -> Prepared: ...

    @abstractmethod
    def send(self, link: Prepared, side: int, belief: Tensor, reverse: Tensor | None) -> Message:
        """The message out of `side`; `belief` `(B, nodes, k)` of the source, `reverse` the edges of the message
        that came back, None while it is 0."""


@dataclass(frozen=True)
class BeliefPropagation(Rule):
    """`m_ij = lse_xi(-E_ij/rho + c) - lse_xi(c)` with `c = b_i - m_ji`; `b_j = -E_j + sum_i rho_ij m_ij`.

    rho = 1 is loopy belief propagation, `reweighted` takes the link's rho (TRW), `maximise` puts max for lse. If not
    `divided`, messages take E instead of E / rho.
    """

    answering: ClassVar[bool] = True
    reweighted: bool = False
    maximise: bool = False
    divided: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.divided, bool):
            raise InferenceError(f"divided={self.divided!r}; expected True or False")
        if not self.divided and not self.reweighted:
            raise InferenceError("divided=False is for reweighted messages: without rho there is nothing to divide by")

    def prepare(self, link: Link) -> Prepared:
        t = link.layout.expand(link.table * -link.scale)
        rho = None
        if self.reweighted:
            rho = link.rho.unsqueeze(-1)
            t = t / rho.unsqueeze(-1) if self.divided else t
        return Prepared(link.layout, t, rho, not self.maximise and _is_small(t))

    def send(self, link: Prepared, side: int, belief: Tensor, reverse: Tensor | None) -> Message:
        t = link.t if side != RIGHT else link.t.transpose(-1, -2)
        if not self.maximise:
            return Message(*send_sum(link.layout, side, t, link.rho, belief, reverse, link.small))
        edges = max_message(t, link.layout.gather(belief, side), reverse)
        weighted = edges if link.rho is None else edges * link.rho
        return Message(edges, link.layout.scatter(weighted, 1 - side))


@dataclass(frozen=True)
class MeanField(Rule):
    """`b_j = -E_j - sum_i sum_xi E_ij(x_i, .) softmax(b_i)(x_i)`: the state is the beliefs, no message is kept."""

    answering: ClassVar[bool] = False

    def prepare(self, link: Link) -> Prepared:
        return Prepared(link.layout, link.table, None, False, link.scale)

    def send(self, link: Prepared, side: int, belief: Tensor, reverse: Tensor | None) -> Message:
        del reverse
        return Message(None, linear(link.layout, link.t, probs(belief), side, -link.scale))


def _is_small(t: Tensor) -> bool:
    """Whether exponentials of `t` may be multiplied; asked only where the answer can be looked at cheaply."""
    if max(t.shape[-2:]) == 1 or t.device.type != "cpu" or is_traced(t):
        return False
    spread = t.detach().amax().clamp(min=0) - t.detach().amin().clamp(max=0)
    return float(spread) <= spread_limit(t.dtype)
