"""What torchlgm and PGMax both do in a race: parallel sum-product on two fully connected layers, on the CPU or a GPU.

Unaries differ from sample to sample, so that nothing can be left out.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

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


@dataclass(frozen=True)
class Runner:
    """`compute` leaves its results on the device, `answers` makes arrays of them.

    The results are the marginals of both layers, or gradients of (pairs, left, right).
    """

    compute: Callable[[], Any]
    answers: Callable[[Any], tuple[np.ndarray, ...]]

    def __call__(self) -> tuple[np.ndarray, ...]:
        return self.answers(self.compute())


def ours(task: Task, numbers: Numbers, device: torch.device | None = None) -> Runner:
    device = device or torch.device("cpu")
    inputs = [torch.tensor(-x, device=device) for x in (numbers.pairs, numbers.left, numbers.right)]
    weights = [torch.tensor(w, device=device) for w in (numbers.weight_left, numbers.weight_right)]
    for x in inputs:
        x.requires_grad_(task.gradients)
    layout = DenseLayout(task.left, task.right).to(device)
    method = lgm.lbp(task.iterations, "parallel")
    rho = torch.ones((), device=device)

    def marginals() -> list[Tensor]:
        pairs, left, right = inputs
        mrf = lgm.MRF(
            unary={"left": left, "right": right},
            evidence={},
            links=(Link("left-right", "left", "right", layout, pairs, rho),),
            observed_links=(),
            observed=(),
            batch=task.batch,
            shapes={"left": (task.left,), "right": (task.right,)},
            clamps={},
        )
        beliefs = lgm.solve(mrf, method, want=("left", "right"))
        return [beliefs["left"].probs, beliefs["right"].probs]

    def compute() -> list[Tensor]:
        out = marginals()
        if not task.gradients:
            return out
        loss = sum((p * w).sum() for p, w in zip(out, weights, strict=True))
        return [-g for g in torch.autograd.grad(loss, inputs)]

    return Runner(compute, lambda out: tuple(x.cpu().numpy() for x in out))


def import_pgmax() -> types.SimpleNamespace:
    """PGMax 0.6.1 wants an attribute that JAX no longer has, and numba, which only speeds up the building of graphs."""
    import jax
    import jax.extend

    if not hasattr(jax, "lib"):
        jax.lib = types.SimpleNamespace()
    jax.lib.xla_bridge = types.SimpleNamespace(get_backend=jax.extend.backend.get_backend)
    numba = types.ModuleType("numba")
    numba.jit = numba.njit = lambda *args, **_: args[0] if args and callable(args[0]) else (lambda f: f)
    numba.prange = range
    sys.modules.setdefault("numba", numba)
    from pgmax import fgraph, fgroup, infer, vgroup

    return types.SimpleNamespace(fgraph=fgraph, fgroup=fgroup, infer=infer, vgroup=vgroup)


@lru_cache(maxsize=1)
def _pgmax_graph(left: int, right: int, labels: int) -> tuple[Any, ...]:
    """Variables of both layers, the inferer, and its arrays with log-potentials of 0, for factors row by row."""
    px = import_pgmax()
    variables = [px.vgroup.NDVarArray(num_states=labels, shape=(n,)) for n in (left, right)]
    graph = px.fgraph.FactorGraph(variable_groups=variables)
    edges = [[variables[0][i], variables[1][j]] for i in range(left) for j in range(right)]
    zeros = np.zeros((len(edges), labels, labels), np.float32)
    graph.add_factors(px.fgroup.PairwiseFactorGroup(variables_for_factors=edges, log_potential_matrix=zeros))
    bp = px.infer.build_inferer(graph.bp_state, backend="bp")
    return px, variables, bp, bp.init()


def pgmax(task: Task, numbers: Numbers) -> Runner:
    """On JAX's default device."""
    import jax
    import jax.numpy as jnp

    px, (left, right), bp, start = _pgmax_graph(task.left, task.right, task.labels)
    pairs = jnp.asarray(np.pad(numbers.pairs, ((0, 0), (0, 0), (1, 0), (1, 0))).reshape(-1))
    evidence = jnp.concatenate(
        [jnp.pad(x, ((0, 0), (0, 0), (1, 0))).reshape(task.batch, -1) for x in (numbers.left, numbers.right)], 1
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

    def answers(out: Any) -> tuple[np.ndarray, ...]:
        if not task.gradients:
            return tuple(np.asarray(p) for p in out)
        pairs, unaries = (np.asarray(g) for g in out)
        pairs = pairs.reshape(task.left, task.right, task.labels, task.labels)[:, :, 1:, 1:]
        unaries = unaries.reshape(task.batch, -1, task.labels)[:, :, 1:]
        return pairs, unaries[:, : task.left], unaries[:, task.left :]

    return Runner(lambda: jax.block_until_ready(compiled(pairs, evidence)), answers)


def difference(a: tuple[np.ndarray, ...], b: tuple[np.ndarray, ...]) -> float:
    """The largest, relative to the largest number or 1."""
    return max(float(np.abs(x - y).max() / max(1, np.abs(y).max())) for x, y in zip(a, b, strict=True))
