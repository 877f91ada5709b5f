"""Exact answers and expected counts by eliminating variables: row by row, or for all rows at once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from torchlgm._utils.machine import physical_memory
from torchlgm.errors import TooLargeError
from torchlgm.inference import Exact
from torchlgm.networks.factors import Factor
from torchlgm.networks.solvers.base import ROWS, Answer, Counts, Scopes, Soft, Solver, rows_that_fit
from torchlgm.networks.solvers.junction import JunctionTree, junction_tree
from torchlgm.networks.solvers.passes import Pass, clique_tables
from torchlgm.ops import Buckets, RowStatus

# Of all buckets of a row, up to which exact inference is chosen: half a second or so, and an eighth of the memory.
ROW_ENTRIES = min(2**26, max(2**23, int(physical_memory() / (8 * 16 * (os.cpu_count() or 1)))))
TREE_ENTRIES = {"cpu": 2**19, "cuda": 2**23}  # of all cliques for each row, likewise
LOGARITHMS = 100.0  # energies in one table this far apart are not multiplied as exponentials
BLOCK = 2**22  # entries of all cliques and rows at once, on a CPU
COPIES = 5  # of the largest clique, that a GPU holds beside all cliques
LEAST_ROWS = 32
COUNTED = 4096  # rows counted at once, each by itself


class ByRow:
    """Exactly, each row by bucket elimination of what it does not observe, in compiled C.

    Rows that would need more than `limit` numbers are left to `otherwise`; without it they are an error.
    """

    def __init__(self, labels: Sequence[int], factors: Sequence[Factor], limit: int, otherwise: Solver | None) -> None:
        self.labels, self.factors, self.limit, self.otherwise = labels, factors, limit, otherwise
        self.rows = ROWS["cpu"] * -(-torch.get_num_threads() // 2)  # each thread should have several parts of them
        self.buckets = Buckets(labels, [scope for scope, _ in factors], [e for _, e in factors])

    def solve(self, codes: Tensor, soft: Soft, asked: Scopes) -> Answer:
        found = self.buckets.solve(codes.numpy(), asked, {v: x.numpy() for v, x in soft.items()}, limit=self.limit)
        marginals, log_z = [torch.from_numpy(m) for m in found.marginals], torch.from_numpy(found.log_z)
        exact = torch.from_numpy(found.status != RowStatus.TOO_LARGE)
        converged = torch.ones(len(codes), dtype=torch.bool)
        errors, known = torch.zeros(len(codes), len(asked), dtype=torch.float64), exact.clone()
        for row in np.flatnonzero(found.status == RowStatus.LOST):
            self._put(marginals, log_z, torch.tensor([row]), self._by_logarithms(codes[row], soft, asked, int(row)))
        large = (~exact).nonzero().flatten()
        if len(large):
            other = self._otherwise(found.entries).solve(codes[large], {v: x[large] for v, x in soft.items()}, asked)
            self._put(marginals, log_z, large, other)
            exact[large], converged[large] = other.exact, other.converged
            errors[large] = torch.inf if other.errors is None else other.errors
            known[large] = False if other.known is None else other.known
        return Answer(marginals, log_z, exact, converged, errors, known)

    def count(
        self, codes: Tensor, soft: Soft, weights: np.ndarray | None, asked: Scopes = (), counted: bool = True
    ) -> Counts:
        """Counts of rows times `weights`."""
        log_z, large, entries = np.empty(len(codes)), np.zeros(len(codes), dtype=bool), np.zeros(len(codes))
        counts = [np.zeros(shape) for shape in self.buckets.shapes]
        marginals = [np.empty((len(codes), *[self.labels[v] for v in scope])) for scope in asked]
        for first in range(0, len(codes), COUNTED):
            rows = slice(first, first + COUNTED)
            found = self.buckets.solve(
                codes[rows].numpy(),
                asked,
                {v: x[rows].detach().numpy() for v, x in soft.items()},
                limit=self.limit,
                weights=None if weights is None else weights[rows],
                counted=counted,
            )
            large[rows], entries[rows] = found.status == RowStatus.TOO_LARGE, found.entries
            log_z[rows] = found.log_z
            for into, part in zip(counts, found.counts or (), strict=False):
                into += part
            for into, part in zip(marginals, found.marginals, strict=True):
                into[rows] = part
            for row in (first + np.flatnonzero(found.status == RowStatus.LOST)).tolist():
                scopes = [scope for scope, _ in self.factors] if counted else []
                own = self._by_logarithms(codes[row], {v: x.detach() for v, x in soft.items()}, [*asked, *scopes], row)
                log_z[row] = own.log_z
                for into, part in zip(marginals, own.marginals, strict=False):
                    into[row] = part[0]
                for into, part in zip(counts, own.marginals[len(asked) :], strict=False):
                    into += part[0].numpy() * (1.0 if weights is None else weights[row])
        return Counts(log_z, counts, marginals, large, entries)

    def entries(self, codes: Tensor) -> np.ndarray:
        """The numbers that each row needs if all variables are asked about."""
        everything = [(v,) for v in range(len(self.labels))]
        return self.buckets.solve(codes.numpy(), everything, limit=self.limit, dry=True).entries

    def _otherwise(self, entries: np.ndarray) -> Solver:
        if self.otherwise is None:
            raise too_large(self.limit, entries)
        return self.otherwise

    @staticmethod
    def _put(marginals: list[Tensor], log_z: Tensor, rows: Tensor, answer: Answer) -> None:
        log_z[rows] = answer.log_z
        for into, part in zip(marginals, answer.marginals, strict=True):
            into[rows] = part

    def _by_logarithms(self, codes: Tensor, soft: Soft, asked: Scopes, row: int) -> Answer:
        """One row, without underflow: a network in which what is observed has one label."""
        seen = codes.tolist()
        labels = [k if label < 0 else 1 for k, label in zip(self.labels, seen, strict=True)]
        factors, constant = [], 0.0
        for scope, energies in self.factors:
            part = energies[np.ix_(*[range(self.labels[v]) if seen[v] < 0 else [seen[v]] for v in scope])]
            if np.isfinite(part).any():
                factors.append((scope, part))
            else:
                constant = -torch.inf
        own = {v: x[row : row + 1] if seen[v] < 0 else x[row : row + 1, seen[v] : seen[v] + 1] for v, x in soft.items()}
        tree = ByTree(labels, factors, 2 * self.limit, torch.device("cpu"), logs=True, together=asked)
        inside = tree.solve(torch.full((1, len(labels)), -1), own, asked)
        marginals = []
        for scope, p in zip(asked, inside.marginals, strict=True):
            whole = p.new_zeros([self.labels[v] for v in scope])
            whole[tuple(slice(None) if seen[v] < 0 else slice(seen[v], seen[v] + 1) for v in scope)] = p[0]
            marginals.append(whole.unsqueeze(0))
        return inside._replace(marginals=marginals, log_z=inside.log_z + constant)


def too_large(limit: int, entries: np.ndarray) -> TooLargeError:
    most = f", {entries.max():,.0f} for the largest" if np.isfinite(entries.max()) else ""
    return TooLargeError(
        f"exact inference needs more than {limit:,} numbers for a row{most}; use lbp(), a larger exact(limit=...), or "
        "more evidence"
    )


class ByTree:
    """Exactly, all rows at once by one junction tree, on any device. Its factors have no variables of one label."""

    def __init__(
        self,
        labels: Sequence[int],
        factors: Sequence[Factor],
        limit: int,
        device: torch.device,
        logs: bool = False,
        together: Scopes = (),
    ) -> None:
        self.labels, self.limit, self.device = tuple(labels), limit, device
        scopes = [self._open(scope) for scope in (*[scope for scope, _ in factors], *together)]
        self.tree = junction_tree(self.labels, tuple(scopes), limit)
        self.rows = rows_at_once(self.tree, device)
        self.shapes = [e.shape for _, e in factors]
        parts = [e.reshape([self.labels[v] for v in s]) for s, (_, e) in zip(scopes, factors, strict=False)]
        self.factors = [(s, torch.as_tensor(e - e.min())) for s, e in zip(scopes, parts, strict=False)]
        self.constant = float(sum(e.min() for _, e in factors))
        self._known: dict[bool, list[Tensor]] = {}
        self.only_logs = logs or any(e[e.isfinite()].max() > LOGARITHMS for _, e in self.factors)

    def solve(self, codes: Tensor, soft: Soft, asked: Scopes) -> Answer:
        marginals, log_z, _ = self._solved(codes, soft, asked)
        sizes = [m[..., 0].numel() for m in marginals]
        flat = torch.cat([m.reshape(-1, len(codes)) for m in marginals] + [log_z.unsqueeze(0)]).T
        parts = flat.contiguous().cpu().split([*sizes, 1], 1)  # one transfer
        probs = [p.reshape(-1, *m.shape[:-1]) for p, m in zip(parts, marginals, strict=False)]
        one = torch.ones(len(codes), dtype=torch.bool)
        errors = torch.zeros(len(codes), len(asked), dtype=torch.float64)
        return Answer(probs, parts[-1].squeeze(1), one, one, errors)

    def count(
        self, codes: Tensor, soft: Soft, weights: np.ndarray | None, asked: Scopes = (), counted: bool = True
    ) -> Counts:
        """Counts of rows times `weights`."""
        log_z, weigh = np.empty(len(codes)), None
        if counted:
            weigh = torch.from_numpy(np.ones(len(codes)) if weights is None else weights).to(self.device, torch.float64)
        totals = [torch.zeros(e.shape, dtype=torch.float64, device=self.device) for _, e in self.factors]
        marginals = [np.empty((len(codes), *[self.labels[v] for v in scope])) for scope in asked]
        for first in range(0, len(codes), self.rows):
            rows = slice(first, first + self.rows)
            own = {v: x[rows].detach() for v, x in soft.items()}
            found, sums, counts = self._solved(codes[rows], own, asked, None if weigh is None else weigh[rows])
            log_z[rows] = sums.cpu().numpy()
            for into, part in zip(marginals, found, strict=True):
                into[rows] = part.movedim(-1, 0).cpu().numpy()
            for into, part in zip(totals, counts, strict=False):
                into += part
        shaped = [x.cpu().numpy().reshape(shape) for x, shape in zip(totals, self.shapes, strict=True)]
        none = np.zeros(len(codes), dtype=bool)
        return Counts(log_z, shaped, marginals, none, np.full(len(codes), self.tree.entries))

    def _open(self, scope: Sequence[int]) -> tuple[int, ...]:
        """Without variables of one label."""
        return tuple(v for v in scope if self.labels[v] > 1)

    @torch.no_grad()
    def _solved(
        self, codes: Tensor, soft: Soft, asked: Scopes, weights: Tensor | None = None
    ) -> tuple[list[Tensor], Tensor, list[Tensor]]:
        """Marginals `(*states, rows)`, log Z of each row and, with `weights`, counts of factors; on the device."""
        evidence = self._evidence(codes.to(self.device), {v: x.to(self.device) for v, x in soft.items()})
        inner = [self._open(scope) for scope in asked]
        marginals, log_z, counts = self._pass(evidence, len(codes), inner, self.only_logs, weights)
        lost = (~(log_z > -torch.inf)).nonzero().flatten()  # by underflow, or impossible; they count for nothing
        if len(lost) and not self.only_logs:
            own = {v: x[:, lost] for v, x in evidence.items()}
            again, log_z_again, more = self._pass(
                own, len(lost), inner, True, None if weights is None else weights[lost]
            )
            log_z = log_z.index_put((lost,), log_z_again)
            marginals = [m.index_copy(-1, lost, other) for m, other in zip(marginals, again, strict=True)]
            counts = [a + b for a, b in zip(counts, more, strict=True)]
        shapes = [[self.labels[v] for v in scope] for scope in asked]
        marginals = [m.reshape(*s, len(codes)) for m, s in zip(marginals, shapes, strict=True)]
        return marginals, log_z - self.constant, counts

    def _pass(
        self, evidence: Mapping[int, Tensor], rows: int, asked: Scopes, logs: bool, weights: Tensor | None
    ) -> tuple[list[Tensor], Tensor, list[Tensor]]:
        evidence = {v: x.log() if logs else x for v, x in evidence.items()}
        both = Pass(self.tree, self._tables(logs), evidence, rows, logs)
        counted = [] if weights is None else [scope for scope, _ in self.factors]
        marginals, counts = both.marginals(asked, counted, weights)
        return [m.expand(*m.shape[:-1], rows) for m in marginals], both.log_z.expand(rows).clone(), counts

    def _tables(self, logs: bool) -> list[Tensor]:
        if logs not in self._known:
            self._known[logs] = [x.to(self.device) for x in clique_tables(self.tree, self.factors, logs)]
        return self._known[logs]

    def _evidence(self, codes: Tensor, soft: Soft) -> dict[int, Tensor]:
        """The likelihood of each state `(states, rows)`, for variables that any row observes."""
        seen = (codes >= 0).any(0).tolist()
        hard = [v for v, known in enumerate(seen) if known]
        evidence = {}
        if hard:
            sizes = [self.labels[v] for v in hard]
            own = codes[:, hard].T.repeat_interleave(torch.tensor(sizes, device=codes.device), 0)
            states = torch.cat([torch.arange(k) for k in sizes]).to(codes.device).unsqueeze(1)
            evidence = dict(zip(hard, ((own == states) | (own < 0)).double().split(sizes), strict=True))
        for v, x in soft.items():
            evidence[v] = x.T * evidence.get(v, 1.0)
        return evidence


def rows_at_once(tree: JunctionTree, device: torch.device) -> int:
    """How many rows one pass takes."""
    if device.type != "cuda":
        return max(LEAST_ROWS, min(ROWS["cpu"], BLOCK // tree.entries))
    return rows_that_fit(device, 8 * (tree.entries + COPIES * tree.largest))


def eliminating(
    labels: Sequence[int],
    factors: Sequence[Factor],
    exact: Exact | None,
    device: torch.device,
    together: Scopes = (),
    otherwise: Solver | None = None,
) -> ByRow | ByTree:
    """On a GPU, or without a C compiler, all rows at once if that fits; otherwise, if possible, each row by itself."""
    by_row = Buckets.available()
    if device.type != "cpu" or not by_row:
        limit = TREE_ENTRIES["cuda" if device.type == "cuda" else "cpu"] if exact is None else exact.limit
        try:
            return ByTree(labels, factors, limit, device, together=together)
        except TooLargeError:
            if not by_row:
                raise
    return ByRow(labels, factors, ROW_ENTRIES if exact is None else exact.limit, otherwise)
