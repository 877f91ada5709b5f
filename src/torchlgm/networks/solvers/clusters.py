"""Propagation between clusters as large as they may be, for rows too wide to be exact, and a second opinion on others.

Where exact inference would be too large, variables are split into copies that each serve some of their factors. What
remains is solved exactly; copies of a variable then tell each other what the rest of their clusters believes, as
messages of belief propagation do, until they agree (edge deletion: Choi and Darwiche, 2006). Without a split this is
exact.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from math import log2
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchlgm.errors import TooLargeError
from torchlgm.networks.factors import Factor
from torchlgm.networks.solvers.base import Answer, Scopes, Soft, Solver, joint
from torchlgm.networks.solvers.elimination import ByRow, ByTree, too_large
from torchlgm.ops import Buckets

ENTRIES = 2**20  # of all clusters, for each row, on average
MOST_ENTRIES = 2**23  # for any row
NARROWER = 2, 8  # bits, of the clusters that they are compared with; either alone missed a third in some network
ROUNDS = 20
TOLERANCE = 1e-3  # of what copies tell each other
TRIED = 64  # rows by which the width is chosen


@dataclass(frozen=True)
class Split:
    """Variables and their copies: variable v itself is number v, `origins[c]` is the variable that c is a copy of."""

    origins: tuple[int, ...]
    scopes: tuple[tuple[int, ...], ...]


def split(bits: Sequence[float], scopes: Sequence[Sequence[int]], width: float, turned: bool = False) -> Split:
    """Copies of variables, so many that variables can be eliminated from sets whose `bits` sum to `width` at most.

    Variables are eliminated in greedy order. Where what is joined would be too wide, it is joined in several parts
    (mini buckets), each with a copy of the variable. `turned`: of variables that cost the same the last comes first,
    and what is small is joined before what is large.
    """
    sign = -1 if turned else 1
    origins = list(range(len(bits)))
    renamed = [list(scope) for scope in scopes]
    parts = {f: (frozenset(scope), [f]) for f, scope in enumerate(scopes)}  # variables left, and factors inside
    having: list[set[int]] = [set() for _ in bits]
    for f, scope in enumerate(scopes):
        for v in scope:
            having[v].add(f)

    def size(variables: frozenset[int]) -> float:
        return sum(bits[v] for v in variables)

    def cost(v: int) -> float:
        return size(frozenset({v}).union(*[parts[p][0] for p in having[v]]))

    costs = [cost(v) for v in range(len(bits))]
    queue = [(c, sign * v) for v, c in enumerate(costs)]
    heapq.heapify(queue)
    names = count(len(scopes))
    while queue:
        c, v = heapq.heappop(queue)
        v = sign * v
        if c != costs[v]:
            continue
        costs[v] = -1.0  # is done
        joined: list[tuple[frozenset[int], list[int]]] = []
        for p in sorted(having[v], key=lambda p: (-sign * size(parts[p][0]), sign * p)):
            variables, inside = parts.pop(p)
            for u in variables:
                having[u] -= {p}
            fitting = [n for n, (others, _) in enumerate(joined) if size(others | variables) <= width]
            if fitting:
                others, more = joined[fitting[0]]
                joined[fitting[0]] = variables | others, inside + more
            else:
                joined.append((variables, inside))
        for number, (variables, inside) in enumerate(joined):
            if number:
                for f in inside:
                    renamed[f] = [len(origins) if u == v else u for u in renamed[f]]
                origins.append(v)
            name = next(names)
            parts[name] = variables - {v}, inside
            for u in variables - {v}:
                having[u].add(name)
        for u in frozenset[int]().union(*[variables for variables, _ in joined]) - {v}:
            costs[u] = cost(u)
            heapq.heappush(queue, (costs[u], sign * u))
    return Split(tuple(origins), tuple(tuple(scope) for scope in renamed))


class _Agreed(NamedTuple):
    """A network of clusters that is solved exactly, with messages between them as `evidence`, and its own `codes`.

    What passes between copies counts in both, `twice` `(rows,)` its log. `exact` if nothing is split.
    """

    solver: ByRow | ByTree
    codes: Tensor
    evidence: Soft
    scopes: tuple[tuple[int, ...], ...]
    twice: Tensor
    converged: Tensor
    exact: bool


class ByClusters:
    """The solver, with clusters that suit the first rows that come.

    Another opinion than that is had from other clusters, `narrower` by so many bits than they could be.
    """

    rows = 512

    def __init__(
        self, labels: Sequence[int], factors: Sequence[Factor], device: torch.device, narrower: int | None = None
    ) -> None:
        self.labels, self.factors, self.device, self.narrower = labels, factors, device, narrower
        self.differs = True  # from the clusters that could be
        self._entries = max(ENTRIES, 2 * sum(e.size for _, e in factors))  # enough if each factor is a cluster
        self._width = int(log2(self._entries))
        self._inner: tuple[ByRow | ByTree, Split] | None = None

    def solve(self, codes: Tensor, soft: Soft, asked: Scopes) -> Answer:
        agreed = self._agreed(codes, soft)
        singles = sorted({scope[0] for scope in asked})
        answer = agreed.solver.solve(agreed.codes, agreed.evidence, [(v,) for v in singles])
        marginals = dict(zip(singles, answer.marginals, strict=True))
        parts = [
            marginals[scope[0]] if len(scope) == 1 else joint(self, codes, soft, scope, marginals[scope[0]])
            for scope in asked
        ]
        return Answer(parts, answer.log_z - agreed.twice, answer.exact & agreed.exact, agreed.converged)

    def count(self, codes: Tensor, soft: Soft, weights: np.ndarray) -> tuple[Tensor, list[np.ndarray], bool]:
        """log Z of each row, the expected counts of the labellings of factors, rows times `weights`, and if exact."""
        log_z = torch.empty(len(codes), dtype=torch.float64)
        totals = [np.zeros(e.shape) for _, e in self.factors]
        exact = True
        for first in range(0, len(codes), self.rows):
            rows = slice(first, first + self.rows)
            agreed = self._agreed(codes[rows], {v: x[rows] for v, x in soft.items()})
            found = agreed.solver.count(agreed.codes, agreed.evidence, weights[rows])
            if found.large.any():
                raise too_large(agreed.solver.limit, found.entries)
            log_z[rows] = torch.from_numpy(found.log_z) - agreed.twice
            for total, scope, part in zip(totals, agreed.scopes, found.counts, strict=True):
                total += part.transpose(np.argsort(_ascending(scope)))
            exact &= agreed.exact
        return log_z, totals, exact

    def _agreed(self, codes: Tensor, soft: Soft) -> _Agreed:
        """What copies tell each other in the end."""
        inner, parts = self._clusters(codes)
        origins = parts.origins
        own, copies = codes[:, list(origins)], range(len(self.labels), len(origins))
        shapes = {c: (len(codes), self.labels[origins[c]]) for c in copies}
        to_copy, from_copy = (
            {c: torch.full(shape, 1 / shape[1], dtype=torch.float64) for c, shape in shapes.items()} for _ in range(2)
        )
        scopes = [(v,) for v in sorted({*copies, *[origins[c] for c in copies]})]
        late = torch.arange(len(codes))
        for _ in range(ROUNDS if copies else 0):
            answer = inner.solve(own[late], _evidence(soft, to_copy, from_copy, origins, late), scopes)
            beliefs = {v: p for (v,), p in zip(scopes, answer.marginals, strict=True)}
            change = torch.zeros(len(late))
            for c in copies:
                out, back = to_copy[c][late], from_copy[c][late]
                to_copy[c][late], from_copy[c][late] = (
                    _ratio(beliefs[origins[c]], back, out),
                    _ratio(beliefs[c], out, back),
                )
                for to, old in ((to_copy, out), (from_copy, back)):
                    change = torch.maximum(change, (to[c][late] - old).abs().amax(1))
            late = late[change > TOLERANCE]
            if not len(late):
                break
        converged = torch.ones(len(codes), dtype=torch.bool)
        converged[late] = not copies
        twice = torch.zeros(len(codes), dtype=torch.float64)
        for c in copies:
            twice += (to_copy[c] * from_copy[c]).sum(1).log()
        evidence = _evidence(soft, to_copy, from_copy, origins, torch.arange(len(codes)))
        return _Agreed(inner, own, evidence, parts.scopes, twice, converged, exact=not copies)

    def _clusters(self, codes: Tensor) -> tuple[ByRow | ByTree, Split]:
        """A solver for what remains when variables are split, and how they are; narrower ones if rows ask for it."""
        if self._inner is None:
            self._inner = self._chosen(codes[:TRIED])
        solver, parts = self._inner
        while isinstance(solver, ByRow):
            needed = solver.entries(codes[:, list(parts.origins)])
            if needed.max() <= solver.limit:
                break
            self._width -= 1
            widest = torch.from_numpy(needed).topk(min(TRIED, len(codes))).indices
            solver, parts = self._inner = self._chosen(codes[widest])
        return self._inner

    def _chosen(self, codes: Tensor) -> tuple[ByRow | ByTree, Split]:
        """The widest clusters that suit these rows, up to the width that there is, or others to compare with."""
        scopes = [scope for scope, _ in self.factors]
        by_row = self.device.type == "cpu" and Buckets.available()
        free = (codes < 0).double().mean(0).tolist() if by_row else [1.0] * len(self.labels)
        bits = [log2(k) * share for k, share in zip(self.labels, free, strict=True)]
        while (solver := self._solver(parts := split(bits, scopes, self._width), codes, by_row)) is None:
            self._width -= 1
        if self.narrower is None:
            return solver, parts
        widest, width = parts, self._width - self.narrower
        while True:
            parts = split(bits, scopes, width, turned=True)
            solver, self.differs = self._solver(parts, codes, by_row), parts != widest  # the same would tell nothing
            if solver is not None and (self.differs or width <= 0):
                return solver, parts
            width -= 1

    def _solver(self, parts: Split, codes: Tensor, by_row: bool) -> ByRow | ByTree | None:
        """None if these rows would need more than so many entries."""
        labels = [self.labels[o] for o in parts.origins]
        factors = []
        for scope, (_, energies) in zip(parts.scopes, self.factors, strict=True):
            order = _ascending(scope)
            factors.append((tuple(scope[a] for a in order), energies.transpose(order)))
        if by_row:
            solver = ByRow(labels, factors, max(MOST_ENTRIES, self._entries), None)
            needed = solver.entries(codes[:, list(parts.origins)])
            return solver if needed.mean() <= self._entries and needed.max() <= solver.limit else None
        try:
            return ByTree(labels, factors, self._entries, self.device)
        except TooLargeError:
            return None


def _ascending(scope: tuple[int, ...]) -> list[int]:
    return sorted(range(len(scope)), key=scope.__getitem__)


def _ratio(belief: Tensor, without: Tensor, otherwise: Tensor) -> Tensor:
    """What is believed but for one message, normalised; `otherwise` where that is impossible or was not computed."""
    ratio = torch.where(without > 0, belief / without, 0.0)
    ratio = ratio / ratio.sum(1, keepdim=True)
    return torch.where(ratio.isfinite().all(1, keepdim=True), ratio, otherwise)


def _evidence(
    soft: Soft, to_copy: dict[int, Tensor], from_copy: dict[int, Tensor], origins: Sequence[int], rows: Tensor
) -> dict[int, Tensor]:
    """Likelihoods of variables and copies, messages included."""
    evidence = {v: x[rows] for v, x in soft.items()}
    for c, x in to_copy.items():
        evidence[c] = x[rows]
        evidence[origins[c]] = evidence.get(origins[c], 1.0) * from_copy[c][rows]
    return evidence


class Compared:
    """The answers of one approximation, and how far others are from them at most."""

    def __init__(self, solver: Solver, others: Sequence[ByClusters]) -> None:
        self.solver, self.others = solver, others
        self.rows = min(solver.rows, *[other.rows for other in others])

    def solve(self, codes: Tensor, soft: Soft, asked: Scopes) -> Answer:
        ours = self.solver.solve(codes, soft, asked)
        variables = sorted({v for scope in asked for v in scope})
        errors = torch.zeros(len(codes), len(asked), dtype=torch.float64)
        known, log_z = ours.exact, ours.log_z
        for other in self.others:
            theirs = other.solve(codes, soft, [(v,) for v in variables])
            opinions = dict(zip(variables, theirs.marginals, strict=True))
            apart = torch.zeros_like(errors)
            for number, (scope, p) in enumerate(zip(asked, ours.marginals, strict=True)):
                for axis, v in enumerate(scope):  # of a pair, that of its variables
                    own = p.sum([a for a in range(1, p.dim()) if a != axis + 1]) if len(scope) > 1 else p
                    apart[:, number] = torch.maximum(apart[:, number], (own - opinions[v]).abs().amax(1))
            exact = theirs.exact.unsqueeze(1)
            errors = torch.where(known.unsqueeze(1), errors, torch.where(exact, apart, torch.maximum(errors, apart)))
            log_z = torch.where(theirs.exact & theirs.log_z.isneginf(), -torch.inf, log_z)
            known = known | theirs.exact
        if not any(other.differs for other in self.others):  # every factor is a cluster already
            errors[~known] = torch.inf
        return ours._replace(log_z=log_z, errors=errors, known=known)
