"""What the implicit gradient saves and costs: memory kept for backward and gradient error against unrolling."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from common import machine, save, table

import torchlgm as lgm


def gradients(model: lgm.LGM, x: torch.Tensor, y: torch.Tensor, method: lgm.Method) -> dict:
    stored: dict[int, int] = {}

    def keep(t: torch.Tensor) -> torch.Tensor:
        stored[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    start = time.perf_counter()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        beliefs = lgm.infer(model, {"inputs": x}, method)
        loss = -beliefs["classes"].log_probs[:, 0].gather(1, y[:, None]).mean()
    grads = torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True)
    return {
        "gradient": torch.cat([g.flatten() for g in grads]),
        "MB kept": sum(stored.values()) / 2**20,
        "seconds": time.perf_counter() - start,
        "iterations": int(beliefs.iterations.max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="add the result to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(0)
    graph = lgm.zoo.dense(784, (100, 100))
    model = lgm.LGM(graph, lgm.Init(table=0.05), generator=torch.Generator().manual_seed(0))
    x, y = torch.rand(20, 784), torch.randint(10, (20,))
    reference = gradients(model.double(), x.double(), y, lgm.lbp(300, tolerance=1e-12, damping=0.2))["gradient"]
    model.float()
    rows = []
    for tolerance in (1e-2, 1e-4, 1e-6):
        for mode in ("unroll", "implicit"):
            got = gradients(model, x, y, lgm.lbp(300, tolerance=tolerance, damping=0.2, gradient=mode))
            error = (got.pop("gradient") - reference).norm() / reference.norm()
            rows.append({"tolerance": tolerance, "gradient": mode, "error": float(error), **got})
    print("Dense 784-100-100-10, loopy BP by sweeps, damping 0.2, batch 20; error relative to the converged gradient")
    print(table(rows))
    save(arguments.json, "implicit", {"machine": machine("torch"), "rows": rows})


if __name__ == "__main__":
    main()
