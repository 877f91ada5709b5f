"""How many threads a CPU gives to a training."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

SMALL_STEP = 2**20  # edges of a batch
_lock = threading.Lock()
_small = 0  # trainings with small steps that are under way
_before = 1  # the number of threads to restore after the last of them


@contextmanager
def few_threads(edges: int) -> Iterator[None]:
    """One thread for small steps, of so many `edges` in a batch: more would gain little, and lose much on a machine
    that has other work to do."""
    global _small, _before
    if edges >= SMALL_STEP:
        yield
        return
    with _lock:
        if _small == 0:
            _before = torch.get_num_threads()
        _small += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _lock:
            _small -= 1
            if _small == 0:
                torch.set_num_threads(_before)
