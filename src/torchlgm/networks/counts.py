"""Expected counts of the labellings of factors, and the gradients that are made of them.

The gradient of log p(evidence) in an energy is minus the expected count of its labelling. That of marginals is how
these counts change where rows lean a little towards what the gradient of a loss asks for: a difference of two of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchlgm.errors import DataError, EvidenceError, InferenceError
from torchlgm.inference import Exact, Method
from torchlgm.networks.solvers import (
    ROW_ENTRIES,
    TREE_ENTRIES,
    Answer,
    ByTree,
    Scopes,
    Soft,
    joint,
    require_found,
    too_large,
)
from torchlgm.ops import Buckets, RowStatus

if TYPE_CHECKING:
    from torchlgm.networks.network import Network

ROWS = 4096  # counted at once
STEP = 1e-5  # of logarithms of likelihoods; errors are its square and the rounding of numbers divided by it


def energies_like(network: Network, energies: Sequence[Tensor] | None) -> list[Tensor]:
    """Those of the factors, or what is given in their place."""
    if energies is None:
        return [torch.from_numpy(e) for _, e in network.factors]
    shapes, expected = [tuple(e.shape) for e in energies], [e.shape for _, e in network.factors]
    if shapes != expected:
        wrong = next((pair for pair in zip(shapes, expected, strict=False) if pair[0] != pair[1]), None)
        what = f"{len(shapes)} energies for {len(expected)} factors" if wrong is None else f"{wrong[0]} for {wrong[1]}"
        raise DataError(f"energies of shapes {what}; expected a tensor like each of network.factors, in their order")
    return [e.double() for e in energies]


def exact_solver(
    network: Network,
    energies: Sequence[Tensor] | None,
    method: Method | Exact | None,
    device: torch.device,
    together: Scopes = (),
) -> ByCounts | ByTree:
    """Exact answers, with gradients to energies and likelihoods."""
    if isinstance(method, Method):
        raise InferenceError(f"{method!r} gives no gradients to tables; leave the method out, or use exact()")
    given = energies_like(network, energies)
    if energies:
        device = given[0].device
    scopes = [scope for scope, _ in network.factors]
    if device.type == "cpu" and Buckets.available():
        return ByCounts(network.labels, scopes, given, ROW_ENTRIES if method is None else method.limit)
    limit = TREE_ENTRIES["cuda" if device.type == "cuda" else "cpu"] if method is None else method.limit
    return ByTree(network.labels, list(zip(scopes, given, strict=True)), limit, device, together=together)


class Counts(NamedTuple):
    """log p of each row, the expected count of each labelling of each factor, and marginals of scopes asked about.

    Rows that are `large` are in none of them; `entries` are the numbers that the largest would need.
    """

    log_z: np.ndarray
    counts: list[np.ndarray]
    marginals: list[np.ndarray]
    large: np.ndarray
    entries: np.ndarray


class ByCounts:
    """Exactly, each row by itself in compiled C, with gradients."""

    rows = 2**62  # nothing but the answers is held

    def __init__(
        self, labels: Sequence[int], scopes: Sequence[Sequence[int]], energies: Sequence[Tensor], limit: int
    ) -> None:
        self.energies, self.limit = energies, limit
        self.buckets = Buckets(labels, scopes, [e.detach().numpy() for e in energies])

    def solve(self, codes: Tensor, soft: Soft, asked: Scopes) -> Answer:
        for v, likelihood in soft.items():
            if likelihood.requires_grad and bool((likelihood == 0).any()):
                raise EvidenceError(f"likelihoods with gradients must be > 0, and those of variable {v} are not")
        singles = list(dict.fromkeys(scope[:1] for scope in asked))
        log_z, *found = _Marginals.apply(self, codes, tuple(soft), singles, *soft.values(), *self.energies)  # pyright: ignore[reportGeneralTypeIssues]
        own = dict(zip(singles, found, strict=True))
        marginals = [
            own[scope] if len(scope) == 1 else joint(self, codes, soft, scope, own[scope[:1]]) for scope in asked
        ]
        one = torch.ones(len(codes), dtype=torch.bool)
        return Answer(marginals, log_z, one, one, torch.zeros(len(codes), len(asked), dtype=torch.float64))

    def count(
        self, codes: Tensor, soft: Soft, weights: np.ndarray | None, asked: Scopes = (), counted: bool = True
    ) -> Counts:
        """Counts of rows times `weights`."""
        log_z = np.empty(len(codes))
        counts = [np.zeros(e.shape) for e in self.energies]
        marginals = [np.empty((len(codes), *[self.buckets.labels[v] for v in scope])) for scope in asked]
        large, entries = np.zeros(len(codes), dtype=bool), np.zeros(len(codes))
        for first in range(0, len(codes), ROWS):
            rows = slice(first, first + ROWS)
            found = self.buckets.solve(
                codes[rows].numpy(),
                asked,
                {v: x[rows].detach().numpy() for v, x in soft.items()},
                limit=self.limit,
                weights=None if weights is None else weights[rows],
                counted=counted,
            )
            large[rows], entries[rows] = found.status == RowStatus.TOO_LARGE, found.entries
            require_found(found.status)
            log_z[rows] = found.log_z
            for into, part in zip(counts, found.counts or (), strict=False):
                into += part
            for into, part in zip(marginals, found.marginals, strict=True):
                into[rows] = part
        return Counts(log_z, counts, marginals, large, entries)


class _Marginals(torch.autograd.Function):
    """`(rows,)` log p of the evidence and `(rows, states)` of each variable asked about."""

    @staticmethod
    def forward(
        ctx: Any, solver: ByCounts, codes: Tensor, softened: tuple[int, ...], asked: Scopes, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.solver, ctx.codes, ctx.softened, ctx.asked = solver, codes, softened, asked
        soft = tensors[: len(softened)]
        ctx.save_for_backward(*soft)
        found = solver.count(codes, dict(zip(softened, soft, strict=True)), None, asked, counted=False)
        if found.large.any():
            raise too_large(solver.limit, found.entries)
        return torch.from_numpy(found.log_z), *map(torch.from_numpy, found.marginals)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        solver, soft = ctx.solver, dict(zip(ctx.softened, ctx.saved_tensors, strict=True))
        lean = {v: g for (v,), g in zip(ctx.asked, grads, strict=True) if bool(g.any())}
        most = torch.stack([g.abs().amax(1) for g in (grad.new_zeros(len(grad), 1), *lean.values())]).amax(0)
        step = torch.where(most > 0, STEP / most, 1.0)
        to_soft = [torch.zeros_like(x) for x in soft.values()]
        to_energies = [np.zeros(e.shape) for e in solver.energies]
        if not bool(grad.isfinite().all() & most.isfinite().all()):
            lean, grad = {}, grad * torch.nan
        for sign in (1, -1) if lean else (0,):
            leaning = soft | {v: soft.get(v, 1.0) * torch.exp(sign * step.unsqueeze(1) * g) for v, g in lean.items()}
            weights = grad / 2 + sign / (2 * step) if sign else grad
            found = solver.count(ctx.codes, leaning, weights.numpy(), [(v,) for v in ctx.softened])
            for into, part in zip(to_energies, found.counts, strict=True):
                into -= part
            for into, part, x in zip(to_soft, found.marginals, soft.values(), strict=True):
                into += weights.unsqueeze(1) * torch.from_numpy(part) / x
        return None, None, None, None, *to_soft, *map(torch.from_numpy, to_energies)
