"""Several stars that answer together, and what rows of each class look like: which measurement next, for an ensemble.

The members say the class, p(y | seen), each by its closed form and all by their mixture. What a missing column will
show follows from the class, p(x_c = k | seen) = sum_y p(y | seen) p(k | y), as if columns were independent once it is
known: the members need not have learned anything about columns. What is then asked has to agree with what they say of
the class: p(y | seen) is the mean of p(y | seen, k) over k. That moves p(k | seen) a long way where columns repeat each
other, as neighbouring pixels do. A gain is a mutual information whichever says either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from torchlgm.joint.conditionals import Conditionals, Outcomes
from torchlgm.joint.inputs import InputNodes, Known
from torchlgm.joint.star import AT_ONCE, Energies, StarConditionals
from torchlgm.ops import star as native
from torchlgm.ops.softplus import softplus_sum
from torchlgm.posterior import Posterior

ROUNDS = 20  # of expectation maximisation, by which outcomes agree with the belief about the class

Weigh = Callable[[Tensor], Tensor]  # shares missing (N,) -> logs of the weights of all members (M, N)


@dataclass(frozen=True, eq=False)
class MixedStars(Conditionals):
    """Members of one graph; `posterior` is the first one's, which tells how rows become evidence."""

    energies: Energies  # of all members, side by side: each with a first axis M
    weigh: Weigh
    labels_of_class: Tensor  # p(k | y) of each column, (C, columns, K)

    @classmethod
    def of(cls, posteriors: Sequence[Posterior], weigh: Weigh, labels_of_class: Tensor) -> MixedStars:
        """Of stars, in float32."""
        closed = [one.energies for one in map(StarConditionals.of, posteriors) if one is not None]
        energies = Energies(*(torch.stack(parts).float() for parts in zip(*closed, strict=True)))
        first = posteriors[0]
        return cls(first, InputNodes.of(first), None, energies, weigh, labels_of_class.to(energies.t))

    def every(self, step: int) -> MixedStars:
        """Fewer members, which answer faster: every so many, as if they were all."""
        energies = Energies(*(part[::step] for part in self.energies))

        def weigh(missing: Tensor) -> Tensor:
            return torch.log_softmax(self.weigh(missing)[::step], 0)

        return replace(self, energies=energies, weigh=weigh)

    def known(self, x: Tensor) -> Known:
        known = super().known(x)
        return Known(known.q.to(self.energies.t), known.seen)

    def about(self, target: tuple[int, ...]) -> MixedStars:
        return replace(self, target=target)

    def _of_target(self, known: Known) -> Tensor:
        if self.target is not None:
            return super()._of_target(known)
        return self._of_class(self._odds(known), _missing(known)).unsqueeze(1)

    def _of_columns(self, known: Known) -> Tensor:
        return self._expected(known, self._of_class(self._odds(known), _missing(known)).exp())

    def _expected(self, known: Known, chances: Tensor) -> Tensor:
        """What columns will show if classes have these `chances` `(N, C)`."""
        expected = torch.einsum("nc,cdk->ndk", chances, self.labels_of_class)
        return torch.where(known.seen.unsqueeze(-1), known.q, expected)

    def given(self, known: Known, rows: Tensor, columns: Tensor) -> Tensor:
        if self.target is not None:
            return super().given(known, rows, columns)
        return self._given(self._odds(known), _missing(known), rows, columns).unsqueeze(2).log()

    def _given(self, odds: Tensor, missing: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        """p(y | what is known, column = k) `(n, K, C)` for rows with log-odds `(M, N, H)` and shares `missing`."""
        e = self.energies
        missing = missing - 1 / e.t.shape[1]
        members, _, labels, hidden = e.t.shape
        code = native.native_code(odds, len(rows) * members * labels * hidden)
        if code is not None:
            weight = self.weigh(missing[rows]).exp().to(odds)
            asked = native.Asked(odds, self.change, e.w, e.b, weight, rows, columns)
            return native.given(code, asked, torch.get_num_threads())
        size = max(1, AT_ONCE // (members * labels * hidden * (1 if e.t.device.type == "cpu" else e.w.shape[-1])))
        parts = []
        for i, j in zip(rows.split(size), columns.split(size), strict=True):
            changed = odds[:, i].unsqueeze(2) + self.change[:, j]  # (M, n, K, H)
            log_probs = self._of_class(changed.flatten(1, 2), missing[i].repeat_interleave(labels))
            parts.append(log_probs.unflatten(0, (len(i), labels)))
        return torch.cat(parts).exp()

    def outcomes(self, known: Known) -> Outcomes:
        if self.target is not None:
            return super().outcomes(known)
        odds, missing = self._odds(known), _missing(known)
        now = self._of_class(odds, missing).exp()
        expected = self._expected(known, now)

        def of_entries(rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
            after = self._given(odds, missing, rows, columns)
            return agreeing(expected[rows, columns], after, now[rows]), after.unsqueeze(2).log()

        return of_entries

    def of_missing(self, known: Known, column: Tensor) -> Tensor:
        rows = torch.arange(len(known.seen), device=column.device)
        return self.outcomes(known)(rows, column.expand(len(rows)))[0]

    @cached_property
    def change(self) -> Tensor:
        """Of the log-odds, if a missing column becomes known to have a label, `(M, columns, K, H)`."""
        return self.energies.t - self.energies.missing.unsqueeze(2)

    @cached_property
    def unseen(self) -> Tensor:
        """Log-odds where nothing is known, `(M, 1, H)`."""
        return (self.energies.hidden + self.energies.missing.sum(1)).unsqueeze(1)

    def _odds(self, known: Known) -> Tensor:
        """Log-odds of the hidden nodes but for the class, `(M, N, H)`."""
        seen = known.seen.any(0).nonzero()[:, 0]
        return self.unseen + known.q[:, seen].flatten(1) @ self.change[:, seen].flatten(1, 2)

    def _of_class(self, odds: Tensor, missing: Tensor) -> Tensor:
        """log p(y) `(n, C)` for log-odds `(M, n, H)` of rows with shares missing `(n,)`."""
        e = self.energies
        log_odds = softplus_sum(odds.transpose(1, 2).contiguous(), e.w).transpose(1, 2) + e.b.unsqueeze(1)
        weights = self.weigh(missing).to(odds).unsqueeze(-1)
        return torch.logsumexp(torch.log_softmax(log_odds, -1) + weights, 0)


def agreeing(chances: Tensor, after: Tensor, now: Tensor) -> Tensor:
    """Move `chances` `(n, K)` of labels so that the mean of the beliefs `after` each, `(n, K, C)`, is nearly `now`
    `(n, C)`.

    Each round brings the mean closer, in relative entropy, and leaves labels without a chance at 0. Where no label
    allows the belief, chances stay as they are.
    """
    code = native.native_code(after, after.numel() * ROUNDS)
    if code is not None:
        return native.agreeing(code, chances, after, now, ROUNDS, torch.get_num_threads())
    for _ in range(ROUNDS):
        mean = torch.einsum("nk,nkc->nc", chances, after).clamp(min=1e-30)
        moved = chances * torch.einsum("nc,nkc->nk", now / mean, after)
        total = moved.sum(1, keepdim=True)
        chances = torch.where(total > 0, moved / total, chances)
    return chances


def _missing(known: Known) -> Tensor:
    """The share of the entries of each row that is missing, `(N,)`."""
    return (~known.seen).double().mean(1)
