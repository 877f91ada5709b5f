"""Serving: how soon one answer comes back, and how many come in a second."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from common import idle, steady
from subjects import KINDS, METHOD, Incorrect, images, lgm_predictor, network_predictor
from torch import Tensor, nn

import torchlgm as lgm
from entries import Setting, rows
from torchlgm.learn import CapturedPredictor
from torchlgm.learn.ensemble import answer_of
from torchlgm.ops.backend import backend

METHODS = {"LBP, one sweep": lgm.lbp(1), "TRW, T = 5": METHOD}
LARGE = 4096


def run(setting: Setting) -> dict[str, Any]:
    large = 8 if setting.quick else LARGE
    subjects = [(kind, name, lgm_predictor(kind, method)) for kind in KINDS for name, method in METHODS.items()]
    subjects += [(kind, "network", network_predictor(kind)) for kind in KINDS]
    return {"large": large, "rows": rows(row, subjects, large, setting)}


def row(kind: str, name: str, work: nn.Module, large: int, setting: Setting) -> dict[str, Any]:
    device = setting.device
    work.to(device)
    one, _ = images(1, torch.device("cpu"))
    one = one.pin_memory() if setting.cuda else one
    answer = CapturedPredictor(work, batch_size=1)
    errors = [check(work, answer, one)]
    latency = steady(lambda: answer(one).cpu(), device, setting.repeats)
    many, _ = images(large, device)
    answer = CapturedPredictor(work, batch_size=large)
    errors.append(check(work, answer, many))
    taken = steady(lambda: answer(many), device, setting.repeats)
    return {
        "model": kind,
        "method": name,
        "latency ms": latency,
        "batch ms": taken,
        "samples/s": large / taken * 1000,
        "probability error": max(errors),
    }


def check(work: nn.Module, answer: Callable[[Tensor], Tensor], x: Tensor) -> float:
    """Largest difference in probability from plain PyTorch in float64, for the first samples."""
    found = answer(x)[:64].double().exp()
    idle(found.device)
    with torch.no_grad(), backend("eager"):
        true = answer_of(deepcopy(work).double(), x[:64].to(found.device).double()).exp()
    error = (found - true).abs().max().item()
    if not error < 1e-4:
        raise Incorrect(f"served probabilities differ from float64 by {error:.2g}")
    return error
