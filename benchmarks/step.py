"""What training costs on the CPU: milliseconds of a step of the paper's models, by one sweep of belief propagation and
by sequential TRW with 5 iterations, beside networks of the same shape, and the memory that inference needs."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from common import machine, milliseconds, save, table
from subjects import KINDS, LIKELIHOOD, METHOD, ONE_SWEEP, check_training, lgm_predictor
from torch import Tensor, nn

from torchlgm.baselines import network

METHODS = {"sweep": ONE_SWEEP, "trw": METHOD}


def batch_of(size: int) -> tuple[Tensor, Tensor]:
    return torch.rand(size, 1, 28, 28), torch.randint(0, 10, (size,))


def training_step(work: nn.Module, batch: int) -> Callable[[], None]:
    optimizer = torch.optim.Adam(work.parameters(), lr=1e-3, fused=True)
    x, y = batch_of(batch)

    def step() -> None:
        optimizer.zero_grad()
        LIKELIHOOD.loss(work, x, y).backward()
        optimizer.step()

    return step


def time_steps(kind: str, batch: int, repeats: int) -> dict[str, Any]:
    """CPU time of a step on one thread, which other work on the machine changes least; the least of all."""
    torch.manual_seed(0)
    predictors: dict[str, nn.Module] = {name: lgm_predictor(kind, method) for name, method in METHODS.items()}
    errors = {name: check_training(work, *batch_of(batch)) for name, work in predictors.items()}
    times = {
        name: min(milliseconds(training_step(work, batch), repeats, time.thread_time))
        for name, work in (predictors | {"network": network(kind, activation="relu")}).items()
    }
    row: dict[str, Any] = {"model": kind, "batch": batch} | {f"{name} ms": ms for name, ms in times.items()}
    row |= {f"{name} over network": times[name] / times["network"] for name in METHODS}
    return row | {"worst gradient error": max(error["worst gradient error"] for error in errors.values())}


def memory(kind: str, batch: int, gradients: bool) -> dict[str, object]:
    """Peak growth of the resident set while inferring, in a process that does nothing else."""
    command = [sys.executable, __file__, "--measure-memory", kind, str(batch), str(int(gradients))]
    found = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ}).stdout
    return {"model": kind, "batch": batch, "gradients": gradients, "MB": float(found)}


def measure_memory(kind: str, batch: int, gradients: bool) -> float:
    work = lgm_predictor(kind)
    small, large = batch_of(1)[0], batch_of(batch)[0]
    with torch.set_grad_enabled(gradients):
        work(small)
        before = _kilobytes("VmRSS")
        work(large)
    return (_kilobytes("VmHWM") - before) / 1024


def _kilobytes(field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    if found is None:
        raise SystemExit("memory can be measured on Linux only")
    return int(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="add the result to this file")
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--measure-memory", nargs=3, metavar=("KIND", "BATCH", "GRADIENTS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.measure_memory:
        kind, batch, gradients = options.measure_memory
        print(measure_memory(kind, int(batch), gradients == "1"))
        return
    steps = [time_steps(kind, batch, options.repeats) for batch in (20, 256) for kind in KINDS]
    peaks = [memory("local", 256, gradients) for gradients in (False, True)]
    print("Milliseconds of a training step, CPU time of one thread")
    print(table(steps))
    print("\nPeak memory of a forward pass beyond that of the model, megabytes")
    print(table(peaks))
    save(options.json, "step", {"machine": machine("torch", "numpy"), "steps": steps, "memory": peaks})


if __name__ == "__main__":
    main()
