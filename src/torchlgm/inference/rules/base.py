"""The contract of a rule, and what it takes and gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields, is_dataclass
from typing import ClassVar, Literal, NamedTuple

from torch import Tensor

from torchlgm.errors import InferenceError
from torchlgm.inference.schedule import Hop
from torchlgm.layout import LEFT, RIGHT, Layout
from torchlgm.mrf import MRF, Link


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
    """A link ready to send over: `t` is the table that the rule multiplies or adds, `(*edge, kl, kr)`."""

    layout: Layout
    t: Tensor
    rho: Tensor | None  # (*edge, 1)
    small: bool
    scale: float = 1.0


class Outcome(NamedTuple):
    """Raw results: beliefs as log-odds `(1 or B, nodes, K-1)`, and the messages where everything was asked for."""

    beliefs: dict[str, Tensor]
    messages: dict[Hop, Message]
    iterations: Tensor | int  # (B,), or the same for all
    residual: Tensor | None  # (B,); None where messages were not kept


def cavities(mrf: MRF, outcome: Outcome, link: int) -> tuple[Tensor, Tensor]:
    """Beliefs of both ends of every edge without what came over that edge: `(B, *edge, kl)`, `(B, *edge, kr)`."""
    ends, layout = mrf.links[link], mrf.links[link].layout

    def cavity(hop: Hop, side: int) -> Tensor:
        belief, came = layout.gather(outcome.beliefs[hop.target], side), outcome.messages.get(hop)
        return belief if came is None or came.edges is None else belief - came.edges

    to_right = Hop(link, LEFT, ends.left, ends.right)
    return cavity(to_right.back, LEFT), cavity(to_right, RIGHT)


class LogZ(NamedTuple):
    """`estimate` `(B,)`, and the bounds that the method gives, None where it gives none.

    `upper` of tree-reweighted inference is infinite for samples that have not converged.
    """

    estimate: Tensor
    lower: Tensor | None = None
    upper: Tensor | None = None


class Rule(ABC):
    """Abstract: how one link is prepared and how one message is made. Pure; the same for every layout.

    A rule must give `uses_reverse`, `prepare` and `send`. All else is optional and has a default: log Z, edge beliefs,
    a name, kernels.
    """

    uses_reverse: ClassVar[bool]  # whether a message depends on the message in the other direction
    maximise: bool = False  # whether beliefs are max-marginals, the largest of which are the MAP labels
    reweighted: bool = False  # whether inflows are sums weighted by rho
    divide_by_rho: bool = True  # whether messages take E / rho, if reweighted

    @abstractmethod
    def prepare(self, link: Link) -> Prepared: ...

    @abstractmethod
    def send(self, link: Prepared, side: int, belief: Tensor, reverse: Tensor | None) -> Message:
        """The message out of `side`; `belief` `(B, nodes, k)` of the source, `reverse` the edges of the message
        that came back, None while it is 0."""

    @property
    def kernel_mode(self) -> Literal["sum", "max"] | None:
        """How fused kernels make these messages; None if `send` alone does.

        "sum" and "max" stand for what `BeliefPropagation` sends with the same `reweighted` and `divide_by_rho`.
        """
        return None

    @property
    def name(self) -> str:
        """The function that makes methods with this rule, such as "lbp"; "" if there is none."""
        return ""

    @property
    def options(self) -> dict[str, object]:
        """What that function is called with for this rule: by default the fields that are not at their default."""
        values = {f: getattr(self, f.name) for f in (fields(self) if is_dataclass(self) else ())}
        return {f.name: value for f, value in values.items() if value != f.default}

    def log_z(self, mrf: MRF, outcome: Outcome, fixed: Tensor) -> LogZ:
        """log Z `(B,)` and its bounds; `fixed` `(B,)` says which samples have reached a fixed point of all messages."""
        raise InferenceError(f"no log Z is known for the rule {self}")

    def edge_probs(self, mrf: MRF, outcome: Outcome, link: int) -> Tensor:
        """Joint probabilities of both ends of each edge of `mrf.links[link]`: `(1 or B, *edge, KL, KR)`."""
        raise InferenceError(f"no edge beliefs are known for the rule {self}")
