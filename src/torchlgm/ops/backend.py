"""Which code computes messages: plain PyTorch everywhere, Triton kernels on a GPU, compiled C on a CPU."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from importlib.util import find_spec
from math import inf
from typing import Any

import torch
from torch import Tensor

from torchlgm._utils.tracing import is_functorch, only_vmap
from torchlgm.errors import InferenceError

BACKENDS = ("auto", "eager", "triton", "native")
ENOUGH = 2**13  # entries of tables times samples from which on compiled code is taken on a CPU


def _known(name: str, of: str) -> str:
    if name not in BACKENDS:
        raise InferenceError(f"{of}={name!r}; known: {', '.join(BACKENDS)}")
    return name


_chosen = [_known(os.environ.get("TORCHLGM_BACKEND") or "auto", "TORCHLGM_BACKEND")]


@contextmanager
def backend(name: str) -> Iterator[None]:
    """Choose what computes messages inside a `with` block.

    "eager" is plain PyTorch. "triton", on a GPU, and "native", on a CPU with a C compiler, ask for fused kernels and
    raise where they cannot run. "auto" takes those that can run and pay; it is the default everywhere else, unless
    the environment variable `TORCHLGM_BACKEND` names another.
    """
    _chosen.append(_known(name, "backend"))
    try:
        yield
    finally:
        _chosen.pop()


def fused(x: Tensor, work: float = inf, constants: Iterable[Tensor] = ()) -> bool:
    """Whether kernels are to compute with tensors like `x`.

    `work` is the number of entries of tables times that of samples, 0 where plain PyTorch is as good; `constants` must
    be the same for all models.
    """
    name = _chosen[-1]
    if name == "eager" or (name == "auto" and torch.compiler.is_compiling()):  # where sizes may be symbols
        return False
    if name == "auto" and work < (1 if x.is_cuda else ENOUGH):
        return False
    lacking = _lacking(x, _kernels(x))
    if lacking is None and any(map(is_functorch, constants)):
        lacking = "its kernels take one layout and one rho for all models; map the parameters alone, not the buffers"
    if lacking and name != "auto":
        raise InferenceError(f"backend={name!r} was asked for, but {lacking}; use backend='auto' or 'eager'")
    return lacking is None


def by_triton(x: Tensor) -> bool:
    """Whether kernels in Triton are to compute with tensors like `x`: for operations that have none in C."""
    return _kernels(x) == "triton" and fused(x)


def _kernels(x: Tensor) -> str:
    if _chosen[-1] == "auto":
        return "triton" if x.is_cuda else "native"
    return _chosen[-1]


def _lacking(x: Tensor, kernels: str) -> str | None:
    if torch.compiler.is_compiling():
        return "torch.compile and torch.export take the plain code"
    if kernels == "triton" and not _installed():
        return "the package triton is not installed"
    if kernels == "triton" and not (x.is_cuda or interpreted()):
        return f"its kernels need tensors on a GPU, not on {x.device} (or TRITON_INTERPRET=1)"
    if kernels == "native" and x.device.type != "cpu":
        return f"its kernels need tensors on a CPU, not on {x.device}"
    if x.dtype not in (torch.float32, torch.float64):
        return f"its kernels compute in float32 or float64, not {x.dtype}"
    if not only_vmap():
        return "of the transforms in torch.func its kernels know only vmap"
    if kernels == "native" and torch.jit.is_tracing():
        return "torch.jit.trace takes the plain code"
    return _not_compiled(x.dtype) if kernels == "native" else None


def launcher(x: Tensor) -> Any:
    """The kernels for tensors like `x`, a `Launch` for one program."""
    if _kernels(x) == "triton":
        from torchlgm.ops.triton.launcher import Launcher

        return Launcher()
    from torchlgm.ops.native import launcher as cpu

    return cpu


def compiling_ahead() -> AbstractContextManager[None]:
    """For work on a GPU whose results nobody uses: compiles the kernels that it needs, several at the same time."""
    if not _installed():
        return nullcontext()
    from torchlgm.ops.triton import precompile as calls

    return calls.compiling_ahead()


@cache
def _not_compiled(dtype: torch.dtype) -> str | None:
    """Why there is no compiled code for numbers of `dtype`."""
    from torchlgm.ops.native.launcher import library

    try:
        library(dtype)
    except InferenceError as error:
        return str(error)
    return None


@cache
def _installed() -> bool:
    return find_spec("triton") is not None


@cache
def interpreted() -> bool:
    """Whether Triton runs its kernels in Python, on any device: so it is with TRITON_INTERPRET=1."""
    from triton.runtime.interpreter import InterpretedFunction

    from torchlgm.ops.triton.kernels import send

    return isinstance(send, InterpretedFunction)
