"""Ten models of one shape in one step, against one."""

from __future__ import annotations

from typing import Any

from common import steady_run
from subjects import METHOD, ONE_SWEEP, Incorrect, Training, distance, gradient, images, lgm_predictor
from torch import Tensor, nn

import torchlgm as lgm
from entries import Setting, rows
from torchlgm.learn import Ensemble

MODELS = 10
CASES = (("dense", METHOD), ("local", METHOD), ("local", ONE_SWEEP))


def run(setting: Setting) -> dict[str, Any]:
    batch = 4 if setting.quick else 20
    models = 3 if setting.quick else MODELS
    found = rows(row, CASES, models, batch, setting)
    return {"batch": batch, "models": models, "rows": found}


def row(kind: str, method: lgm.Method, models: int, batch: int, setting: Setting) -> dict[str, Any]:
    device = setting.device
    data = images(2000 * batch if setting.cuda else 20 * batch, device)
    works = [lgm_predictor(kind, method, seed) for seed in range(models)]
    for work in works:
        work.to(device)
    error = check(works, data[0][:batch], data[1][:batch])
    one = steady_run(Training(lgm_predictor(kind, method), data, batch, device), device, setting.repeats)
    several = steady_run(Training(together(works), data, batch, device), device, setting.repeats)
    times = {"one ms": one, "together ms": several, "times one": several / one}
    return {"model": kind, "method": repr(method), **times, "gradient error": error}


def together(works: list[nn.Module]) -> Ensemble:
    """Several models as one, whose training step moves all of them."""
    return Ensemble(works, own_batches=False)


def check(works: list[nn.Module], x: Tensor, y: Tensor) -> float:
    """How far the gradients of all models in one step are from those of each alone."""
    found = gradient(together(works), x, y)[1]
    alone = [gradient(work, x, y)[1] for work in works]
    error = max(
        distance([found[f"stacked.{name}"][i]], [grad]) for i, grads in enumerate(alone) for name, grad in grads.items()
    )
    if not error < 1e-3:
        raise Incorrect(f"gradients of models in one step differ from those of each alone by {error:.2g}")
    return error
