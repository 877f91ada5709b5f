"""An RBM with 784 x 100 nodes against PGMax on the same device: belief propagation, alone and with gradients."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from common import steady
from races import Numbers, Task, difference, ours, pgmax
from subjects import Incorrect

from entries import Setting, Skipped, rows
from torchlgm.learn.cuda.capture import capture

TARGET = 10.0


def run(setting: Setting) -> dict[str, Any]:
    lacking = [name for name in ("jax", "pgmax") if find_spec(name) is None]
    if lacking:
        raise Skipped(f"needs {' and '.join(lacking)}, see benchmarks/README.md")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # PyTorch needs memory too
    import jax

    if setting.cuda and jax.default_backend() != "gpu":
        raise Skipped(f"needs JAX on the GPU; here it computes on the {jax.default_backend()}")
    left, right, batches = (20, 5, (7,)) if setting.quick else (784, 100, (1000, 250))
    cases = [(name, left, right, batches, name != "forward") for name in ("forward", "with gradients")]
    return {"rows": rows(row, cases, setting)}


def row(
    what: str, left: int, right: int, batches: tuple[int, ...], gradients: bool, setting: Setting
) -> dict[str, Any]:
    """At the first of `batches` that PGMax has memory for."""
    name = f"RBM {left}x{right}, {what}"
    for batch in batches:
        task = Task(name, left, right, 2, gradients, TARGET, batch)
        rival = pgmax(task, numbers := Numbers.of(task))
        try:
            theirs = rival()
        except Exception as error:  # JAX's own, of a kind that depends on its version
            if "RESOURCE_EXHAUSTED" not in str(error) or batch == batches[-1]:
                raise
            continue
        break
    mine = ours(task, numbers, setting.device)
    apart = difference(mine(), theirs)
    if not apart < (1e-3 if gradients else 1e-4):
        raise Incorrect(f"{name}: the answers differ from PGMax's by {apart:.2g}")
    launched = steady(mine.compute, setting.device, setting.repeats)
    replay, out = captured(mine.compute, setting.device)
    replay()
    again = difference(mine.answers(out), theirs)
    if not again < (1e-3 if gradients else 1e-4):
        raise Incorrect(f"{name}: captured answers differ from PGMax's by {again:.2g}")
    taken = steady(replay, setting.device, setting.repeats)
    rivals = steady(rival.compute, torch.device("cpu"), max(2, setting.repeats // 3))  # it waits for its device itself
    return {
        "task": name,
        "batch": batch,
        "iterations": task.iterations,
        "torchlgm ms": taken,
        "torchlgm, launched ms": launched,
        "PGMax ms": rivals,
        "times faster": rivals / taken,
        "target": TARGET,
        "largest difference": max(apart, again),
    }


def captured(work: Callable[[], Any], device: torch.device) -> tuple[Callable[[], None], list[Any]]:
    """`work` as a CUDA graph, and what it returns, which each replay overwrites; on the CPU, the call itself."""
    out: list[Any] = []

    def call() -> None:
        out[:] = work()

    if device.type != "cuda":
        return call, out
    return capture(call, torch.Generator(device)).replay, out
