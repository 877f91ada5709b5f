"""What the surroundings of a call allow: looking at values, and computing in the dtype of the tensors at hand."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def is_traced(x: Tensor) -> bool:
    """Whether the values of `x` cannot be looked at now.

    So it is in torch.compile and torch.export, inside the transforms of torch.func that `x` takes part in, and while a
    CUDA graph is captured.
    """
    if torch.compiler.is_compiling():
        return True
    if x.is_cuda and torch.cuda.is_current_stream_capturing():
        return True
    return is_functorch(x)


def is_functorch(x: Tensor) -> bool:
    """Whether `x` takes part in a transform of torch.func."""
    return not torch.compiler.is_compiling() and torch.func.debug_unwrap(x) is not x


def in_transform() -> bool:
    """Whether any transform of torch.func is under way: outside of them no tensor `is_functorch`."""
    return not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None


def constant_when_compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Has torch.compile call `function` once, while it compiles, and take the result for a constant.

    As torch.compiler.assume_constant_result does, which takes seconds, since it imports the compiler.
    """
    function._dynamo_marked_constant = True  # pyright: ignore[reportFunctionMemberAccess]
    return function


def no_autocast(x: Tensor) -> AbstractContextManager[object]:
    """A context that keeps torch.autocast off on the device of `x`."""
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def only_vmap() -> bool:
    """Whether no transform of torch.func is under way but vmap."""
    from torch._C._functorch import TransformType
    from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters

    return all(level.key() == TransformType.Vmap for level in retrieve_all_functorch_interpreters())
