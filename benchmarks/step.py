"""What training costs on the CPU: milliseconds of a step of the paper's models (T = 5, sequential TRW, batch 20, and
one sweep of belief propagation at two batch sizes) beside neural networks of the same shape, and the memory that
inference needs at batch 256."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from common import machine, milliseconds, save, table
from subjects import KINDS, LIKELIHOOD, ONE_SWEEP, check_training, lgm_predictor
from torch import Tensor, nn

from torchlgm.baselines import network

TARGETS = {"local": 60.0}  # milliseconds


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


def time_steps(kind: str, batch: int, repeats: int) -> dict[str, object]:
    """Steps of both models in turn, after a warm-up."""
    torch.manual_seed(0)
    check_training(lgm_predictor(kind), *batch_of(batch))
    steps = {
        "lgm": training_step(lgm_predictor(kind), batch),
        "network": training_step(network(kind, activation="relu"), batch),
    }
    times: dict[str, list[float]] = {name: [] for name in steps}
    for name, step in steps.items():
        milliseconds(step, 5)
        times[name] += milliseconds(step, repeats)
    row: dict[str, Any] = {"model": kind}
    for name, taken in times.items():
        row |= {f"{name} median": median(taken), f"{name} min": min(taken)}
    return {**row, "times slower": row["lgm min"] / row["network min"], "target": TARGETS.get(kind)}


def one_sweep(kind: str, batch: int, repeats: int) -> dict[str, object]:
    """CPU time of steps on one thread, which other work on the machine changes least; the least of all."""
    torch.manual_seed(0)
    errors = check_training(lgm_predictor(kind, ONE_SWEEP), *batch_of(batch))
    lgm, rival = (
        min(milliseconds(training_step(work, batch), repeats, time.thread_time))
        for work in (lgm_predictor(kind, ONE_SWEEP), network(kind, activation="relu"))
    )
    return {"model": kind, "batch": batch, "lgm ms": lgm, "network ms": rival, "times": lgm / rival, **errors}


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
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--only-sweeps", action="store_true", help="leave the rest of the file's results as they are")
    parser.add_argument("--measure-memory", nargs=3, metavar=("KIND", "BATCH", "GRADIENTS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.measure_memory:
        kind, batch, gradients = options.measure_memory
        print(measure_memory(kind, int(batch), gradients == "1"))
        return
    steps = [] if options.only_sweeps else [time_steps(kind, 20, options.repeats) for kind in KINDS]
    torch.set_num_threads(1)
    sweeps = [one_sweep(kind, batch, 3 * options.repeats) for batch in (20, 256) for kind in KINDS]
    print("Milliseconds of a training step by one sweep, CPU time of one thread")
    print(table(sweeps))
    save(options.json, "sweep", {"machine": machine("torch", "numpy"), "rows": sweeps})
    if options.only_sweeps:
        return
    peaks = [memory("local", 256, gradients) for gradients in (False, True)]
    print(f"Milliseconds of a training step, batch 20, {options.threads} threads")
    print(table(steps))
    print("\nPeak memory of a forward pass beyond that of the model, megabytes")
    print(table(peaks))
    result = {"machine": machine("torch", "numpy"), "threads": options.threads, "steps": steps, "memory": peaks}
    save(options.json, "step", result)


if __name__ == "__main__":
    main()
