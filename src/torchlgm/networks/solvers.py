"""How posteriors are computed: exactly, row by row or for all rows at once, or by message passing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from torchlgm._utils.machine import physical_memory
from torchlgm.errors import TooLargeError
from torchlgm.inference import Beliefs, Exact, Method, solve
from torchlgm.networks.factors import Factor
from torchlgm.networks.junction import JunctionTree, junction_tree
from torchlgm.networks.passes import Pass, clique_tables
from torchlgm.ops import Buckets, RowStatus

if TYPE_CHECKING:
    from torchlgm.networks.network import Network

# Of all buckets of a row, up to which exact inference is chosen: half a second or so, and an eighth of the memory.
ROW_ENTRIES = min(2**26, max(2**23, int(physical_memory() / (8 * 16 * (os.cpu_count() or 1)))))
TREE_ENTRIES = {"cpu": 2**19, "cuda": 2**23}  # of all cliques for each row, likewise
LOGARITHMS = 100.0  # energies in one table this far apart are not multiplied as exponentials
BLOCK = 2**22  # entries of all cliques and rows at once, on a CPU
SHARE = 0.6  # of the free memory of a GPU that they may take there
COPIES = 5  # of the largest clique, that are held beside all cliques
LEAST_ROWS = 32
ROWS = {"cpu": 512, "cuda": 2**16}
Soft = Mapping[int, Tensor]  # likelihoods (rows, states) of variables
Scopes = Sequence[tuple[int, ...]]


class Answer(NamedTuple):
    """Marginals `(rows, *states)` of each scope asked about; for each row log Z, if exact, and if converged."""

    marginals: list[Tensor]
    log_z: Tensor
    exact: Tensor
    converged: Tensor
    errors: Tensor | None = None  # (rows, scopes): how far a second opinion is; None: there is none, or no need of one
    known: Tensor | None = None  # (rows,): whether that opinion is exact; None: no


class Solver(Protocol):
    rows: int  # that are solved at once

    def solve(self, codes: Tensor, soft: Soft, asked: Scopes) -> Answer: ...


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

    def count(self, codes: Tensor, soft: Soft, weights: np.ndarray) -> tuple[Tensor, list[np.ndarray]]:
        """log Z of each row, and the expected count of each labelling of each factor, rows times `weights`."""
        values = {v: x.numpy() for v, x in soft.items()}
        found = self.buckets.solve(codes.numpy(), soft=values, limit=self.limit, weights=weights, counted=True)
        if (found.status == RowStatus.TOO_LARGE).any():
            raise too_large(self.limit, found.entries)
        require_found(found.status)
        assert found.counts is not None
        return torch.from_numpy(found.log_z), found.counts

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


def require_found(status: np.ndarray) -> None:
    if (status == RowStatus.LOST).any():
        raise TooLargeError("probabilities of a row are too small for numbers of 64 bits; scale energies down")


def too_large(limit: int, entries: np.ndarray) -> TooLargeError:
    return TooLargeError(
        f"exact inference needs more than {limit:,} numbers for a row, {entries.max():,.0f} for the largest; use "
        "lbp(), a larger exact(limit=...), or more evidence"
    )


class ByTree:
    """Exactly, all rows at once by one junction tree, on any device and with gradients to the energies."""

    def __init__(
        self,
        labels: Sequence[int],
        factors: Sequence[tuple[Sequence[int], np.ndarray | Tensor]],
        limit: int,
        device: torch.device,
        logs: bool = False,
        together: Scopes = (),
    ) -> None:
        self.tree = junction_tree(tuple(labels), (*[tuple(scope) for scope, _ in factors], *together), limit)
        self.labels, self.device = labels, device
        self.rows = rows_at_once(self.tree, device)
        energies = [torch.as_tensor(e) for _, e in factors]
        least = [e.detach().min() for e in energies]
        self.factors = [(scope, e - m) for (scope, _), e, m in zip(factors, energies, least, strict=True)]
        self.constant = float(sum(least, torch.zeros(())))
        self._known: dict[bool, list[Tensor]] = {}
        spread = [e.detach()[e.detach().isfinite()].max().item() for _, e in self.factors]
        self.only_logs = logs or any(x > LOGARITHMS for x in spread)

    def solve(self, codes: Tensor, soft: Soft, asked: Scopes) -> Answer:
        evidence = self._evidence(codes.to(self.device), {v: x.to(self.device) for v, x in soft.items()})
        marginals, log_z = self._pass(evidence, len(codes), asked, self.only_logs)
        lost = (~(log_z > -torch.inf)).nonzero().flatten()  # by underflow, or impossible
        if len(lost) and not self.only_logs:
            again, log_z_again = self._pass({v: x[:, lost] for v, x in evidence.items()}, len(lost), asked, True)
            log_z = log_z.index_put((lost,), log_z_again)
            marginals = [
                m.index_copy(-1, lost, other.expand(*m.shape[:-1], len(lost)))
                for m, other in zip(marginals, again, strict=True)
            ]
        one = torch.ones(len(codes), dtype=torch.bool)
        sizes = [m[..., 0].numel() for m in marginals]
        flat = torch.cat([m.reshape(-1, len(codes)) for m in marginals] + [log_z.unsqueeze(0)]).T.cpu()  # one transfer
        parts = flat.split([*sizes, 1], 1)
        probs = [p.reshape(-1, *m.shape[:-1]) for p, m in zip(parts, marginals, strict=False)]
        errors = torch.zeros(len(codes), len(asked), dtype=torch.float64)
        return Answer(probs, parts[-1].squeeze(1) - self.constant, one, one, errors)

    def count(self, codes: Tensor, soft: Soft, weights: np.ndarray) -> tuple[Tensor, list[np.ndarray]]:
        """log Z of each row, and the expected count of each labelling of each factor, rows times `weights`."""
        log_z = torch.empty(len(codes), dtype=torch.float64)
        counts = [np.zeros(tuple(e.shape)) for _, e in self.factors]
        for first in range(0, len(codes), self.rows):
            rows = slice(first, first + self.rows)
            scopes = [tuple(scope) for scope, _ in self.factors]
            found = self.solve(codes[rows], {v: x[rows] for v, x in soft.items()}, scopes)
            log_z[rows] = found.log_z
            for into, part in zip(counts, found.marginals, strict=True):
                into += np.tensordot(weights[rows], part.numpy(), 1)
        return log_z, counts

    def _pass(
        self, evidence: Mapping[int, Tensor], rows: int, asked: Scopes, logs: bool
    ) -> tuple[list[Tensor], Tensor]:
        evidence = {v: x.log() if logs else x for v, x in evidence.items()}
        both = Pass(self.tree, self._tables(logs), evidence, rows, logs)
        return [m.expand(*m.shape[:-1], rows) for m in both.marginals(asked)], both.log_z.expand(rows).clone()

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
    """How many rows one pass takes, of which the tables have to fit."""
    if device.type != "cuda":
        return max(LEAST_ROWS, min(ROWS["cpu"], BLOCK // tree.entries))
    each = 8 * (tree.entries + COPIES * tree.largest)
    return max(1, min(ROWS["cuda"], int(SHARE * torch.cuda.mem_get_info(device)[0] / each)))


class Loopy:
    """On the layered model, mostly by message passing."""

    def __init__(self, network: Network, method: Method | Exact, device: torch.device) -> None:
        self.network, self.method, self.device = network, method, device
        self.rows = ROWS["cuda" if device.type == "cuda" else "cpu"]

    def beliefs(self, codes: Tensor, soft: Soft) -> Beliefs:
        network = self.network
        mrf = network.model.to(self.device).condition(network.observed(codes.numpy()))
        unary = dict(mrf.unary)
        for v, likelihood in soft.items():
            place = network.places[v]
            if place is None or place[0] not in unary:
                continue
            energies = -likelihood.to(self.device).log().clamp(min=-network.layered.forbidden)
            extra = torch.zeros_like(unary[place[0]]).repeat(len(codes) // len(unary[place[0]]), 1, 1)
            free = (codes[:, v] < 0).unsqueeze(1).to(self.device)
            extra[:, place[1]] = (energies[:, 1:] - energies[:, :1]) * free
            unary[place[0]] = unary[place[0]] + extra
        return solve(mrf._replace(unary=unary), self.method)

    def solve(self, codes: Tensor, soft: Soft, asked: Scopes) -> Answer:
        network = self.network
        beliefs = self.beliefs(codes, soft)
        marginals = [p.expand(len(codes), -1).cpu() for p in network.marginals(beliefs)]
        log_z = beliefs.log_z.expand(len(codes)).cpu() - network.layered.constant
        for v, likelihood in soft.items():
            log_z = log_z + self._reference(codes[:, v], likelihood)
        log_z = torch.where(log_z < -network.layered.forbidden / 2, -torch.inf, log_z)
        converged = beliefs.converged
        assert converged is not None
        answers = []
        for scope in asked:
            single = len(scope) == 1
            answers.append(marginals[scope[0]] if single else joint(self, codes, soft, scope, marginals[scope[0]]))
        return Answer(answers, log_z, torch.zeros(len(codes), dtype=torch.bool), converged.expand(len(codes)).cpu())

    def _reference(self, codes: Tensor, likelihood: Tensor) -> Tensor:
        """The log-likelihood of the state observed, else of the first, to which fields are relative."""
        logs = likelihood.gather(1, codes.clamp(min=0).unsqueeze(1)).squeeze(1).log()
        return torch.where(codes >= 0, logs, logs.clamp(min=-self.network.layered.forbidden))


def joint(solver: Solver, codes: Tensor, soft: Soft, scope: tuple[int, ...], own: Tensor) -> Tensor:
    """p(first) p(others | first): the first variable of `scope`, with marginals `own`, is set to each of its labels."""
    first, others = scope[0], scope[1:]
    parts = []
    for label in range(own.shape[1]):
        given = codes.clone()
        given[:, first] = label
        rest = solver.solve(given, {v: x for v, x in soft.items() if v != first}, [others]).marginals[0]
        weight = own[:, label].reshape(-1, *[1] * len(others))
        parts.append(torch.where(weight > 0, weight * rest, 0.0))
    return torch.stack(parts, 1)
