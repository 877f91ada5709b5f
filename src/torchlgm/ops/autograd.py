"""Functions with a gradient written by hand, for one model or, under torch.func.vmap, for several at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd import Function

from torchlgm._utils.torch_private import in_transform
from torchlgm._utils.tracing import is_functorch


class FusedFunction(Protocol):
    """Computes with a leading axis of models on every tensor; `eager` is the same for one model, in plain PyTorch."""

    def forward(self, tensors: Sequence[Tensor]) -> tuple[Sequence[Tensor], Sequence[Tensor | None]]:
        """The outputs, and what `backward` wants to see again."""
        ...

    def backward(
        self, saved: Sequence[Tensor | None], wanted: Sequence[bool], grads: Sequence[Tensor | None]
    ) -> Sequence[Tensor | None]: ...

    def eager(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]: ...


def call(function: FusedFunction, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The outputs of `function`, differentiable any number of times: beyond the first by way of `eager`."""
    return [x.squeeze(0) for x in _apply(function, [x.unsqueeze(0) for x in tensors])]


def _apply(function: FusedFunction, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    mapped = in_transform() and any(map(is_functorch, tensors))
    return (_Mapped if mapped else _Once).apply(function, *tensors)  # pyright: ignore[reportReturnType]


class _Once(Function):
    @staticmethod
    def forward(ctx: Any, function: FusedFunction, *tensors: Tensor) -> tuple[Tensor, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        outputs, saved = function.forward(tensors)
        ctx.function, ctx.count = function, len(tensors)
        ctx.save_for_backward(*tensors, *saved)
        ctx.set_materialize_grads(False)
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        kept = ctx.saved_tensors  # to be looked at once only, where activations are checkpointed
        tensors, saved = kept[: ctx.count], kept[ctx.count :]
        wanted = ctx.needs_input_grad[1:]
        if all(g is None for g in grads):
            return (None,) * (1 + ctx.count)
        if not torch.is_grad_enabled():
            return None, *ctx.function.backward(saved, wanted, grads)
        return None, *_eager_gradient(ctx.function, tensors, wanted, grads)


def _eager_gradient(
    function: FusedFunction, tensors: Sequence[Tensor], wanted: Sequence[bool], grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """The gradient as something to be differentiated again."""
    outputs = torch.func.vmap(lambda *one: tuple(function.eager(one)))(*tensors)  # pyright: ignore[reportArgumentType]
    reached = [(out, g) for out, g in zip(outputs, grads, strict=True) if g is not None]
    gradients = iter(
        torch.autograd.grad(
            [out for out, _ in reached],
            [x for x, w in zip(tensors, wanted, strict=True) if w],
            [g for _, g in reached],
            create_graph=True,
            allow_unused=True,
        )
    )
    return [next(gradients) if w else None for w in wanted]


class _Mapped(Function):
    """`_Once` under torch.func.vmap: the mapped axis joins that of the models."""

    @staticmethod
    def forward(function: FusedFunction, *tensors: Tensor) -> tuple[Tensor, ...]:
        raise NotImplementedError("only its vmap rule is ever called")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None: ...

    @staticmethod
    def vmap(  # pyright: ignore[reportIncompatibleMethodOverride]
        info: Any, in_dims: tuple[int | None, ...], function: FusedFunction, *tensors: Tensor
    ) -> tuple[Any, Any]:
        size = info.batch_size
        joined = [
            (x.unsqueeze(0).expand(size, *x.shape) if dim is None else x.movedim(dim, 0)).flatten(0, 1)
            for x, dim in zip(tensors, in_dims[1:], strict=True)
        ]
        outputs = _apply(function, joined)
        return tuple(x.unflatten(0, (size, -1)) for x in outputs), (0,) * len(outputs)
