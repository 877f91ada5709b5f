"""Work captured once as a CUDA graph, also while other threads of the process train on streams of their own."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from contextlib import contextmanager

import torch

from torchlgm.ops.backend import compiling_ahead

WARM_UP = 3
_FULL = 0.5  # share of the memory that may be reserved before what is unused is given back
_ONE_AT_A_TIME = threading.Lock()  # PyTorch's allocator gives back no memory while a capture is under way


def capture(
    work: Callable[[], None],
    generator: torch.Generator,
    before: Callable[[], object] = lambda: None,
    warm_up: int = WARM_UP,
    shares_with: torch.cuda.CUDAGraph | None = None,
) -> torch.cuda.CUDAGraph:
    """`work`, which inspects no value and draws from `generator` alone, as a graph.

    It is run `warm_up` times first, after `before` each time, and once before these to compile its kernels; that run
    produces garbage. It uses the memory of the graph `shares_with`, if the two never run at the same time. Graphs that
    are captured on one stream share a cuBLAS workspace and must not be replayed at the same time. So a thread that has
    chosen a stream of its own captures on that one, and any other on a new one.
    """
    current = torch.cuda.current_stream()
    stream = torch.cuda.Stream() if current == torch.cuda.default_stream() else current
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    stream.wait_stream(current)
    with _ONE_AT_A_TIME, torch.cuda.stream(stream):
        if warm_up:
            before()
            with compiling_ahead():
                work()
        for _ in range(warm_up):
            before()
            work()
        _make_room()
        with _no_collection():
            pool = None if shares_with is None else shares_with.pool()
            graph.capture_begin(pool, capture_error_mode="thread_local")  # other threads are not restricted
            try:
                work()
            finally:
                graph.capture_end()
    current.wait_stream(stream)
    return graph


def _make_room() -> None:
    total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
    if torch.cuda.memory_reserved() > _FULL * total:
        gc.collect()
        torch.cuda.empty_cache()


@contextmanager
def _no_collection():
    """Garbage that holds CUDA resources must not be collected in the middle of a capture."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
