"""How many threads compiled code may use."""

from __future__ import annotations

import os

import torch

_several = False  # whether several have computed in this process


def usable_threads(worth: int, most: int | None = None) -> int:
    """Threads for work that is worth so many; at `most` as many as PyTorch has."""
    global _several
    threads = max(1, min(torch.get_num_threads() if most is None else most, worth))
    _several = _several or threads > 1
    return threads


def _after_fork() -> None:
    """OpenMP's threads do not come along into a forked process: it would wait for them for ever, in PyTorch too."""
    if _several:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
