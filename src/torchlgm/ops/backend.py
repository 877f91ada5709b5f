"""Which code computes messages: plain PyTorch everywhere, Triton kernels on a GPU, compiled C on a CPU."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from ctypes import CDLL
from functools import cache
from importlib.util import find_spec
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from torchlgm._utils.torch_private import constant_when_compiled, in_transform, only_vmap
from torchlgm._utils.tracing import is_functorch
from torchlgm.errors import InferenceError

if TYPE_CHECKING:
    from torchlgm.ops.launch import Launch

logger = logging.getLogger(__name__)
ENOUGH = 2**13  # entries of tables times samples from which on compiled code is taken on a CPU


class Backend(NamedTuple):
    """Kernels for one kind of device."""

    name: str
    lacking: Callable[[Tensor], str | None]  # why they cannot compute with tensors like this one; None: they can
    launcher: Callable[[], Launch]  # for one program


def _triton_lacks(x: Tensor) -> str | None:
    if not _installed():
        return "the package triton is not installed"
    if not (x.is_cuda or interpreted()):
        return f"its kernels need tensors on a GPU, not on {x.device} (or TRITON_INTERPRET=1)"
    return _number_type_lacks(x)


def _triton_launcher() -> Launch:
    from torchlgm.ops.triton.launcher import Launcher

    return Launcher()


def _native_lacks(x: Tensor) -> str | None:
    if x.device.type != "cpu":
        return f"its kernels need tensors on a CPU, not on {x.device}"
    if torch.jit.is_tracing():
        return "torch.jit.trace takes the plain code"
    return _number_type_lacks(x) or _why_not(_for_messages, x.dtype)


def _native_launcher() -> Launch:
    from torchlgm.ops.native import launcher

    return launcher


def _number_type_lacks(x: Tensor) -> str | None:
    if x.dtype in (torch.float32, torch.float64):
        return None
    return f"its kernels compute in float32 or float64, not {x.dtype}"


KERNELS = {
    "triton": Backend("triton", _triton_lacks, _triton_launcher),
    "native": Backend("native", _native_lacks, _native_launcher),
}
BACKENDS = ("auto", "eager", *KERNELS)


def _checked(name: str, of: str) -> str:
    if name not in BACKENDS:
        raise InferenceError(f"{of}={name!r}; known: {', '.join(BACKENDS)}")
    return name


_DEFAULT = _checked(os.environ.get("TORCHLGM_BACKEND") or "auto", "TORCHLGM_BACKEND")
_chosen: ContextVar[str] = ContextVar("backend", default=_DEFAULT)


@constant_when_compiled
def chosen() -> str:
    """The name of the backend that this thread, or this asynchronous task, has chosen."""
    return _chosen.get()


@contextmanager
def backend(name: str) -> Iterator[None]:
    """Choose what computes messages inside a `with` block, for this thread or asynchronous task alone.

    "eager" is plain PyTorch. "triton", on a GPU, and "native", on a CPU with a C compiler, ask for fused kernels and
    raise where they cannot run. "auto" takes those that can run and pay; it is the default everywhere else, unless
    the environment variable `TORCHLGM_BACKEND` names another.
    """
    token = _chosen.set(_checked(name, "backend"))
    try:
        yield
    finally:
        _chosen.reset(token)


def kernels(x: Tensor, work: float = inf, constants: Iterable[Tensor] = ()) -> Backend | None:
    """The kernels that are to compute with tensors like `x`; None for plain PyTorch.

    `work` is the number of entries of tables times that of samples, 0 where plain PyTorch is as good; `constants` must
    be the same for all models.
    """
    name = chosen()
    if name == "eager" or (name == "auto" and torch.compiler.is_compiling()):  # where sizes may be symbols
        return None
    if name == "auto" and work < (1 if x.is_cuda else ENOUGH):
        return None
    candidate = KERNELS[_kernels_named(name, x)]
    reason = _lacking(x, candidate, constants)
    if reason is None:
        return candidate
    if name != "auto":
        raise InferenceError(f"backend={name!r} was asked for, but {reason}; use backend='auto' or 'eager'")
    _log_fallback("computes the messages", candidate.name, reason)
    return None


def by_triton(x: Tensor) -> bool:
    """Whether kernels in Triton are to compute with tensors like `x`: for operations that have none in C."""
    return _kernels_named(chosen(), x) == "triton" and kernels(x) is not None


def _kernels_named(name: str, x: Tensor) -> str:
    return ("triton" if x.is_cuda else "native") if name == "auto" else name


def _lacking(x: Tensor, wanted: Backend, constants: Iterable[Tensor]) -> str | None:
    if torch.compiler.is_compiling():
        return "torch.compile and torch.export take the plain code"
    if not only_vmap():
        return "of the transforms in torch.func its kernels know only vmap"
    if in_transform() and any(map(is_functorch, constants)):
        return "its kernels take one layout and one rho for all models; map the parameters alone, not the buffers"
    return wanted.lacking(x)


def optional(load: Callable[[], CDLL], task: str) -> CDLL | None:
    """The compiled code that `load` gives. Where there is none: None, said in the log, unless it was asked for."""
    reason = _why_not(load)
    if reason is None:
        return load()
    if chosen() == "native":
        raise InferenceError(reason)
    _log_fallback(task, "native", reason)
    return None


@cache
def _why_not(load: Callable[..., CDLL], *arguments: object) -> str | None:
    """Tried once: a compiler that fails would fail again."""
    try:
        load(*arguments)
    except InferenceError as error:
        return str(error)
    return None


@cache
def _log_fallback(task: str, name: str, reason: str) -> None:
    """Once for each reason."""
    logger.info("plain PyTorch %s instead of backend %s: %s", task, name, reason)


def compiling_ahead() -> AbstractContextManager[None]:
    """For work on a GPU whose results nobody uses: compiles the kernels that it needs, several at the same time."""
    if not _installed():
        return nullcontext()
    from torchlgm.ops.triton import precompile as calls

    return calls.compiling_ahead()


def _for_messages(dtype: torch.dtype) -> CDLL:
    from torchlgm.ops.native.launcher import library

    return library(dtype)


@cache
def _installed() -> bool:
    return find_spec("triton") is not None


@cache
def interpreted() -> bool:
    """Whether Triton runs its kernels in Python, on any device: so it is with TRITON_INTERPRET=1."""
    from torchlgm._utils.triton_private import InterpretedFunction
    from torchlgm.ops.triton.kernels import send

    return isinstance(send, InterpretedFunction)
