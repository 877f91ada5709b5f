"""One message update in plain PyTorch: the readable truth that every faster form is tested against.

`m_ij(x_j) = lse_xi(t(x_i, x_j) + c(x_i)) - lse_xi(c(x_i))` with `t = -E/rho` and `c = b_i - m_ji`; max replaces lse
for max-product. Everything is compact (label 0 is the implicit one), elementwise over edges, and broadcasts.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from torchlgm.ops.compact import full, largest, log_norm, softplus
from torchlgm.surroundings import own_dtype


def sum_message(t: Tensor, belief: Tensor, reverse: Tensor | None, small: bool = False) -> Tensor:
    """Sum-product. `t` `(*edge, S, T)`, `belief` and `reverse` `(B, *edge, S)` -> `(B, *edge, T)`.

    `small` promises that no entry of `t` differs from another or from 0 by more than `spread_limit`, which allows
    products of exponentials for sources with more than two labels.
    """
    if t.shape[-2] == 1:
        return _binary_sum(t[..., 0, :], belief, reverse)
    c = belief if reverse is None else belief - reverse
    return (_product_of_exponentials if small else _log_sum_exp)(t, c)


def max_message(t: Tensor, belief: Tensor, reverse: Tensor | None) -> Tensor:
    """Max-product; shapes as in `sum_message`."""
    c = belief if reverse is None else belief - reverse
    return torch.relu((t + c.unsqueeze(-1)).amax(-2)) - largest(c)


def spread_limit(dtype: torch.dtype) -> float:
    """How far entries of `t` may lie apart before products of exponentials lose digits."""
    return 500.0 if dtype == torch.float64 else 50.0


def _log_sum_exp(t: Tensor, c: Tensor) -> Tensor:
    joint = t + c.unsqueeze(-1)  # (B, *edge, S, T)
    shift = torch.relu(joint.amax(-2)).detach()
    return torch.log(torch.exp(joint - shift.unsqueeze(-2)).sum(-2) + torch.exp(-shift)) + shift - log_norm(c)


def _product_of_exponentials(t: Tensor, c: Tensor) -> Tensor:
    """exp(t) and exp(c), each shifted by its maximum, meet in one batched matrix product over edges."""
    edge, (s, r) = t.shape[:-2], t.shape[-2:]
    shift_t = torch.relu(t.amax(-2)).detach()  # (*edge, T)
    shift_c = largest(c).detach()  # (B, *edge, 1)
    exp_t = torch.exp(t - shift_t.unsqueeze(-2)).reshape(-1, s, r)
    exp_c = torch.exp(c - shift_c).expand(c.shape[0], *edge, s)
    with own_dtype(t):
        product = torch.bmm(exp_c.reshape(c.shape[0], -1, s).transpose(0, 1), exp_t)  # (edges, B, T)
    product = product.transpose(0, 1).reshape(c.shape[0], *edge, r)
    rest = torch.exp(-shift_c)
    norm = exp_c.sum(-1, keepdim=True) + rest
    return torch.log((product + torch.exp(-shift_t) * rest) / norm) + shift_t


def _binary_sum(t: Tensor, belief: Tensor, reverse: Tensor | None) -> Tensor:
    if reverse is None or torch.compiler.is_compiling():  # a compiler itself decides what to keep for backward
        c = belief if reverse is None else belief - reverse
        return softplus(t + c) - softplus(c)
    return _BinarySum.apply(t, belief, reverse)  # pyright: ignore[reportReturnType]


class _BinarySum(Function):
    """softplus(t + c) - softplus(c) with c = belief - reverse, keeping for backward nothing but its inputs."""

    generate_vmap_rule = True

    @staticmethod
    def forward(t: Tensor, belief: Tensor, reverse: Tensor) -> Tensor:
        c = belief - reverse
        return softplus(t + c) - softplus(c)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        t, belief, reverse = ctx.saved_tensors
        c = belief - reverse
        through = grad * torch.sigmoid(t + c)
        to_c = through - grad * torch.sigmoid(c)
        return through.sum_to_size(t.shape), to_c.sum_to_size(belief.shape), -to_c.sum_to_size(reverse.shape)


def full_joint(t: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """log of the edge belief over all labels: `t` `(*edge, L, R)`, cavities `(B, *edge, L)`, `(B, *edge, R)`."""
    joint = full(full(t).transpose(-1, -2)).transpose(-1, -2)
    return joint + full(left).unsqueeze(-1) + full(right).unsqueeze(-2)
