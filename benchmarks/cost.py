"""What training costs, counted and measured: by edge, sample and iteration, and what more processes add.

python benchmarks/cost.py --json benchmarks/results/cost-cpu.json

From the steps of one process and the averaging of gradients alone it expects how long steps of 1, 2 and 4 processes
take, then measures these under torchrun (gloo), and the bytes that they send over the loopback interface. CPU time is
that of one process, the least of several rounds: on a busy machine it is what can be compared. Then it works out what
many GPUs would take for many rows, from steps that were measured on one and from a network that is assumed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import machine, rounded, save, table
from entries.floor import count, existing
from subjects import ONE_SWEEP, graph, images, lgm_predictor, our_adam

import torchlgm as lgm
from torchlgm.data import ParquetRows
from torchlgm.learn.distributed import Group
from torchlgm.learn.learner import Learner
from torchlgm.learn.steps import OptimizerStep, PlainStep

FLOAT = 4  # bytes
METHODS = {"one sweep": ONE_SWEEP, "TRW, T = 5": lgm.trw(iterations=5, schedule="sequential")}
TRAINED = (("dense", "one sweep"), ("local", "one sweep"))  # what is timed
BATCHES = (32, 64, 128, 256)
GLOBAL_BATCH = 256
PROCESSES = (1, 2, 4)
ROWS, GPUS, BATCH_OF_A_GPU = 10**9, 64, 4096
NETWORK, HOP = 50e9, 0.01  # assumed: bytes a second of each GPU, milliseconds of a hop in a ring
CPU = torch.device("cpu")


def counted() -> list[dict[str, Any]]:
    """Of a training step, for each edge between free nodes, sample and iteration; and for each pixel's edge."""
    return [_counted(kind, name) for kind in ("dense", "conv", "local") for name in METHODS]


def _counted(kind: str, name: str) -> dict[str, Any]:
    work, (few, many) = lgm_predictor(kind, METHODS[name]), (64, 1024)
    one, other = count(work, few), count(work, many)
    mrf = work.condition(images(2, CPU)[0])
    free = sum(map(existing, mrf.links))
    samples = (many - few) * free * METHODS[name].iterations
    return {
        "model": kind,
        "method": name,
        "parameters": sum(p.numel() for p in work.parameters()),
        "edges": graph(kind).edges,
        "edges of seen pixels": sum(map(existing, mrf.observed_links)),
        "edges between free nodes": free,
        "messages": (other.edge_samples - one.edge_samples) / samples,
        "bytes": (other.bytes - one.bytes) / samples,
        "special functions": (other.special - one.special) / samples,
    }


def measured(rounds: int) -> dict[str, Any]:
    """In one of the processes of torchrun, or alone: all-reduces of several sizes, and steps of training."""
    torch.set_num_threads(1)
    group = Group("cpu")
    batches = BATCHES if group.size == 1 else (GLOBAL_BATCH,)
    found: dict[str, Any] = {"processes": group.size, "averaging": [], "steps": []}
    for kind, name in TRAINED:
        step = _step(kind, name, group)
        if group.size > 1:
            gradients = [torch.ones_like(p) for p in step.update.parameters]
            gradients += [torch.ones(()), torch.ones(len(gradients))]  # the loss, and which parameters have a gradient
            floats = 1 + sum(g.numel() for g in gradients)  # and the weight
            row = _timed(partial(group.average, gradients, 1.0), rounds)
            found["averaging"].append({"model": kind, "floats": floats, **row})
        for batch in batches:
            row = _timed(partial(step, 0, [batch]), rounds)
            found["steps"].append({"model": kind, "batch": batch, **row})
    group.close()
    return found


def _step(kind: str, name: str, group: Group) -> PlainStep:
    model = lgm_predictor(kind, METHODS[name])
    update = OptimizerStep(Learner(model), our_adam(model.parameters(), CPU), group)
    step = PlainStep(update, *images(max(BATCHES), CPU))
    step.begin(torch.arange(max(BATCHES)))
    return step


def _timed(work: Callable[[], object], rounds: int, times: int = 10) -> dict[str, float]:
    """Milliseconds of one call: least CPU time and wall time, and bytes over the loopback interface, the median."""
    work()
    cpu, wall, sent = [], [], []
    for _ in range(rounds):
        bytes_, busy, began = _sent(), time.process_time(), time.perf_counter()
        for _ in range(times):
            work()
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - busy)
        sent.append(_sent() - bytes_)
    scale = 1000 / times
    return {"cpu ms": scale * min(cpu), "wall ms": scale * min(wall), "sent": statistics.median(sent) / times}


