"""A training step by one sweep of belief propagation beside the network of the same shape, both captured."""

from __future__ import annotations

from typing import Any

from subjects import KINDS, ONE_SWEEP

from entries import Setting, floor, rows


def run(setting: Setting) -> dict[str, Any]:
    batches = setting.sizes((20, 256, 4096), (2, 4))
    cases = [(kind, batch) for batch in batches for kind in KINDS]
    return {"rows": rows(row, cases, setting)}


def row(kind: str, batch: int, setting: Setting) -> dict[str, Any]:
    found = floor.row(kind, batch, setting, ONE_SWEEP)
    return {**found, "times the network": found["lgm ms"] / found["network ms"]}
