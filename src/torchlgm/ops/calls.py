"""Calls of Triton kernels: they are launched, or gathered to be compiled ahead, several at the same time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from triton.runtime.jit import MockTensor

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

    def compile(self) -> Any:
        """The kernel, or Triton's promise of it, or None where it is not compiled: an interpreter's, say."""
        kernel, grid, arguments, options = self.call
        with torch.cuda.device(self.device):
            return kernel.warmup(*map(_mock, arguments), grid=grid, **options)

    def load(self, made: Any) -> None:
        """Make what Triton otherwise makes when it first launches a kernel, a small program in C among it."""
        made = made.result() if hasattr(made, "result") else made
        with torch.cuda.device(self.device):
            _ = made.run


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
    with ThreadPoolExecutor(min(COMPILERS, os.cpu_count() or 1)) as pool:
        with triton.AsyncCompileMode(pool):
            made = [call.compile() for call in calls]
        once = {id(kernel): (call, kernel) for call, kernel in zip(calls, made, strict=True) if kernel is not None}
        list(pool.map(lambda pair: pair[0].load(pair[1]), once.values()))
