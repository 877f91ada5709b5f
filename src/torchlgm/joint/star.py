"""The closed form for a star of one hidden layer: a candidate costs hidden x labels, not columns x hidden.

Written down for one sweep of loopy belief propagation from the inputs to the class and back. Given what is known of a
row, the hidden nodes have log-odds a_h but for the class. A column that becomes known changes a alone:

    a_h(c = k) = a_h - m_ch + t_ckh    m_ch: what the missing column says, t_ckh: what its label k says
    log p(y | c = k)    = b_y + sum_h softplus(a_h(c = k) + w_hy) - log Z
    log p(c = k)        = u_ck + sum_h softplus(a_h(c = k) + r_h) - log Z    r_h: what the class says to h
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from torchlgm.inference.star import Star, star_layers
from torchlgm.joint.conditionals import Conditionals
from torchlgm.joint.inputs import InputNodes, Known
from torchlgm.ops.compact import full, softplus
from torchlgm.ops.softplus import softplus_sum
from torchlgm.posterior import Posterior

AT_ONCE = 2**23  # numbers


class Energies(NamedTuple):
    """Minus the energies, in the letters above; labels that a column lacks have u = -inf."""

    u: Tensor  # (columns, K)
    t: Tensor  # (columns, K, H)
    missing: Tensor  # (columns, H)
    hidden: Tensor  # (H,)
    w: Tensor  # (H, C)
    b: Tensor  # (C,)

    @classmethod
    def of(cls, star: Star, nodes: InputNodes) -> Energies:
        unary = {name: full(-star.unary[name][0])[None] for name in nodes.columns}
        u = torch.log_softmax(nodes.padded(unary)[0].masked_fill(~nodes.exists, -torch.inf), -1)
        # (H, nodes, K) of each layer, then (H, columns, K)
        tables = {name: full(-star.table[name][0].permute(2, 0, 1)) for name in nodes.columns}
        t = nodes.padded(tables).permute(1, 2, 0).contiguous()
        missing = torch.logsumexp(u.unsqueeze(-1) + t, 1)
        return cls(u, t, missing, -star.hidden[0, :, 0], -star.out[0], -star.target[0])


@dataclass(frozen=True, eq=False)
class StarConditionals(Conditionals):
    energies: Energies

    @classmethod
    def of(cls, posterior: Posterior) -> StarConditionals | None:
        """None where there is no closed form."""
        layers = star_layers(posterior.model.graph, posterior.method, posterior.target)
        if layers is None or set(layers.inputs) != set(posterior.encoding.layers):
            return None
        nodes = InputNodes.of(posterior)
        return cls(posterior, nodes, None, Energies.of(Star.of([posterior.model], layers), nodes))

    def of_target(self, known: Known) -> Tensor:
        return self._of_class(self._odds(known)).unsqueeze(1)

    def of_columns(self, known: Known) -> Tensor:
        probs = known.q.clone()
        rows, columns = (~known.seen).nonzero(as_tuple=True)
        odds = self._odds(known)
        spoken = self._spoken(odds)
        for i, j in self._pairs(rows, columns, 1):
            changed = odds[i] - self.energies.missing[j] + spoken[i]
            probs[i, j] = self._of_labels(changed, j)
        return probs

    def of_missing(self, known: Known, column: Tensor) -> Tensor:
        odds, e = self._odds(known), self.energies
        changed = odds - e.missing[column] + self._spoken(odds)
        parts = [self._of_labels(some, column.expand(len(some))) for some in changed.split(self._at_once(1))]
        return torch.cat(parts)

    def given(self, known: Known, rows: Tensor, columns: Tensor) -> Tensor:
        odds, e = self._odds(known), self.energies
        parts = []
        for i, j in self._pairs(rows, columns, e.w.shape[1]):
            changed = (odds[i] - e.missing[j]).unsqueeze(1) + e.t[j]  # (n, K, H)
            parts.append(self._of_class(changed.flatten(0, 1)).unflatten(0, changed.shape[:2]))
        return torch.cat(parts).unsqueeze(2)

    def left_out(self, known: Known, rows: Tensor, columns: Tensor) -> Tensor:
        odds, e = self._odds(known), self.energies
        parts = []
        for i, j in self._pairs(rows, columns, e.w.shape[1]):
            own = torch.einsum("nk,nkh->nh", known.q[i, j], e.t[j])
            others = odds[i] - own
            spoken = self._spoken(others + e.missing[j])
            parts.append(self._of_labels(others + spoken, j))
        return torch.cat(parts)

    def _odds(self, known: Known) -> Tensor:
        """a `(N, H)`."""
        e = self.energies
        return e.hidden + known.q.flatten(1) @ e.t.flatten(0, 1) + (~known.seen).to(e.t.dtype) @ e.missing

    def _of_class(self, odds: Tensor) -> Tensor:
        """log p(y) `(n, C)` for log-odds `(n, H)`."""
        e = self.energies
        log_odds = softplus_sum(odds.T.contiguous().unsqueeze(0), e.w.unsqueeze(0))[0].T + e.b
        return torch.log_softmax(log_odds / self.posterior.temperature, -1)

    def _spoken(self, odds: Tensor) -> Tensor:
        """r `(n, H)`: the belief about the class without what h itself says, as log-odds of h."""
        e = self.energies
        parts = []
        for some in odds.split(max(1, AT_ONCE // e.w.numel())):
            each = softplus(some.unsqueeze(-1) + e.w)  # (n, H, C)
            rest = (each.sum(1) + e.b).unsqueeze(1) - each
            parts.append(torch.logsumexp(rest + e.w, -1) - torch.logsumexp(rest, -1))
        return torch.cat(parts)

    def _of_labels(self, odds: Tensor, columns: Tensor) -> Tensor:
        """Probabilities `(n, K)` of the labels of columns whose hidden nodes have these log-odds but for them."""
        e = self.energies
        return torch.softmax(e.u[columns] + softplus(odds.unsqueeze(1) + e.t[columns]).sum(-1), -1)

    def _pairs(self, rows: Tensor, columns: Tensor, labels: int) -> zip[tuple[Tensor, Tensor]]:
        size = self._at_once(labels)
        return zip(rows.split(size), columns.split(size), strict=True)

    def _at_once(self, labels: int) -> int:
        """How many entries are looked at together."""
        return max(1, AT_ONCE // (self.energies.t[0].numel() * labels))


def conditionals_of(posterior: Posterior, target: tuple[int, ...] | None = None) -> Conditionals:
    """By the closed form where there is one."""
    closed = None if target is not None else StarConditionals.of(posterior)
    return Conditionals(posterior, InputNodes.of(posterior), target) if closed is None else closed
