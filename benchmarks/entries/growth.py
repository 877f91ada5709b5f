"""How time and memory of a training step grow with the batch, the iterations and the edges."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from common import fresh, idle, steady_run
from subjects import METHOD, Training, images, lgm_predictor

import torchlgm as lgm
from entries import Setting


class Point(NamedTuple):
    along: str
    value: int
    model: str
    graph: lgm.Graph
    method: lgm.Method
    batch: int


def points(setting: Setting) -> Iterator[Point]:
    local = lgm.zoo.windows("local")
    batch = 2 if setting.quick else 256
    for size in setting.sizes((16, 64, 256, 1024, 4096), (2, 4)):
        yield Point("batch", size, "Local", local, METHOD, size)
    for iterations in setting.sizes((1, 2, 5, 10, 20), (1, 5)):
        yield Point("iterations", iterations, "Local", local, lgm.trw(iterations, "sequential"), batch)
    for times in setting.sizes((1, 2, 4, 7, 10), (1, 2)):
        graph = lgm.zoo.dense((1, 28, 28), (100, 100 * times))
        yield Point("edges", sum(edges_of(graph)), "Dense, two hidden layers", graph, METHOD, batch)


def edges_of(graph: lgm.Graph) -> list[int]:
    """Edges between layers that are not observed: those that messages go over."""
    nodes = [layer.nodes for layer in graph.layers]
    return [a * b for a, b in pairwise(nodes[1:])]


def run(setting: Setting) -> dict[str, Any]:
    return {"rows": [row(point, setting) for point in points(setting)]}


def row(point: Point, setting: Setting) -> dict[str, Any]:
    device = setting.device
    data = images(10 * point.batch, device)
    before = fresh(device)
    step = Training(lgm_predictor(point.graph, point.method), data, point.batch, device)
    loss = step().item()
    taken = steady_run(step, device, max(2, setting.repeats // 2))
    idle(device)
    memory = (torch.cuda.max_memory_allocated() - before) / 1e9 if setting.cuda else None
    row = {"along": point.along, "value": point.value, "model": point.model, "batch": point.batch}
    return {**row, "ms": taken, "GB": memory, "first loss": loss}
