"""A training step at batch 20 beside the network of the same shape, captured and launched from Python."""

from __future__ import annotations

from typing import Any

from common import steady_run
from subjects import (
    KINDS,
    LIKELIHOOD,
    Incorrect,
    Training,
    check_training,
    images,
    lgm_predictor,
    network_predictor,
    usual_adam,
)

from entries import Setting, rows


def run(setting: Setting) -> dict[str, Any]:
    batch = 4 if setting.quick else 20
    return {"batch": batch, "rows": rows(row, [(kind, batch) for kind in KINDS], setting)}


def row(kind: str, batch: int, setting: Setting) -> dict[str, Any]:
    device = setting.device
    data = images(64 if setting.quick else 40_000, device)
    work = lgm_predictor(kind)
    work.to(device)
    x, y = data[0][:batch], data[1][:batch]
    errors = check_training(work, x, y)
    loss = LIKELIHOOD.loss(work, x, y).item()
    ours = Training(lgm_predictor(kind), data, batch, device)
    first = ours().item()
    if not abs(first - loss) < 1e-4 * abs(loss):
        raise Incorrect(f"{kind}: the first captured step has a loss of {first}, expected {loss}")
    calls = {
        "lgm": ours,
        "network": Training(network_predictor(kind), data, batch, device, adam=usual_adam),
        "network, our Adam": Training(network_predictor(kind), data, batch, device),
        "network, launched": Training(network_predictor(kind), data, batch, device, capture=False, adam=usual_adam),
        "lgm, launched": Training(lgm_predictor(kind), data, batch, device, capture=False),
    }
    times = {f"{name} ms": steady_run(call, device, setting.repeats) for name, call in calls.items()}
    return {
        "model": kind,
        **times,
        "times the network": times["lgm ms"] / times["network ms"],
        "times faster than launched": times["network, launched ms"] / times["lgm ms"],
        **errors,
    }
