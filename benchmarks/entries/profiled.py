"""Where the time of one captured training step goes, kernel by kernel."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Any

import torch
from common import idle, steady_run
from subjects import METHOD, ONE_SWEEP, Training, images, lgm_predictor
from torch.profiler import ProfilerActivity, profile

import torchlgm as lgm
from entries import Setting

CASES = (
    *((kind, batch, METHOD) for kind, batch in (("local", 20), ("conv", 20), ("dense", 20), ("local", 4096))),
    *((kind, batch, ONE_SWEEP) for kind, batch in (("local", 256), ("local", 4096), ("dense", 4096))),
)
LISTED = 120  # kernels in order, at most


def run(setting: Setting) -> dict[str, Any]:
    setting.require_gpu("it profiles kernels")
    return {"rows": [row(*case, setting) for case in CASES]}


def row(kind: str, batch: int, method: lgm.Method, setting: Setting) -> dict[str, Any]:
    step = Training(lgm_predictor(kind, method), images(10 * batch, setting.device), batch, setting.device)
    taken = steady_run(step, setting.device, 10)
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        step()
        idle(setting.device)
    events = [e for e in found.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    events.sort(key=lambda e: e.time_range.start)
    kernels = [(short(e.name), float(e.device_time)) for e in events]
    sums: dict[str, list[float]] = defaultdict(list)
    for name, us in kernels:
        sums[name].append(us)
    ranked = sorted(sums.items(), key=lambda item: -sum(item[1]))
    return {
        "model": kind,
        "batch": batch,
        "method": repr(method),
        "step ms": taken,
        "kernels": len(kernels),
        "kernel ms": sum(us for _, us in kernels) / 1000,
        "by kernel": [{"kernel": name, "launches": len(t), "us": sum(t)} for name, t in ranked],
        "in order": [{"kernel": name, "us": us} for name, us in kernels[:LISTED]],
    }


def short(name: str) -> str:
    """The name of a kernel without its arguments and what it was made from."""
    name = re.sub(r"^void ", "", name)
    for word in ("at::native::", "(anonymous namespace)::", "cub::", "detail::"):
        name = name.replace(word, "")
    inner = re.search(r"(\w+(?:_kernel_cuda|Functor|_kernel))\b(?!.*(?:_kernel_cuda|Functor))", name)
    outer = re.split(r"[<(]", name)[0]
    return outer if inner is None or inner[1] in outer else f"{outer} {inner[1]}"
