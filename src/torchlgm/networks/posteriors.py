"""What is believed about every variable of a network, row by row of a table of evidence."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from torchlgm.errors import EvidenceError, InferenceError, TooLargeError
from torchlgm.inference import Exact, Method, lbp, solve
from torchlgm.networks.junction import JunctionTree, Pass, clique_tables, junction_tree

if TYPE_CHECKING:
    from torchlgm.networks.network import Network

EXACT_ENTRIES = {"cpu": 2**19, "cuda": 2**23}  # of all cliques for each row, up to which exact inference is chosen
LOGARITHMS = 100.0  # energies in one table this far apart are not multiplied as exponentials
BLOCK = {"cpu": 2**22, "cuda": 2**30}  # entries of all cliques and rows at once
LEAST_ROWS = 32
ROWS = {"cpu": 512, "cuda": 2**16}
UNRELIABLE = 0.1  # a residual above which a row that has not converged is not done


class Posteriors(Mapping[Hashable, Tensor]):
    """Probabilities `(rows, states)` by the name of the variable.

    `log_evidence` `(rows,)` is the log of the network's sum over all that agrees with a row, for a Bayesian network
    log p(evidence). `method` says how both were computed. `converged` `(rows,)` is False where message passing
    has not; where it has, answers can still be wrong, since only exact ones are exact.
    """

    def __init__(
        self, network: Network, probs: dict[Hashable, Tensor], log_evidence: Tensor, converged: Tensor, method: str
    ) -> None:
        self.states = {name: network.variables[name] for name in probs}
        self.probs, self.log_evidence, self.converged, self.method = probs, log_evidence, converged, method

    def __getitem__(self, name: Hashable) -> Tensor:
        return self.probs[name]

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self.probs)

    def __len__(self) -> int:
        return len(self.probs)

    def most_probable(self) -> dict[Hashable, list[Hashable]]:
        """The most probable state of each variable by itself, a column of states for each."""
        return {name: [self.states[name][i] for i in p.argmax(1).tolist()] for name, p in self.probs.items()}

    def __repr__(self) -> str:
        late = int((~self.converged).sum())
        rows = f"{len(self.converged)} rows, {late} not converged"
        return f"Posteriors({len(self.probs)} variables, {rows}, by {self.method})"


def posteriors(
    network: Network,
    evidence: Any,
    variables: Sequence[Hashable] | None = None,
    likelihoods: Mapping[Hashable, Any] | None = None,
    method: Method | Exact | None = None,
    device: str | torch.device = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> Posteriors:
    """See `Network.posteriors`."""
    codes = torch.from_numpy(network.codes(evidence))
    soft = _soft(network, likelihoods or {}, len(codes))
    numbers = range(len(network.labels)) if variables is None else [network.number(name) for name in variables]
    device = torch.device(device)
    solver = _solver(network, codes, method, device)
    names = list(network.variables)
    probs = {v: torch.empty(len(codes), network.labels[v], dtype=torch.float64) for v in numbers}
    log_evidence = torch.empty(len(codes), dtype=torch.float64)
    converged = torch.ones(len(codes), dtype=torch.bool)
    with torch.no_grad():
        for first in range(0, len(codes), solver.rows):
            block = slice(first, first + solver.rows)
            part = {v: x[block].to(device) for v, x in soft.items()}
            marginals, log_z, done = solver.solve(codes[block].to(device), part, list(numbers))
            for v, p in marginals.items():
                probs[v][block] = p.cpu()
            log_evidence[block], converged[block] = log_z.cpu(), done.cpu()
            if progress is not None:
                progress(min(first + solver.rows, len(codes)), len(codes))
    impossible = log_evidence.isneginf().nonzero().flatten().tolist()
    if impossible:
        from torchlgm.networks.network import impossible_rows

        raise EvidenceError(impossible_rows(impossible))
    return Posteriors(network, {names[v]: p for v, p in probs.items()}, log_evidence, converged, solver.name)


def _soft(network: Network, likelihoods: Mapping[Hashable, Any], rows: int) -> dict[int, Tensor]:
    """Likelihoods `(rows, states)` of variables by number."""
    soft = {}
    for name, given in likelihoods.items():
        v = network.number(name)
        values = torch.as_tensor(np.asarray(given, dtype=np.float64))
        if tuple(values.shape) != (rows, network.labels[v]):
            raise EvidenceError(
                f"likelihoods of {name!r} are shaped {tuple(values.shape)}; expected {(rows, network.labels[v])}"
            )
        if not bool(torch.isfinite(values).all()) or bool((values < 0).any()):
            raise EvidenceError(f"likelihoods of {name!r} must be finite numbers >= 0")
        soft[v] = values
    return soft


def _solver(network: Network, codes: Tensor, method: Method | Exact | None, device: torch.device) -> _Exact | _Loopy:
    if method is not None and not isinstance(method, Method | Exact):
        raise InferenceError(f"method={method!r}; expected lbp(), trw(), mean_field(), exact() or None")
    if isinstance(method, Method):
        return _Loopy(network, method, device)
    kind = device.type if device.type in EXACT_ENTRIES else "cpu"
    limit = EXACT_ENTRIES[kind] if method is None else method.limit
    try:
        return _Exact(network, codes, limit, device, kind)
    except TooLargeError:
        if method is not None:
            raise
        return _Loopy(network, lbp(200, "sweep", damping=0.1, tolerance=1e-4), device)


class _Exact:
    """By a junction tree, all rows at once. What is observed in every row is no variable of it."""

    name = "exact()"

    def __init__(self, network: Network, codes: Tensor, limit: int, device: torch.device, kind: str) -> None:
        scopes = [scope for scope, _ in network.factors]
        self.tree: JunctionTree = junction_tree(network.labels, scopes, limit)
        self.rows = max(LEAST_ROWS, min(ROWS[kind], BLOCK[kind] // self.tree.entries))
        self.labels, self.device = network.labels, device
        self.factors = [(scope, torch.from_numpy(e - e.min())) for scope, e in network.factors]
        self.constant = sum(float(e.min()) for _, e in network.factors)
        self._known: dict[bool, list[Tensor]] = {}
        self.only_logs = any(float(e[e.isfinite()].max()) > LOGARITHMS for _, e in self.factors)

    def solve(
        self, codes: Tensor, soft: Mapping[int, Tensor], variables: list[int]
    ) -> tuple[dict[int, Tensor], Tensor, Tensor]:
        evidence = self._evidence(codes, soft)
        marginals, log_z = self._pass(evidence, len(codes), variables, self.only_logs)
        lost = (~(log_z > -torch.inf)).nonzero().flatten()  # by underflow, or impossible
        if len(lost) and not self.only_logs:
            again, log_z[lost] = self._pass({v: x[:, lost] for v, x in evidence.items()}, len(lost), variables, True)
            for v, p in again.items():
                marginals[v][:, lost] = p
        probs = {v: p.T for v, p in marginals.items()}
        return probs, log_z - self.constant, torch.ones(len(codes), dtype=torch.bool)

    def _pass(
        self, evidence: Mapping[int, Tensor], rows: int, variables: list[int], logs: bool
    ) -> tuple[dict[int, Tensor], Tensor]:
        evidence = {v: x.log() if logs else x for v, x in evidence.items()}
        both = Pass(self.tree, self._tables(logs), evidence, rows, logs)
        return both.marginals(variables), both.log_z

    def _tables(self, logs: bool) -> list[Tensor]:
        if logs not in self._known:
            self._known[logs] = [x.to(self.device) for x in clique_tables(self.tree, self.factors, logs)]
        return self._known[logs]

    def _evidence(self, codes: Tensor, soft: Mapping[int, Tensor]) -> dict[int, Tensor]:
        """The likelihood of each state `(states, rows)`, for variables that any row observes."""
        evidence = {}
        seen = (codes >= 0).any(0).tolist()
        for v, k in enumerate(self.labels):
            if seen[v]:
                states = torch.arange(k, device=codes.device).unsqueeze(1)
                evidence[v] = ((codes[:, v] == states) | (codes[:, v] < 0)).double()
            if v in soft:
                evidence[v] = soft[v].T * evidence.get(v, 1.0)
        return evidence


class _Loopy:
    """By message passing on the layered model."""

    def __init__(self, network: Network, method: Method, device: torch.device) -> None:
        self.network, self.method, self.device = network, method, device
        self.rows = ROWS["cuda" if device.type == "cuda" else "cpu"]
        self.model = network.model.to(device)
        self.name = repr(method)

    def solve(
        self, codes: Tensor, soft: Mapping[int, Tensor], variables: list[int]
    ) -> tuple[dict[int, Tensor], Tensor, Tensor]:
        network = self.network
        mrf = self.model.condition(network.observed(codes.cpu().numpy()))
        unary = dict(mrf.unary)
        for v, likelihood in soft.items():
            place = network.places[v]
            if place is None:
                continue
            energies = -likelihood.log().clamp(min=-network.layered.forbidden)
            extra = torch.zeros_like(unary[place[0]]).repeat(len(codes) // len(unary[place[0]]), 1, 1)
            free = (codes[:, v] < 0).unsqueeze(1)
            extra[:, place[1]] = (energies[:, 1:] - energies[:, :1]) * free
            unary[place[0]] = unary[place[0]] + extra
        beliefs = solve(mrf._replace(unary=unary), self.method)
        marginals = network.marginals(beliefs)
        probs = {v: marginals[v] for v in variables}
        log_z = beliefs.log_z - network.layered.constant
        log_z = torch.where(log_z < -network.layered.forbidden / 2, -torch.inf, log_z)
        assert beliefs.converged is not None
        return probs, log_z, beliefs.converged
