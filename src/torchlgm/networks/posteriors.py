"""What is believed about every variable of a network, row by row of a table of evidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchlgm._utils.machine import physical_memory, usable_device
from torchlgm._utils.optional import import_optional
from torchlgm.errors import EvidenceError, InferenceError, TooLargeError
from torchlgm.inference import Exact, Method
from torchlgm.networks.evidence import require_possible, soft_evidence
from torchlgm.networks.solvers.base import Solver
from torchlgm.networks.solvers.clusters import NARROWER, ByClusters, Compared
from torchlgm.networks.solvers.counts import ByCounts
from torchlgm.networks.solvers.elimination import eliminating
from torchlgm.networks.solvers.loopy import Loopy
from torchlgm.ops import Buckets

if TYPE_CHECKING:
    from torchlgm.networks.network import Network

WRONG = 0.05  # an error from which on a row is not to be trusted
TRUSTED = 0.02  # how far a second opinion may be that is approximate itself


class Posteriors(Mapping[Hashable, Tensor]):
    """Probabilities `(rows, states)` by the name of the variable, whose states are `states[name]`.

    `pairs[a, b]` is `(rows, states of a, states of b)`. `log_evidence` `(rows,)` is the log of the network's sum over
    all that agrees with a row, for a Bayesian network log p(evidence). `method` says how all was computed, `exact`
    `(rows,)` which rows have exact answers, `converged` `(rows,)` for which message passing has converged. Where it
    has, answers can still be wrong: `errors[name]` `(rows,)` is how far other opinions are from a posterior, 0 where
    it is exact. A posterior is `doubtful[name]` `(rows,)` if that is more than 0.05. Where the second opinion is
    approximate too, all of a row are if any is apart by more than 0.02, or the row has not converged. Rows are
    `trusted` `(rows,)` if they have converged and no posterior is doubtful.
    """

    def __init__(
        self,
        network: Network,
        probs: dict[Hashable, Tensor],
        pairs: dict[tuple[Hashable, Hashable], Tensor],
        log_evidence: Tensor,
        exact: Tensor,
        converged: Tensor,
        errors: dict[Hashable, Tensor],
        apart: Tensor,
        known: Tensor,
        method: str,
    ) -> None:
        self.states = {name: network.variables[name] for name in probs}
        self.probs, self.pairs, self.log_evidence = probs, pairs, log_evidence
        self.exact, self.converged, self.errors, self.method = exact, converged, errors, method
        row = ~known & (~converged | (apart > TRUSTED))  # approximate opinions do not tell which of its posteriors
        self.doubtful = {name: row | (error > WRONG) for name, error in errors.items()}
        self.trusted = converged & ~row & (apart <= WRONG)

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
        doubtful = int((~self.trusted).sum())
        rows = f"{len(self.trusted)} rows, {doubtful} not to be trusted"
        return f"Posteriors({len(self.probs)} variables, {rows}, by {self.method})"


def posteriors(
    network: Network,
    evidence: Any,
    variables: Sequence[Hashable] | None = None,
    pairs: Sequence[tuple[Hashable, Hashable]] = (),
    likelihoods: Mapping[Hashable, Any] | None = None,
    method: Method | Exact | None = None,
    device: str | torch.device = "cpu",
    progress: bool | Callable[[int, int], None] = False,
    energies: Sequence[Tensor] | None = None,
) -> Posteriors:
    """See `Network.posteriors`."""
    codes = torch.from_numpy(network.codes(evidence))
    soft = soft_evidence(network, likelihoods or {}, len(codes), graded=torch.is_grad_enabled())
    singles = [network.number(name) for name in network.variables if variables is None]
    if variables is not None:
        singles = [network.number(name) for name in as_list("variables", variables, "names")]
    pairs = as_list("pairs", pairs, "pairs of names")
    asked = [(v,) for v in singles] + [_pair(network, pair) for pair in pairs]
    _require_memory(len(codes), network.labels, asked)
    graded = energies is not None or any(x.requires_grad for x in soft.values())
    if graded:
        solver = ByCounts(network, energies, method, usable_device(device, InferenceError))
    else:
        solver = solver_for(network, asked, method, usable_device(device, InferenceError))
    answers = [torch.empty(len(codes), *[network.labels[v] for v in scope], dtype=torch.float64) for scope in asked]
    log_evidence = torch.empty(len(codes), dtype=torch.float64)
    exact, converged, known = torch.ones(3, len(codes), dtype=torch.bool)
    errors = torch.zeros(len(codes), len(asked))
    with torch.set_grad_enabled(graded and torch.is_grad_enabled()), _reporter(progress, len(codes)) as report:
        for first in range(0, len(codes), solver.rows):
            block = slice(first, first + solver.rows)
            answer = solver.solve(codes[block], {v: x[block] for v, x in soft.items()}, asked)
            for into, part in zip(answers, answer.marginals, strict=True):
                into[block] = part
            log_evidence[block], exact[block], converged[block] = answer.log_z, answer.exact, answer.converged
            if answer.errors is not None:
                errors[block] = answer.errors.float()
            known[block] = answer.exact if answer.known is None else answer.known
            report(min(first + solver.rows, len(codes)), len(codes))
    require_possible(log_evidence)
    names = list(network.variables)
    probs = {names[v]: p for v, p in zip(singles, answers, strict=False)}
    joint = {(a, b): p for (a, b), p in zip(pairs, answers[len(singles) :], strict=True)}
    doubts = {names[v]: error for v, error in zip(singles, errors.T, strict=False)}
    apart = errors.amax(1) if asked else errors.new_zeros(len(codes))  # pairs too
    words = _words(exact, method)
    return Posteriors(network, probs, joint, log_evidence, exact, converged, doubts, apart, known, words)


def solver_for(
    network: Network, asked: Sequence[tuple[int, ...]], method: Method | Exact | None, device: torch.device
) -> Solver:
    """Exact where it fits; message passing where it does not, or where `method` is that."""
    if isinstance(method, Method):
        if getattr(method.rule, "maximise", False):
            raise InferenceError(f"{method!r} looks for the most probable labelling; use network.map(evidence)")
        return Compared(Loopy(network, method, device), [ByClusters(network.labels, network.factors, device)])
    if method is not None and not isinstance(method, Exact):
        raise InferenceError(f"method={method!r}; expected lbp(), trw(), mean_field(), exact() or None")
    wide = None
    if method is None:
        beside = torch.device("cpu") if Buckets.available() else device  # where what a row observes makes it narrow
        clusters = partial(ByClusters, network.labels, network.factors, beside)
        wide = Compared(clusters(), [clusters(narrower=n) for n in NARROWER])
    try:
        return eliminating(network.labels, network.factors, method, device, asked, wide)
    except TooLargeError:
        if wide is None:
            raise
        return wide


def _require_memory(rows: int, labels: Sequence[int], asked: Sequence[tuple[int, ...]]) -> None:
    """Raise TooLargeError if the answers would not fit memory."""
    bytes_needed = rows * sum(8 * math.prod(labels[v] for v in scope) + 4 for scope in asked)
    if bytes_needed > 0.8 * physical_memory():
        raise TooLargeError(
            f"the answers for {rows:,} rows take {bytes_needed / 2**30:,.0f} GiB; name fewer variables=, or ask "
            "about the rows in parts"
        )


def _words(exact: Tensor, method: Method | Exact | None) -> str:
    """How rows were solved, as a user would write it."""
    rows, other = int(exact.sum()), repr(method) if isinstance(method, Method) else "propagation between clusters"
    if rows == len(exact):
        return "exact()"
    return other if rows == 0 else f"exact() for {rows} rows, {other} for {len(exact) - rows}"


def as_list(what: str, given: Any, of: str) -> list[Any]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise EvidenceError(f"{what}={given!r}; expected a list of {of}")
    return list(given)


def _pair(network: Network, pair: tuple[Hashable, Hashable]) -> tuple[int, int]:
    if not isinstance(pair, tuple | list) or len(pair) != 2 or pair[0] == pair[1]:
        raise EvidenceError(f"a pair of {pair!r}; expected the names of two different variables")
    return network.number(pair[0]), network.number(pair[1])


def _reporter(
    progress: bool | Callable[[int, int], None], rows: int
) -> AbstractContextManager[Callable[[int, int], None]]:
    """What is called with the rows done and all rows: nothing, a progress bar or a function."""
    if callable(progress):
        return nullcontext(progress)
    if not progress:
        return nullcontext(lambda done, total: None)
    return _Bar(
        import_optional("tqdm.auto", "cli", "progress=False").tqdm(total=rows, unit=" rows", dynamic_ncols=True)
    )


class _Bar:
    def __init__(self, bar: Any) -> None:
        self.bar = bar

    def __enter__(self) -> Callable[[int, int], None]:
        return lambda done, total: self.bar.update(done - self.bar.n)

    def __exit__(self, *failure: object) -> None:
        self.bar.close()
