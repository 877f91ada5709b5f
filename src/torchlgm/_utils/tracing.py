"""What a caller's tracing, transforms and autocast allow: looking at values, computing in the dtype of the tensors."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

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


def no_autocast(x: Tensor) -> AbstractContextManager[object]:
    """A context that keeps torch.autocast off on the device of `x`."""
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()
