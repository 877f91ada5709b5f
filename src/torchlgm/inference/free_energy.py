"""log Z from beliefs and messages, always of the observed nodes' energy as well (`mrf.constant`)."""

from __future__ import annotations

from torch import Tensor

from torchlgm.inference.engine import Outcome
from torchlgm.inference.methods import Method
from torchlgm.inference.rules import BeliefPropagation, MeanField
from torchlgm.inference.schedule import Hop
from torchlgm.layout import LEFT, RIGHT
from torchlgm.mrf import MRF
from torchlgm.ops.compact import entropy, log_norm, probs
from torchlgm.ops.eager import sum_message
from torchlgm.ops.linear import linear


def log_z(mrf: MRF, method: Method, outcome: Outcome) -> Tensor:
    """The value of log Z that belongs to the method's rule: `(B,)`."""
    if isinstance(method.rule, MeanField):
        value = _mean_field(mrf, outcome)
    else:
        assert isinstance(method.rule, BeliefPropagation)
        value = _reweighted_bethe(mrf, method.rule, outcome)
    return value.expand(mrf.batch)


def _mean_field(mrf: MRF, outcome: Outcome) -> Tensor:
    """`-<E> + H` under the product of the beliefs."""
    q = {name: probs(b) for name, b in outcome.beliefs.items()}
    value = -mrf.constant
    for name, b in outcome.beliefs.items():
        value = value + entropy(b).sum(1) + (q[name] * mrf.field(name)).sum((1, 2))
    for link in mrf.links:
        expected = linear(link.layout, link.table, q[link.left], LEFT, link.scale)
        value = value - (expected * q[link.right]).sum((1, 2))
    return value


def _reweighted_bethe(mrf: MRF, rule: BeliefPropagation, outcome: Outcome) -> Tensor:
    """`sum_i log z_i + sum_ij rho_ij (log z_ij - log z_i - log z_j)`, z the normalisers of node and edge beliefs.

    At a fixed point this is the (reweighted) Bethe value, and it is stationary in the messages there.
    """
    norms = {name: log_norm(b) for name, b in outcome.beliefs.items()}
    value = -mrf.constant
    for norm in norms.values():
        value = value + norm.sum((1, 2))
    for i, link in enumerate(mrf.links):
        prepared = rule.prepare(link)
        left, right = cavities(mrf, outcome, i)
        onward = sum_message(prepared.t, left, None, prepared.small)
        joint = log_norm(left) + log_norm(right + onward)
        ends = link.layout.gather(norms[link.left], LEFT) + link.layout.gather(norms[link.right], RIGHT)
        excess = joint - ends if prepared.rho is None else prepared.rho * (joint - ends)
        value = value + link.layout.total(excess.squeeze(-1))
    return value


def cavities(mrf: MRF, outcome: Outcome, link: int) -> tuple[Tensor, Tensor]:
    """Beliefs of both ends of every edge without what came over that edge: `(B, *edge, kl)`, `(B, *edge, kr)`."""
    ends, layout = mrf.links[link], mrf.links[link].layout

    def cavity(hop: Hop, side: int) -> Tensor:
        belief, came = layout.gather(outcome.beliefs[hop.target], side), outcome.messages.get(hop)
        return belief if came is None or came.edges is None else belief - came.edges

    to_right = Hop(link, LEFT, ends.left, ends.right)
    return cavity(to_right.back, LEFT), cavity(to_right, RIGHT)
