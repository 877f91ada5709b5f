"""One message update in plain PyTorch: the readable truth that every faster form is tested against.

`m_ij(x_j) = lse_xi(t(x_i, x_j) + c(x_i)) - lse_xi(c(x_i))` with `t = -E/rho` and `c = b_i - m_ji`; max replaces lse
for max-product: formulas 1 and 2 of docs/kernels.md. Everything is compact (label 0 is the implicit one), elementwise
over edges, and broadcasts.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchlgm._utils.tracing import no_autocast
from torchlgm.ops.compact import full, largest, log_norm, softplus


def sum_message(t: Tensor, belief: Tensor, reverse: Tensor | None, small: bool = False) -> Tensor:
    """Sum-product. `t` `(*edge, S, T)`, `belief` and `reverse` `(B, *edge, S)` -> `(B, *edge, T)`.

    `small` promises that no entry of `t` differs from another or from 0 by more than `spread_limit`, which allows
    products of exponentials for sources with more than two labels.
    """
    c = belief if reverse is None else belief - reverse
    if t.shape[-2] == 1:
        return softplus(t.squeeze(-2) + c) - softplus(c)
    return (_product_of_exponentials if small else _log_sum_exp)(t, c)


def max_message(t: Tensor, belief: Tensor, reverse: Tensor | None) -> Tensor:
    """Max-product; shapes as in `sum_message`."""
    c = belief if reverse is None else belief - reverse
    return torch.relu((t + c.unsqueeze(-1)).amax(-2)) - largest(c)


def spread_limit(dtype: torch.dtype) -> float:
    """How far entries of `t` may differ before products of exponentials lose digits."""
    return 500.0 if dtype == torch.float64 else 50.0


def _log_sum_exp(t: Tensor, c: Tensor) -> Tensor:
    joint = t + c.unsqueeze(-1)  # (B, *edge, S, T)
    shift = torch.relu(joint.amax(-2)).detach()
    return torch.log(torch.exp(joint - shift.unsqueeze(-2)).sum(-2) + torch.exp(-shift)) + shift - log_norm(c)


def _product_of_exponentials(t: Tensor, c: Tensor) -> Tensor:
    """exp(c), shifted by its maximum, and exp(t), which needs no shift, meet in one batched matrix product."""
    shift = largest(c).detach()  # (B, *edge, 1)
    exp_c, rest = torch.exp(c - shift), torch.exp(-shift)
    with no_autocast(t):
        product = torch.einsum("b...s,...st->b...t", exp_c, torch.exp(t))
    norm = exp_c.sum(-1, keepdim=True) + rest
    return torch.log((product + rest) * (1 / norm))


def full_joint(t: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """log of the edge belief over all labels: `t` `(*edge, L, R)`, cavities `(B, *edge, L)`, `(B, *edge, R)`."""
    joint = full(full(t).transpose(-1, -2)).transpose(-1, -2)
    return joint + full(left).unsqueeze(-1) + full(right).unsqueeze(-2)
