"""Initial energies: named, explicit, seeded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from torchlgm.errors import GraphError
from torchlgm.spec import Graph, count_edges


@dataclass(frozen=True)
class Init:
    """Normal energies. A table's standard deviation is `table / degree**power`, degree being the mean number of
    edges of a node of the connection's busier side; unaries have standard deviation `unary`."""

    table: float
    power: float
    unary: float


NAMED: Mapping[str, Init] = {
    "paper": Init(table=1.0, power=0.0, unary=1.0),
    "default": Init(table=1.0, power=0.5, unary=0.0),
    "zero": Init(table=0.0, power=0.0, unary=0.0),
}


def initialise(
    unary: nn.ParameterDict,
    table: nn.ParameterDict,
    graph: Graph,
    init: str | Init,
    generator: torch.Generator | None,
) -> None:
    """Fill the energies in place."""
    if isinstance(init, str):
        if init not in NAMED:
            raise GraphError(f"init={init!r}; known: {', '.join(NAMED)}, or an Init(table, power, unary)")
        init = NAMED[init]
    for parameter in unary.values():
        _normal(parameter, init.unary, generator)
    for c in graph.connections:
        left, right = graph.ends(c)
        degree = count_edges(graph, c) / min(left.nodes, right.nodes)
        _normal(table[c.name], init.table / math.pow(max(degree, 1.0), init.power), generator)


def _normal(parameter: Tensor, std: float, generator: torch.Generator | None) -> None:
    with torch.no_grad():
        if std == 0:
            parameter.zero_()
        else:
            parameter.normal_(0.0, std, generator=generator)
