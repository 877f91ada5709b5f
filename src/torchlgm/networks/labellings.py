"""The most probable labelling of all variables, row by row of a table of evidence."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from torchlgm.errors import InferenceError, TooLargeError
from torchlgm.inference import Exact, Method, exact, lbp
from torchlgm.networks.evidence import require_possible, soft_evidence, states_of
from torchlgm.networks.solvers.elimination import ROW_ENTRIES, too_large
from torchlgm.networks.solvers.loopy import Loopy
from torchlgm.ops import Buckets, RowStatus

if TYPE_CHECKING:
    from torchlgm.networks.network import Network

PROPAGATION = lbp(200, "sweep", product="max", damping=0.1, tolerance=1e-4)  # where exact inference would be too large


class Labellings:
    """For each row the most probable labelling: `labels` `(rows, variables)` and its states by name.

    `log_prob` `(rows,)` is the log of what the network gives it, for a Bayesian network log p(labelling), with the
    likelihoods of soft evidence. `exact` `(rows,)` is False where it comes from message passing; there
    may be better ones.
    """

    def __init__(self, network: Network, labels: Tensor, log_prob: Tensor, exact: Tensor) -> None:
        self.labels, self.log_prob, self.exact = labels, log_prob, exact
        self._network = network

    def __getitem__(self, name: Hashable) -> list[Hashable]:
        states = self._network.variables[name]
        return [states[label] for label in self.labels[:, self._network.number(name)].tolist()]

    def states(self) -> dict[Hashable, list[Hashable | None]]:
        """A column of states for each variable; `pandas.DataFrame(labellings.states())` is a table."""
        return states_of(self._network, self.labels)

    def __repr__(self) -> str:
        return f"Labellings({len(self.labels)} rows of {self.labels.shape[1]} variables, {int(self.exact.sum())} exact)"


def most_probable(
    network: Network,
    evidence: Any,
    likelihoods: Mapping[Hashable, Any] | None = None,
    method: Method | Exact | None = None,
) -> Labellings:
    """See `Network.map`."""
    if isinstance(method, Method) and not getattr(method.rule, "maximise", False):
        raise InferenceError(f"{method!r} finds marginals; use product='max' for the most probable labelling")
    if method is not None and not isinstance(method, Method | Exact):
        raise InferenceError(f"method={method!r}; expected lbp(product='max'), trw(product='max'), exact() or None")
    codes = torch.from_numpy(network.codes(evidence))
    soft = soft_evidence(network, likelihoods or {}, len(codes))
    labels, done = torch.zeros_like(codes), torch.zeros(len(codes), dtype=torch.bool)
    if not isinstance(method, Method):
        labels, done = _exactly(network, codes, soft, method)
    labels = torch.where(codes >= 0, codes, labels)
    rest = (~done).nonzero().flatten()
    if len(rest):
        by = method if isinstance(method, Method) else PROPAGATION
        with torch.no_grad():
            beliefs = Loopy(network, by, torch.device("cpu")).beliefs(
                codes[rest], {v: x[rest] for v, x in soft.items()}
            )
            labels[rest] = network.map_labels(beliefs)
        labels[rest] = torch.where(codes[rest] >= 0, codes[rest], labels[rest])
    log_prob = log_prob_of(network, labels, soft)
    require_possible(log_prob)
    return Labellings(network, labels, log_prob, done)


def _exactly(network: Network, codes: Tensor, soft: dict[int, Tensor], method: Exact | None) -> tuple[Tensor, Tensor]:
    """Labels, and the rows for which they are exact."""
    limit = ROW_ENTRIES if method is None else method.limit
    scopes, energies = zip(*network.factors, strict=True) if network.factors else ((), ())
    labels, status = torch.zeros_like(codes), np.full(len(codes), RowStatus.LOST)
    if max(network.labels) == 1:
        return labels, torch.ones(len(codes), dtype=torch.bool)
    if Buckets.available():
        solver = Buckets(network.labels, scopes, energies)
        found = solver.solve(codes.numpy(), soft={v: x.numpy() for v, x in soft.items()}, limit=limit, maximise=True)
        assert found.best is not None
        labels, status = torch.from_numpy(found.best.astype(np.int64)), found.status
        if method is not None and (status == RowStatus.TOO_LARGE).any():
            raise too_large(limit, found.entries)
    lost = np.flatnonzero(status == RowStatus.LOST)
    if len(lost):
        try:
            beliefs = Loopy(network, exact(limit=limit), torch.device("cpu")).beliefs(
                codes[lost], {v: x[lost] for v, x in soft.items()}
            )
            labels[lost] = torch.where(codes[lost] >= 0, codes[lost], network.map_labels(beliefs))
        except TooLargeError:
            if method is not None:
                raise
            status[lost] = RowStatus.TOO_LARGE
    return labels, torch.from_numpy(status != RowStatus.TOO_LARGE)


def log_prob_of(network: Network, labels: Tensor, soft: Mapping[int, Tensor]) -> Tensor:
    """The log of what the network gives labellings `(rows, variables)`, -inf where they are impossible."""
    total = np.zeros(len(labels))
    for scope, energies in network.factors:
        total -= energies[tuple(labels[:, v].numpy() for v in scope)]
    log_prob = torch.from_numpy(total)
    for v, likelihood in soft.items():
        log_prob = log_prob + likelihood.gather(1, labels[:, v : v + 1]).squeeze(1).log()
    return log_prob
