"""Races torchlgm against PGMax on the CPU: the same graphs, the same schedule, one thread each, in one process.

No backend is chosen: compiled C where there is a C compiler, else plain PyTorch. Marginals and gradients are compared
before anything is timed.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import torch
from common import machine, milliseconds, save, table
from races import Numbers, Task, difference, ours, pgmax

TASKS = (
    Task("RBM 784x100, binary, forward", 784, 100, 2, gradients=False, target=4.0),
    Task("RBM 784x100, binary, with gradients", 784, 100, 2, gradients=True, target=7.0),
    Task("dense 196x50, 10 labels, forward", 196, 50, 10, gradients=False, target=5.0),
    Task("dense 196x50, 10 labels, with gradients", 196, 50, 10, gradients=True, target=None),
)


def race(task: Task, repeats: int) -> dict[str, object]:
    """CPU milliseconds per iteration, the least of `repeats` runs of each, taken in turn."""
    numbers = Numbers.of(task)
    runs = {"torchlgm": ours(task, numbers), "PGMax": pgmax(task, numbers)}
    apart = difference(*[run() for run in runs.values()])
    if not apart < 1e-3:
        raise SystemExit(f"{task.name}: the answers differ by {apart:.2g}, so there is nothing to time")
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(repeats):
        for name, run in runs.items():
            best[name] = min(best[name], milliseconds(run, 1, time.process_time)[0] / task.iterations)
    times = best["PGMax"] / best["torchlgm"]
    return {"task": task.name, **best, "times faster": times, "target": task.target, "largest difference": apart}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="add the result to this file")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--only", default="", help="run the tasks whose name contains this")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [race(task, options.repeats) for task in TASKS if options.only in task.name]
    print("CPU milliseconds per iteration, batch 20, float32, one thread")
    print(table(rows))
    save(options.json, "pgmax", {"machine": machine("torch", "jax", "pgmax", "numpy"), "rows": rows})


if __name__ == "__main__":
    main()
