"""What hidden nodes tell a class: sums of softplus(a + w), the log of what each sums out to, and their gradients."""

from __future__ import annotations

from ctypes import CDLL, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from torchlgm._utils.tracing import is_traced
from torchlgm.ops.backend import kernels, optional
from torchlgm.ops.compact import softplus
from torchlgm.ops.native.threads import usable_threads

SHARE = 2**15  # numbers that are worth another thread
AT_ONCE = 2**24  # numbers that plain PyTorch keeps


def softplus_sum(a: Tensor, w: Tensor) -> Tensor:
    """The sum over h of log(1 + exp(a_h + w_hc)): `a` `(M, H, B)` and `w` `(M, H, C)` -> `(M, C, B)`.

    With binary hidden nodes h, whose log-odds are `a` but for the class, this is what they add to the log of the
    belief in class c. By compiled C where there is some, which keeps nothing of the size `(M, H, C, B)`.
    """
    if is_traced(a):
        return softplus(a.unsqueeze(2) + w.unsqueeze(-1)).sum(1)
    return _SoftplusSum.apply(a, w)  # pyright: ignore[reportReturnType]


class _SoftplusSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, a: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(a, w)
        native = _native(a, w)
        if native is None:
            return _plain(a, w)
        a, w = a.contiguous(), w.contiguous()
        out = a.new_empty(a.shape[0], w.shape[2], a.shape[2])
        native.softplus_sum(*_at(a, w, out), *_sizes(a, w))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        a, w = ctx.saved_tensors
        native = _native(a, w)
        if native is None:
            return _plain_backward(a, w, grad)
        a, w, grad = a.contiguous(), w.contiguous(), grad.contiguous()
        a_grad, w_grad = torch.empty_like(a), torch.empty_like(w)
        native.softplus_sum_backward(*_at(a, w, grad, a_grad, w_grad), *_sizes(a, w))
        return a_grad, w_grad


def _plain(a: Tensor, w: Tensor) -> Tensor:
    parts = a.split(max(1, AT_ONCE // (a.shape[1] * w.numel())), -1)
    return torch.cat([softplus(part.unsqueeze(2) + w.unsqueeze(-1)).sum(1) for part in parts], -1)


def _plain_backward(a: Tensor, w: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    part = torch.sigmoid(a.unsqueeze(2) + w.unsqueeze(-1)) * grad.unsqueeze(1)
    return part.sum(2), part.sum(3)


def _native(a: Tensor, w: Tensor) -> CDLL | None:
    """Compiled code, where it can run and pays."""
    if a.dtype != torch.float32 or a.is_cuda:
        return None
    chosen = kernels(a, a.numel() * w.shape[2])
    return optional(_library, "adds up softplus") if chosen is not None and chosen.name == "native" else None


@cache
def _library() -> CDLL:
    from torchlgm.ops.native.launcher import compiled

    library = compiled(Path(__file__).parent / "native" / "softplus.c")
    for function, tensors in ((library.softplus_sum, 3), (library.softplus_sum_backward, 5)):
        function.argtypes = [c_void_p] * tensors + [c_int64] * 5
        function.restype = None
    return library


def _at(*tensors: Tensor) -> list[int]:
    return [x.data_ptr() for x in tensors]


def _sizes(a: Tensor, w: Tensor) -> tuple[int, ...]:
    (models, hidden, samples), labels = a.shape, w.shape[2]
    work = models * hidden * samples * labels
    return models, hidden, samples, labels, usable_threads(work // SHARE)
