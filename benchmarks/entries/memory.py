"""Peak memory of training: model, optimizer, one captured step and what it keeps for its gradients."""

from __future__ import annotations

from typing import Any

import torch
from common import fresh, idle
from subjects import KINDS, MakeOptimizer, Training, images, lgm_predictor, network_predictor, our_adam, usual_adam

from entries import Setting

BATCH = 256
REFERENCE_DEMO = 12.0  # GB, Local


def run(setting: Setting) -> dict[str, Any]:
    setting.require_gpu("it reads PyTorch's allocator; step.py measures memory on the CPU")
    return {"batch": BATCH, "reference demo GB": REFERENCE_DEMO, "rows": [row(kind, setting) for kind in KINDS]}


def row(kind: str, setting: Setting) -> dict[str, Any]:
    data = images(4 * BATCH, setting.device)
    lgm = peak(lgm_predictor(kind), data, BATCH, setting, our_adam)
    return {"model": kind, "lgm GB": lgm, "network GB": peak(network_predictor(kind), data, BATCH, setting, usual_adam)}


def peak(work: Any, data: Any, batch: int, setting: Setting, adam: MakeOptimizer) -> float:
    """GB beyond the data."""
    before = fresh(setting.device)
    step = Training(work, data, batch, setting.device, adam=adam)
    step()
    idle(setting.device)
    return (torch.cuda.max_memory_allocated() - before) / 1e9
