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

COMPILERS = 8  # threads


class Call(NamedTuple):
    kernel: Any
    grid: tuple[int, ...]
    arguments: Sequence[Any]
    options: dict[str, Any]

    def launch(self, like: Tensor, calls: list[Call] | None) -> None:
        """On the device of `like`; or add it to `calls`, with types in place of tensors."""
        if calls is not None:
            types = [x.dtype if isinstance(x, Tensor) else x for x in self.arguments]
            calls.append(self._replace(arguments=types))
            return
        with torch.cuda.device_of(like):
            self.kernel[self.grid](*self.arguments, **self.options)

    def compile(self) -> None:
        self.kernel.warmup(*self.arguments, grid=self.grid, **self.options)


gathering: ContextVar[list[Call] | None] = ContextVar("gathering", default=None)


@contextmanager
def compiling_ahead() -> Iterator[None]:
    """Inside, kernels are not launched but gathered, so that what is computed has no meaning; at the end all of them
    are compiled."""
    if not hasattr(triton, "AsyncCompileMode"):
        yield
        return
    calls: list[Call] = []
    token = gathering.set(calls)
    try:
        yield
    finally:
        gathering.reset(token)
    copy_context().run(_compile, calls)  # the mode of Triton outlives a failure in its context


def _compile(calls: Sequence[Call]) -> None:
    with ThreadPoolExecutor(min(COMPILERS, os.cpu_count() or 1)) as pool, triton.AsyncCompileMode(pool):
        for call in calls:
            call.compile()