def _sent() -> int:
    line = next(x for x in Path("/proc/net/dev").read_text().splitlines() if x.strip().startswith("lo:"))
    return int(line.split()[9])


def in_processes(number: int, rounds: int) -> dict[str, Any]:
    """What `measured` gives in the first of so many processes."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out.json")
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
        command += [f"--nproc-per-node={number}", __file__, "--worker", str(out), "--rounds", str(rounds)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        subprocess.run(command if number > 1 else [sys.executable, *command[6:]], env=environment, check=True)
        return json.loads(out.read_text())


def compared(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Steps of several processes beside what one process and averaging alone let expect."""
    rows = []
    for kind, _ in TRAINED:
        alone = [row for row in found[0]["steps"] if row["model"] == kind]
        by_sample, fixed = np.polyfit([row["batch"] for row in alone], [row["cpu ms"] for row in alone], 1)
        for one in found:
            n = one["processes"]
            step = next(r for r in one["steps"] if r["model"] == kind and r["batch"] == GLOBAL_BATCH)
            mean = next((r for r in one["averaging"] if r["model"] == kind), {"cpu ms": 0.0, "floats": 0})
            rows.append(
                {
                    "model": kind,
                    "processes": n,
                    "computing, ms": fixed + by_sample * GLOBAL_BATCH / n,
                    "averaging, ms": mean["cpu ms"],
                    "expected, ms": fixed + by_sample * GLOBAL_BATCH / n + mean["cpu ms"],
                    "measured, ms": step["cpu ms"],
                    "wall time, ms": step["wall ms"],
                    "expected kB": 2 * (n - 1) * FLOAT * mean["floats"] / 1000,
                    "sent kB": step["sent"] / 1000,
                }
            )
    return rows


def reading(rows: int, columns: int) -> dict[str, Any]:
    """How fast one core reads batches of a table in Parquet."""
    import pyarrow
    import pyarrow.parquet

    draw = np.random.default_rng(0)
    names = {f"x{i}": draw.normal(size=rows).astype(np.float32) for i in range(columns)}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.parquet")
        pyarrow.parquet.write_table(pyarrow.table({**names, "y": draw.integers(0, 2, rows)}), file)
        stream, best = ParquetRows(file, "y", batch_size=1000), float("inf")
        for _ in range(3):
            began = time.process_time()
            assert sum(len(x) for x, _ in stream) == rows
            best = min(best, time.process_time() - began)
        return {"rows": rows, "columns": columns, "bytes": file.stat().st_size, "rows/s": rows / best}


def projected() -> list[dict[str, Any]]:
    """What ROWS rows would take on GPUS GPUs. Steps are those of one H200; the network is assumed, not measured."""
    folder = Path(__file__).parent / "results"
    every, sweep = (json.loads((folder / name).read_text()) for name in ("h200.json", "h200-sweep.json"))
    launched = {row["model"]: row["lgm, launched ms"] for row in every["train"]["rows"]}
    rows = []
    for row in sweep["sweep"]["rows"]:
        if row["batch"] == BATCH_OF_A_GPU:
            floats = sum(p.numel() for p in lgm_predictor(row["model"]).parameters())
            moved = 2 * (GPUS - 1) / GPUS * FLOAT * floats / NETWORK * 1000
            averaging = moved + 2 * (GPUS - 1) * HOP
            alone, several = row["lgm ms"], max(row["lgm ms"], launched[row["model"]]) + averaging
            rows.append(
                {
                    "model": row["model"],
                    "step captured, ms": alone,
                    "step launched at most, ms": launched[row["model"]],
                    "averaging, ms": averaging,
                    "one GPU, s": ROWS / BATCH_OF_A_GPU * alone / 1000,
                    f"{GPUS} GPUs at most, s": ROWS / BATCH_OF_A_GPU / GPUS * several / 1000,
                    f"{GPUS} GPUs if captured, s": ROWS / BATCH_OF_A_GPU / GPUS * (alone + averaging) / 1000,
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        found = measured(given.rounds)
        if int(os.environ.get("RANK", "0")) == 0:
            given.worker.write_text(json.dumps(found))
        return
    counts = counted()
    print(table(rounded(counts)))
    found = [in_processes(n, given.rounds) for n in PROCESSES]
    rows = compared(found)
    print(table(rounded(rows)))
    read = [reading(1_000_000, 20), reading(50_000, 784)]
    print(table(rounded(read)))
    many = projected()
    print(table(rounded(many)))
    result = {"counted": counts, "processes": rows, "measured": found, "reading": read, "projected": many}
    save(given.json, "machine", machine("torch", "pyarrow"))
    for section, content in result.items():
        save(given.json, section, {"rows": content})


if __name__ == "__main__":
    main()
