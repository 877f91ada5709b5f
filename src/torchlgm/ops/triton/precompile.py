"""Calls of Triton kernels: they are launched, or gathered to be compiled ahead, several at the same time."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from time import monotonic
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from torchlgm._utils.triton_private import MockTensor

logger = logging.getLogger(__name__)
COMPILERS = 8  # threads


class Call(NamedTuple):
    kernel: Any
    grid: tuple[int, ...]
    arguments: Sequence[Any]
    options: dict[str, Any]

    def launch(self, like: Tensor, calls: list[Gathered] | None) -> None:
        """On the device of `like`; or add it to `calls`, with types in place of tensors."""
        if calls is not None:
            types = [_type(x) for x in self.arguments]
            calls.append(Gathered(self._replace(arguments=types), like.get_device()))
            return
        with torch.cuda.device_of(like):
            self.kernel[self.grid](*self.arguments, **self.options)


def _type(argument: Any) -> Any:
    """In place of a tensor its type; tuples have them inside."""
    if isinstance(argument, tuple):
        return tuple(map(_type, argument))
    return argument.dtype if isinstance(argument, Tensor) else argument


def _mock(argument: Any) -> Any:
    """In place of a type what Triton takes for a tensor when it compiles."""
    if isinstance(argument, tuple):
        return tuple(map(_mock, argument))
    return MockTensor(argument) if isinstance(argument, torch.dtype) else argument


class Gathered(NamedTuple):
    call: Call
    device: int  # -1 without a GPU

    def compile(self) -> None:
        kernel, grid, arguments, options = self.call
        with torch.cuda.device(self.device):
            kernel.warmup(*map(_mock, arguments), grid=grid, **options)


Calls = list[Gathered] | None
gathering: ContextVar[Calls] = ContextVar("gathering", default=None)


@contextmanager
def compiling_ahead() -> Iterator[None]:
    """Inside, kernels are not launched but gathered, so that what is computed has no meaning; at the end all of them
    are compiled and loaded."""
    if not hasattr(triton, "AsyncCompileMode"):
        yield
        return
    calls: list[Gathered] = []
    token = gathering.set(calls)
    try:
        yield
    finally:
        gathering.reset(token)
    copy_context().run(_compile, calls)  # the mode of Triton outlives a failure in its context


def _compile(calls: Sequence[Gathered]) -> None:
    start = monotonic()
    with ThreadPoolExecutor(min(COMPILERS, os.cpu_count() or 1)) as pool, triton.AsyncCompileMode(Loading(pool)):  # pyright: ignore[reportArgumentType]
        for call in calls:
            call.compile()
    logger.info("compiled the Triton kernels of %d calls in %.1f s", len(calls), monotonic() - start)


class Loading:
    """Has kernels compiled in a pool, and loaded before anybody else knows of them.

    Triton otherwise loads a kernel when it is first launched, for which it compiles a small program in C, and lets
    another thread launch it while that is under way.
    """

    def __init__(self, pool: Executor) -> None:
        self.pool = pool

    def submit(self, compile_kernel: Callable[[], Any]) -> Future[Any]:
        device = torch.cuda.current_device() if torch.cuda.is_available() else -1
        return self.pool.submit(_loaded, compile_kernel, device)


def _loaded(compile_kernel: Callable[[], Any], device: int) -> Any:
    kernel = compile_kernel()
    with torch.cuda.device(device):
        _ = kernel.run
    return kernel
