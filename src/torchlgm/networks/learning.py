"""Learning the tables of a network from rows with holes: gradients of the log-evidence, and EM."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchlgm._utils.optional import import_optional
from torchlgm.errors import DataError, TooLargeError, TrainingError
from torchlgm.networks.evidence import require_possible, soft_evidence
from torchlgm.networks.factors import Factor
from torchlgm.networks.solvers import ROW_ENTRIES, TREE_ENTRIES, ByTree, Soft, too_large
from torchlgm.ops import Buckets, RowStatus

if TYPE_CHECKING:
    from torchlgm.networks.network import Network

ROWS = 4096  # of which expected counts are computed at once


class Fit(NamedTuple):
    """The `network` with its new tables, and the mean log-evidence of a row before each iteration and at the end."""

    network: Network
    log_evidence: list[float]
    converged: bool


def log_evidence(
    network: Network,
    evidence: Any,
    likelihoods: Mapping[Hashable, Any] | None = None,
    energies: Sequence[Tensor] | None = None,
) -> Tensor:
    """See `Network.log_evidence`."""
    codes = torch.from_numpy(network.codes(evidence))
    soft = soft_evidence(network, likelihoods or {}, len(codes))
    given = _energies(network, energies)
    if Buckets.available() and all(e.device.type == "cpu" for e in given):
        return _LogEvidence.apply(network, codes, soft, *given)  # pyright: ignore[reportReturnType]
    return _by_tree(network, given, codes, soft)


def _energies(network: Network, energies: Sequence[Tensor] | None) -> list[Tensor]:
    if energies is None:
        return [torch.from_numpy(e) for _, e in network.factors]
    shapes, expected = [tuple(e.shape) for e in energies], [e.shape for _, e in network.factors]
    if shapes != expected:
        wrong = next((pair for pair in zip(shapes, expected, strict=False) if pair[0] != pair[1]), None)
        what = f"{len(shapes)} energies for {len(expected)} factors" if wrong is None else f"{wrong[0]} for {wrong[1]}"
        raise DataError(f"energies of shapes {what}; expected a tensor like each of network.factors, in their order")
    return [e.double() for e in energies]


def _by_tree(network: Network, energies: Sequence[Tensor], codes: Tensor, soft: Soft) -> Tensor:
    scopes = [scope for scope, _ in network.factors]
    device = energies[0].device
    limit = TREE_ENTRIES["cuda" if device.type == "cuda" else "cpu"]
    tree = ByTree(network.labels, list(zip(scopes, energies, strict=True)), limit, device)
    parts = range(0, len(codes), tree.rows)
    return torch.cat(
        [
            tree.solve(codes[i : i + tree.rows], {v: x[i : i + tree.rows] for v, x in soft.items()}, ()).log_z
            for i in parts
        ]
    )


class _LogEvidence(torch.autograd.Function):
    """The gradient in an energy is minus the expected count of its labelling."""

    @staticmethod
    def forward(ctx: Any, network: Network, codes: Tensor, soft: Soft, *energies: Tensor) -> Tensor:
        ctx.network, ctx.codes, ctx.soft = network, codes, soft
        ctx.save_for_backward(*energies)
        return _counted(network, energies, codes, soft, None, counted=False)[0]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        counts = _counted(ctx.network, ctx.saved_tensors, ctx.codes, ctx.soft, grad.numpy())[1]
        return None, None, None, *[-torch.from_numpy(c) for c in counts]


def _counted(
    network: Network,
    energies: Sequence[Tensor],
    codes: Tensor,
    soft: Soft,
    weights: np.ndarray | None,
    counted: bool = True,
) -> tuple[Tensor, list[np.ndarray]]:
    """log p of each row, and the expected count of each labelling of each factor, by compiled code."""
    arrays = [e.detach().numpy() for e in energies]
    solver = Buckets(network.labels, [scope for scope, _ in network.factors], arrays)
    log_z, total = np.empty(len(codes)), [np.zeros(e.shape) for e in arrays]
    for first in range(0, len(codes), ROWS):
        rows = slice(first, first + ROWS)
        found = solver.solve(
            codes[rows].numpy(),
            soft={v: x[rows].numpy() for v, x in soft.items()},
            limit=ROW_ENTRIES,
            weights=None if weights is None else weights[rows],
            counted=counted,
        )
        if (found.status == RowStatus.TOO_LARGE).any():
            raise too_large(ROW_ENTRIES, found.entries)
        if (found.status == RowStatus.LOST).any():
            raise TooLargeError("probabilities of a row are too small for numbers of 64 bits; scale the energies down")
        log_z[rows] = found.log_z
        for into, part in zip(total, found.counts or (), strict=False):
            into += part
    return torch.from_numpy(log_z), total


def expected_counts(
    network: Network, codes: Tensor, soft: Soft, weights: np.ndarray | None = None
) -> tuple[Tensor, list[np.ndarray]]:
    """log p of each row, and the expected count of each labelling of each factor."""
    energies = _energies(network, None)
    if Buckets.available():
        return _counted(network, energies, codes, soft, weights)
    leaves = [e.clone().requires_grad_() for e in energies]
    log_z = _by_tree(network, leaves, codes, soft)
    weighted = log_z if weights is None else log_z * torch.from_numpy(weights)
    counts = torch.autograd.grad(weighted.sum(), leaves)
    return log_z.detach(), [-c.numpy() for c in counts]


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
    codes = torch.from_numpy(network.codes(evidence))
    if not len(codes):
        raise TrainingError("no rows to learn from")
    soft = soft_evidence(network, likelihoods or {}, len(codes))
    weigh = np.ones(len(codes)) if weights is None else np.asarray(weights, np.float64)
    if weigh.shape != (len(codes),) or not (np.isfinite(weigh).all() and (weigh >= 0).all() and weigh.any()):
        raise TrainingError(f"weights need a number >= 0 for each of {len(codes)} rows, not all of them 0")
    history: list[float] = []
    report = None
    if progress:
        report = import_optional("tqdm.auto", "cli", "progress=False").tqdm(total=iterations, unit=" iterations")
    while True:
        log_z, counts = expected_counts(network, codes, soft, weigh)
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
    return Fit(network, history, abs(gain) <= tolerance)


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
