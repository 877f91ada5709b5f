"""How long the first training step of a new graph takes: with nothing compiled, and with kernels on disk."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from common import idle
from subjects import KINDS, Training, images, lgm_predictor

from entries import Setting

BATCH = 20
SCRIPT = Path(__file__).parents[1] / "gpu.py"


def run(setting: Setting) -> dict[str, Any]:
    """All models at the same time, each in a process of its own, twice with the same folder of kernels."""
    if not setting.quick:
        setting.require_gpu("plain PyTorch compiles nothing")
    batch = 2 if setting.quick else BATCH
    with tempfile.TemporaryDirectory() as folder:
        cold, cached = [finish([start(kind, batch, f"{folder}/{kind}", setting) for kind in KINDS]) for _ in range(2)]
    rows = [{"model": kind, "cold s": a, "cached s": b} for kind, a, b in zip(KINDS, cold, cached, strict=True)]
    return {"batch": batch, "rows": rows}


def start(kind: str, batch: int, folder: str, setting: Setting) -> subprocess.Popen[str]:
    command = [sys.executable, str(SCRIPT), "--device", setting.device.type, "--first-step", kind, str(batch)]
    env = {**os.environ, "TRITON_CACHE_DIR": folder}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)


def finish(processes: list[subprocess.Popen[str]]) -> list[float]:
    outputs = [process.communicate()[0] for process in processes]
    return [float(out.strip().splitlines()[-1]) for out in outputs]


def measure(kind: str, batch: int, device: torch.device) -> float:
    """Seconds from a graph to the end of its first captured step, in a process that has computed nothing else."""
    data = images(4 * batch, device)
    _ = (data[0].flatten(1).T @ data[0].flatten(1)).sum().item()  # the libraries are loaded
    start = time.perf_counter()
    Training(lgm_predictor(kind), data, batch, device)()
    idle(device)
    return time.perf_counter() - start
