"""How fast models are on this machine, in a minute."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from torchlgm.app.config import Config, Kind
from torchlgm.app.models import make_classifier, make_network
from torchlgm.app.train import choose_device
from torchlgm.data import Data, Dataset
from torchlgm.learn import NetworkLikelihood, Objective


def bench(device: str = "auto", batch: int = 20, method: str = "lbp", budget: float = 2.0) -> list[dict[str, Any]]:
    """Milliseconds of a prediction and of a training step, on images of 28x28 pixels, all of them visible."""
    where = choose_device(device)
    draw = torch.Generator().manual_seed(0)
    inputs = torch.rand(batch, 1, 28, 28, generator=draw)
    data = Data(inputs, torch.arange(batch) % 10, tuple("0123456789"))
    rows = []
    for kind in Kind:
        config = Config(model=kind, method=method)
        classifier = make_classifier(config, Dataset(data, data), data, seed=0)
        pairs: list[tuple[str, nn.Module, Objective]] = [
            ("LGM", classifier.model, classifier.objective()),
            ("neural network", make_network(config, data, seed=0), NetworkLikelihood()),
        ]
        for name, model, objective in pairs:
            x, y = inputs.to(where), data.targets.to(where)
            figures = _times(model.to(where), objective, x, y, budget)
            rows.append({"model": kind, "kind": name, "batch": batch, "device": where.type, **figures})
    return rows


def _times(model: nn.Module, objective: Objective, x: Tensor, y: Tensor, budget: float) -> dict[str, float]:
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> None:
        optimiser.zero_grad()
        objective.loss(model, x, y).backward()
        optimiser.step()

    def predict() -> None:
        with torch.no_grad():
            objective.log_probs(model, x)

    return {"predict_ms": _median_ms(predict, x, budget), "train_ms": _median_ms(step, x, budget)}


def _median_ms(work: Callable[[], None], x: Tensor, budget: float) -> float:
    """The median over as many repetitions as fit into `budget` seconds, at least three, after one to warm up."""
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < 4 or time.perf_counter() - began < budget:
        start = time.perf_counter()
        work()
        if x.is_cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return 1000 * sorted(times[1:])[len(times[1:]) // 2]
