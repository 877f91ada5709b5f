"""A message and its sum at the target's nodes in one operation, with a backward written by hand.

The readable form is `sum_message` between `gather` and `scatter`. For sources with two labels, the common case, this
one keeps nothing for backward but its inputs and passes over memory about half as often.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from torchlgm._utils.tracing import is_traced
from torchlgm.layout import Layout
from torchlgm.ops.compact import softplus
from torchlgm.ops.eager import max_message, sum_message


def send_sum(
    layout: Layout,
    side: int,
    t: Tensor,  # (*edge, S, T)
    rho: Tensor | None,  # (*edge, 1)
    belief: Tensor,  # (B, nodes, S)
    reverse: Tensor | None,  # (B, *edge, S)
    small: bool = False,
) -> tuple[Tensor, Tensor]:
    """The sum-product message out of `side`, `(B, *edge, T)`, and its sum, weighted by rho, `(B, nodes, T)`."""
    if t.shape[-2] == 1 and not torch.compiler.is_compiling():  # a compiler itself decides what to keep
        return _BinarySend.apply(layout, side, t.squeeze(-2), rho, belief, reverse)  # pyright: ignore[reportReturnType]
    edges = sum_message(t, layout.gather(belief, side), reverse, small)
    return edges, layout.scatter(edges if rho is None else edges * rho, 1 - side)


def send_max(
    layout: Layout, side: int, t: Tensor, rho: Tensor | None, belief: Tensor, reverse: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The max-product message and its sum, as in `send_sum`."""
    edges = max_message(t, layout.gather(belief, side), reverse)
    return edges, layout.scatter(edges if rho is None else edges * rho, 1 - side)


class _BinarySend(Function):
    """softplus(t + c) - softplus(c) with c = belief - reverse, and its weighted sum over edges.

    Formulas 1 and 4 of docs/kernels.md for two labels.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        layout: Layout, side: int, t: Tensor, rho: Tensor | None, belief: Tensor, reverse: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        c = layout.gather(belief, side)
        c = c if reverse is None else c - reverse
        edges = softplus(t + c).sub_(softplus(c))
        return edges, layout.scatter(edges if rho is None else edges * rho, 1 - side)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.layout, ctx.side, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, to_edges: Tensor | None, to_inflow: Tensor | None) -> tuple[Any, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        layout, side = ctx.layout, ctx.side
        t, rho, belief, reverse = ctx.saved_tensors
        grad = to_edges
        if to_inflow is not None:
            grad = layout.gather(to_inflow, 1 - side)
            grad = grad if rho is None else grad * rho
            grad = grad if to_edges is None else to_edges + grad
        if grad is None:
            return (None,) * 6
        c = layout.gather(belief, side)
        c = c if reverse is None else c - reverse
        through, slope = torch.sigmoid(t + c), torch.sigmoid(c)
        if torch.is_grad_enabled() or is_traced(grad):
            to_c, through = (through - slope) * grad, through * grad
        else:
            to_c = (through - slope).mul_(grad)
            through = through.mul_(grad)
        to_c = to_c.sum(-1, keepdim=True)
        edges = (to_c.shape[0], *layout.edge_shape, 1)
        to_belief = layout.scatter(to_c.expand(edges), side).sum_to_size(belief.shape)
        to_reverse = None if reverse is None else (-to_c).sum_to_size(reverse.shape)
        return None, None, through.sum_to_size(t.shape), None, to_belief, to_reverse
