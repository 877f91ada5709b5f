"""Races the eager core against PGMax on the CPU: the same graphs, the same schedule, one thread each, in one process.

Both run parallel sum-product belief propagation on two fully connected layers whose unaries differ from sample to
sample, so that nothing can be left out. Marginals and gradients are compared before anything is timed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import torch
from common import machine, milliseconds, save, table

import torchlgm as lgm
from torchlgm.layout import DenseLayout
from torchlgm.mrf import Link


@dataclass(frozen=True)
class Task:
    """`left` x `right` nodes with `labels` labels; `target` is how many times faster than PGMax we mean to be."""

    name: str
    left: int
    right: int
    labels: int
    gradients: bool
    target: float | None
    batch: int = 20
    iterations: int = 10


TASKS = (
    Task("RBM 784x100, binary, forward", 784, 100, 2, gradients=False, target=4.0),
    Task("RBM 784x100, binary, with gradients", 784, 100, 2, gradients=True, target=7.0),
    Task("dense 196x50, 10 labels, forward", 196, 50, 10, gradients=False, target=5.0),
    Task("dense 196x50, 10 labels, with gradients", 196, 50, 10, gradients=True, target=None),
)


@dataclass(frozen=True)
class Numbers:
    """Log-potentials over the labels 1 .. K-1, label 0 being 0, and the weights of the marginals in the loss."""

    pairs: np.ndarray  # (left, right, K-1, K-1)
    left: np.ndarray  # (batch, left, K-1)
    right: np.ndarray  # (batch, right, K-1)
    weight_left: np.ndarray  # (left, K)
    weight_right: np.ndarray  # (right, K)

    @staticmethod
    def of(task: Task) -> Numbers:
        rng = np.random.default_rng(0)
        k = task.labels - 1
        sizes = ((task.left, task.right, k, k), (task.batch, task.left, k), (task.batch, task.right, k))
        scales = (1 / np.sqrt(task.left), 1.0, 1.0)
        logs = [(s * rng.normal(size=n)).astype(np.float32) for n, s in zip(sizes, scales, strict=True)]
        weights = [rng.normal(size=(n, k + 1)).astype(np.float32) for n in (task.left, task.right)]
        return Numbers(*logs, *weights)


Run = Callable[[], tuple[np.ndarray, ...]]  # marginals of both layers, or gradients of (pairs, left, right)


def ours(task: Task, numbers: Numbers) -> Run:
    inputs = [torch.tensor(-x, requires_grad=task.gradients) for x in (numbers.pairs, numbers.left, numbers.right)]
    weights = [torch.tensor(w) for w in (numbers.weight_left, numbers.weight_right)]
    layout = DenseLayout(task.left, task.right)
    method = lgm.lbp(task.iterations, "parallel")

    def marginals() -> list[torch.Tensor]:
        pairs, left, right = inputs
        mrf = lgm.MRF(
            unary={"left": left, "right": right},
            evidence={},
            links=(Link("left-right", "left", "right", layout, pairs, torch.ones(())),),
            settled=(),
            constant=torch.zeros(task.batch),
            shapes={"left": (task.left,), "right": (task.right,)},
            clamps={},
        )
        beliefs = lgm.solve(mrf, method, want=("left", "right"))
        return [beliefs["left"].probs, beliefs["right"].probs]

    def run() -> tuple[np.ndarray, ...]:
        out = marginals()
        if not task.gradients:
            return tuple(p.numpy() for p in out)
        loss = sum((p * w).sum() for p, w in zip(out, weights, strict=True))
        return tuple(-g.numpy() for g in torch.autograd.grad(loss, inputs))

    return run


def import_pgmax() -> types.SimpleNamespace:
    """PGMax 0.6.1 wants an attribute that JAX no longer has, and numba, which only speeds up the building of graphs."""
    jax.lib.xla_bridge = types.SimpleNamespace(get_backend=jax.extend.backend.get_backend)
    numba = types.ModuleType("numba")
    numba.jit = numba.njit = lambda *args, **_: args[0] if args and callable(args[0]) else (lambda f: f)
    numba.prange = range
    sys.modules.setdefault("numba", numba)
    from pgmax import fgraph, fgroup, infer, vgroup

    return types.SimpleNamespace(fgraph=fgraph, fgroup=fgroup, infer=infer, vgroup=vgroup)


def pgmax(task: Task, numbers: Numbers) -> Run:
    px = import_pgmax()
    left = px.vgroup.NDVarArray(num_states=task.labels, shape=(task.left,))
    right = px.vgroup.NDVarArray(num_states=task.labels, shape=(task.right,))
    graph = px.fgraph.FactorGraph(variable_groups=[left, right])
    edges = [[left[i], right[j]] for i in range(task.left) for j in range(task.right)]
    full = np.pad(numbers.pairs, ((0, 0), (0, 0), (1, 0), (1, 0))).reshape(len(edges), task.labels, task.labels)
    graph.add_factors(px.fgroup.PairwiseFactorGroup(variables_for_factors=edges, log_potential_matrix=full))
    bp = px.infer.build_inferer(graph.bp_state, backend="bp")
    start = bp.init()
    evidence = jnp.concatenate(
        [jnp.pad(x, ((0, 0), (0, 0), (1, 0))).reshape(task.batch, -1) for x in _unaries(numbers)], 1
    )

    def marginals(log_potentials, evidence):
        arrays = px.infer.BPArrays(log_potentials=log_potentials, ftov_msgs=start.ftov_msgs, evidence=evidence)
        arrays = bp.run(arrays, num_iters=task.iterations, damping=0.0, temperature=1.0)
        found = px.infer.get_marginals(bp.get_beliefs(arrays))
        return found[left], found[right]

    batched = jax.vmap(marginals, in_axes=(None, 0))

    def loss(log_potentials, evidence):
        weights = (numbers.weight_left, numbers.weight_right)
        return sum((p * w).sum() for p, w in zip(batched(log_potentials, evidence), weights, strict=True))

    compiled = jax.jit(jax.grad(loss, argnums=(0, 1)) if task.gradients else batched)

    def run() -> tuple[np.ndarray, ...]:
        out = jax.block_until_ready(compiled(start.log_potentials, evidence))
        if not task.gradients:
            return tuple(np.asarray(p) for p in out)
        pairs, unaries = (np.asarray(g) for g in out)
        pairs = pairs.reshape(task.left, task.right, task.labels, task.labels)[:, :, 1:, 1:]
        unaries = unaries.reshape(task.batch, -1, task.labels)[:, :, 1:]
        return pairs, unaries[:, : task.left], unaries[:, task.left :]

    return run


def _unaries(numbers: Numbers) -> tuple[np.ndarray, np.ndarray]:
    return numbers.left, numbers.right


def race(task: Task, repeats: int) -> dict[str, object]:
    """CPU milliseconds per iteration, the least of `repeats` runs of each, taken in turn."""
    numbers = Numbers.of(task)
    runs = {"torchlgm": ours(task, numbers), "PGMax": pgmax(task, numbers)}
    answers = [run() for run in runs.values()]
    difference = max(float(np.abs(a - b).max() / max(1, np.abs(b).max())) for a, b in zip(*answers, strict=True))
    if not difference < 1e-3:
        raise SystemExit(f"{task.name}: the answers differ by {difference:.2g}, so there is nothing to time")
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(repeats):
        for name, run in runs.items():
            best[name] = min(best[name], milliseconds(run, 1, time.process_time)[0] / task.iterations)
    times = best["PGMax"] / best["torchlgm"]
    return {"task": task.name, **best, "times faster": times, "target": task.target, "largest difference": difference}


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
