"""Expected counts of the labellings of factors, and the gradients that are made of them.

The gradient of log p(evidence) in an energy is minus the expected count of its labelling. That of marginals is how
these counts change where rows lean a little towards what the gradient of a loss asks for: a difference of two of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from torchlgm.errors import DataError, EvidenceError, InferenceError
from torchlgm.inference import Exact, Method
from torchlgm.networks.solvers.base import Answer, Scopes, Soft, joint
from torchlgm.networks.solvers.elimination import eliminating, too_large

if TYPE_CHECKING:
    from torchlgm.networks.network import Network

STEP = 1e-5  # of logarithms of likelihoods; errors are its square and the rounding of numbers divided by it


def energies_like(network: Network, energies: Sequence[Tensor] | None) -> list[Tensor]:
    """Those of the factors, or what is given in their place."""
    if energies is None:
        return [torch.from_numpy(e) for _, e in network.factors]
    if not isinstance(energies, Sequence) or not all(isinstance(e, Tensor) for e in energies):
        raise DataError(f"energies of type {type(energies).__name__}; expected tensors, as in network.factors")
    if len(energies) != len(network.factors):
        raise DataError(f"{len(energies)} energies; expected one for each of {len(network.factors)} network.factors")
    for n, ((_, own), e) in enumerate(zip(network.factors, energies, strict=True)):
        if e.shape != own.shape:
            raise DataError(f"energies[{n}] of shape {tuple(e.shape)}; expected {own.shape}, as in network.factors")
    for (scope, _), e in zip(network.factors, energies, strict=True):
        if bool((e.isnan() | e.isneginf()).any()):
            raise DataError(f"the energies of a factor of the variables {scope} have NaN or -inf among them")
    return [e.double() for e in energies]


class ByCounts:
    """Exactly, with gradients to energies and likelihoods."""

    rows = 2**62  # nothing but the answers is held

    def __init__(
        self,
        network: Network,
        energies: Sequence[Tensor] | None,
        method: Method | Exact | None,
        device: torch.device,
    ) -> None:
        if isinstance(method, Method):
            raise InferenceError(f"{method!r} gives no gradients to tables; leave the method out, or use exact()")
        self.energies = energies_like(network, energies)
        device = self.energies[0].device if energies else device
        scopes = [scope for scope, _ in network.factors]
        factors = [(scope, e.detach().cpu().numpy()) for scope, e in zip(scopes, self.energies, strict=True)]
        self.counter = eliminating(network.labels, factors, method, device)

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


class _Marginals(torch.autograd.Function):
    """`(rows,)` log p of the evidence and `(rows, states)` of each variable asked about."""

    @staticmethod
    def forward(
        ctx: Any, solver: ByCounts, codes: Tensor, softened: tuple[int, ...], asked: Scopes, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.solver, ctx.codes, ctx.softened, ctx.asked = solver, codes, softened, asked
        soft = tensors[: len(softened)]
        ctx.save_for_backward(*soft)
        found = solver.counter.count(codes, dict(zip(softened, soft, strict=True)), None, asked, counted=False)
        if found.large.any():
            raise too_large(solver.counter.limit, found.entries)
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
            found = solver.counter.count(ctx.codes, leaning, weights.numpy(), [(v,) for v in ctx.softened])
            for into, part in zip(to_energies, found.counts, strict=True):
                into -= part
            for into, part, x in zip(to_soft, found.marginals, soft.values(), strict=True):
                into += weights.unsqueeze(1) * torch.from_numpy(part) / x
        found = zip(to_energies, solver.energies, strict=True)
        return None, None, None, None, *to_soft, *[torch.from_numpy(x).to(e.device) for x, e in found]
