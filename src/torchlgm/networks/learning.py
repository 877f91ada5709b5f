"""Learning the tables of a network from rows with holes: gradients of the log-evidence, and EM."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchlgm._utils.optional import import_optional
from torchlgm._utils.validate import check_int
from torchlgm.errors import TooLargeError, TrainingError
from torchlgm.networks.evidence import require_possible, soft_evidence
from torchlgm.networks.factors import Factor
from torchlgm.networks.solvers.base import Soft
from torchlgm.networks.solvers.clusters import ByClusters
from torchlgm.networks.solvers.counts import ByCounts
from torchlgm.networks.solvers.elimination import eliminating

if TYPE_CHECKING:
    from torchlgm.networks.network import Network


class Fit(NamedTuple):
    """The `network` with its new tables, and the mean log-evidence of a row before each iteration and at the end.

    `exact` `(rows,)` is False for rows that were too large to be counted exactly, and were by propagation between
    clusters. Where there are some, `log_evidence` is an estimate too.
    """

    network: Network
    log_evidence: list[float]
    converged: bool
    exact: Tensor


def log_evidence(
    network: Network,
    evidence: Any,
    likelihoods: Mapping[Hashable, Any] | None = None,
    energies: Sequence[Tensor] | None = None,
) -> Tensor:
    """See `Network.log_evidence`."""
    codes = torch.from_numpy(network.codes(evidence))
    soft = soft_evidence(network, likelihoods or {}, len(codes), graded=torch.is_grad_enabled())
    solver = ByCounts(network, energies, None, torch.device("cpu"))
    return solver.solve(codes, soft, ()).log_z


def expected_counts(
    network: Network, codes: Tensor, soft: Soft, weights: np.ndarray
) -> tuple[Tensor, list[np.ndarray], Tensor]:
    """log p of each row, the expected count of each labelling of each factor, and which rows are exact.

    Rows that are too large are counted by propagation between clusters.
    """
    device, clusters = torch.device("cpu"), partial(ByClusters, network.labels, network.factors)
    try:
        found = eliminating(network.labels, network.factors, None, device).count(codes, soft, weights)
    except TooLargeError:  # in one tree
        log_z, counts, exact = clusters(device).count(codes, soft, weights)
        return log_z, counts, torch.full((len(codes),), exact)
    log_z, counts, large = torch.from_numpy(found.log_z), found.counts, torch.from_numpy(found.large)
    exact = ~large
    if found.large.any():
        own = {v: x[large] for v, x in soft.items()}
        log_z[large], more, exact[large] = clusters(device).count(codes[large], own, weights[found.large])
        counts = [a + b for a, b in zip(counts, more, strict=True)]
    return log_z, counts, exact


def fit(
    network: Network,
    evidence: Any,
    likelihoods: Mapping[Hashable, Any] | None = None,
    weights: Any = None,
    smoothing: float = 0.0,
    iterations: int = 100,
    tolerance: float = 1e-4,
    progress: bool = False,
) -> Fit:
    """See `Network.fit`."""
    if not network.is_bayesian:
        raise TrainingError(
            "fit learns conditional tables, and this network has factors that are none; use the gradient of "
            "network.log_evidence(evidence, energies=...)"
        )
    if not (isinstance(smoothing, int | float) and 0 <= smoothing < np.inf):
        raise TrainingError(f"smoothing={smoothing!r}; expected a number >= 0, added to every count")
    iterations = check_int("iterations", iterations, 0, error=TrainingError)
    if not (isinstance(tolerance, int | float) and tolerance >= 0):
        raise TrainingError(f"tolerance={tolerance!r}; expected a number >= 0")
    codes = torch.from_numpy(network.codes(evidence))
    if not len(codes):
        raise TrainingError("no rows to learn from")
    soft = soft_evidence(network, likelihoods or {}, len(codes))
    weigh = _weights(weights, len(codes))
    history: list[float] = []
    report = None
    if progress:
        report = import_optional("tqdm.auto", "cli", "progress=False").tqdm(total=iterations, unit=" iterations")
    while True:
        log_z, counts, exact = expected_counts(network, codes, soft, weigh)
        require_possible(log_z)
        history.append(float(np.average(log_z.numpy(), weights=weigh)))
        gain = history[-1] - history[-2] if len(history) > 1 else np.inf
        if len(history) > iterations or abs(gain) <= tolerance:
            break
        if report is not None:
            report.update(1)
            report.set_postfix(log_evidence=history[-1])
        network = network.with_factors(_normalised(network, counts, smoothing))
    if report is not None:
        report.close()
    return Fit(network, history, abs(gain) <= tolerance, exact)


def _weights(given: Any, rows: int) -> np.ndarray:
    try:
        weights = np.ones(rows) if given is None else np.asarray(given, np.float64)
    except (TypeError, ValueError):
        weights = np.zeros(0)
    if weights.shape != (rows,) or not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise TrainingError(f"weights need a number >= 0 for each of {rows} rows, not all of them 0")
    return weights


def _normalised(network: Network, counts: Sequence[np.ndarray], smoothing: float) -> list[Factor]:
    """Tables of counts plus `smoothing`; where both are 0 for some labelling of the parents, the table stays."""
    factors = []
    for (scope, energies), child, count in zip(network.factors, network.children, counts, strict=True):
        assert child is not None
        axis = scope.index(child)
        count = count + smoothing
        total = count.sum(axis, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            learnt = -np.log(count / total)
        factors.append((scope, np.where(total > 0, learnt, energies)))
    return factors
