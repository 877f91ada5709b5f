"""What is not part of PyTorch's public interface and is used all the same; a new release may break it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import graph as autograd


def in_transform() -> bool:
    """Whether any transform of torch.func is under way: outside of them no tensor `is_functorch`."""
    return not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None  # pyright: ignore[reportAttributeAccessIssue]


def constant_when_compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Has torch.compile call `function` once, while it compiles, and take the result for a constant.

    As torch.compiler.assume_constant_result does, which takes seconds, since it imports the compiler.
    """
    function._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]
    return function


def only_vmap() -> bool:
    """Whether no transform of torch.func is active but vmap."""
    from torch._C._functorch import TransformType
    from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters

    return all(level.key() == TransformType.Vmap for level in retrieve_all_functorch_interpreters())


def run_backward(loss: Tensor, grad: Tensor) -> None:
    """`loss.backward(grad)`, which would import PyTorch's compiler, for seconds, to compare two shapes."""
    if not hasattr(autograd, "_engine_run_backward"):
        loss.backward(grad)
        return
    autograd._engine_run_backward((loss,), (grad,), False, False, (), allow_unreachable=True, accumulate_grad=True)


def count_steps(steps: list[Tensor]) -> None:
    """Add 1 to each, in one launch."""
    torch._foreach_add_(steps, 1)


def fused_adam(tensors: Sequence[Sequence[Tensor]], group: Mapping[str, Any], rate: float | Tensor) -> None:
    """One step of the kernel behind `torch.optim.Adam(fused=True)`, in place.

    Each of the `tensors` is a parameter with its gradient, its averages of gradients and of their squares, and its
    count of steps.
    """
    params, grads, means, squares, steps = map(list, zip(*tensors, strict=True))
    torch._fused_adam_(
        params,
        grads,
        means,
        squares,
        [],
        steps,
        lr=rate,
        beta1=group["betas"][0],
        beta2=group["betas"][1],
        weight_decay=group["weight_decay"],
        eps=group["eps"],
        amsgrad=False,
        maximize=group["maximize"],
    )
