"""Initial energies and the scale they are stored at: named, explicit, seeded.

What an optimizer moves are stored numbers theta with `E = s * theta`. Three scales name s:

- `"energy"`: s = 1, theta is the energy.
- `"rho"`: s is the edge's rho, so that E / rho of tree-reweighted inference is theta.
- `"balanced"`: one s for each connection, `INNER / sqrt(F)`, F being the edges of a node of the layer nearer to the
  root; for connections out of an input layer `INPUT / sqrt(F)`, or `INPUT * sqrt(MANY) / F` from MANY edges on, since
  an optimizer moves them all the same way. With theta ~ N(0, 1) every layer then starts with beliefs of a useful size,
  and one learning rate moves every connection by a useful share of its size. `docs/scale.md` has the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from torchlgm._utils.validate import check_choice, is_number
from torchlgm.errors import GraphError
from torchlgm.spec import Connection, Graph

SCALES = ("balanced", "energy", "rho")
INPUT, INNER, MANY = 25.0, 3.0, 25.0


@dataclass(frozen=True)
class Init:
    """Initial energies: stored numbers drawn from normal distributions.

    Parameters
    ----------
    table : float
        The standard deviation of tables.
    unary : float
        The standard deviation of unaries.
    scale : {"energy", "balanced", "rho"}
        What stored numbers of tables are multiplied by to give energies: 1, a number for each connection that depends
        on its number of edges, or the rho of each edge.
    """

    table: float
    unary: float = 0.0
    scale: str = "energy"

    def __post_init__(self) -> None:
        check_choice("scale", self.scale, SCALES, error=GraphError)
        for name in ("table", "unary"):
            value = getattr(self, name)
            if not (is_number(value) and value >= 0):
                raise GraphError(f"{name}={value!r}; expected a standard deviation, a number >= 0")


NAMED: Mapping[str, Init] = {
    "default": Init(table=1.0, unary=0.0, scale="balanced"),
    "paper": Init(table=1.0, unary=1.0, scale="energy"),
    "zero": Init(table=0.0, unary=0.0, scale="energy"),
}


def named(init: str | Init) -> Init:
    if isinstance(init, Init):
        return init
    if not isinstance(init, str) or init not in NAMED:
        raise GraphError(f"init={init!r}; known: {', '.join(NAMED)}, or an Init(table, unary, scale)")
    return NAMED[init]


def fill_normal(parameters: nn.ParameterDict, std: float, generator: torch.Generator | None) -> None:
    """Draw all numbers, in place, on the device of the generator if there is one."""
    for parameter in parameters.values():
        _normal(parameter, std, generator)


@torch.no_grad()
def _normal(parameter: Tensor, std: float, generator: torch.Generator | None) -> None:
    if std == 0:
        parameter.zero_()
    elif generator is None or generator.device == parameter.device:
        parameter.normal_(0.0, std, generator=generator)
    else:
        drawn = torch.empty(parameter.shape, dtype=parameter.dtype, device=generator.device)
        parameter.copy_(drawn.normal_(0.0, std, generator=generator))


def balanced_scales(graph: Graph) -> dict[str, float]:
    """s of each connection."""
    distance = _distances(graph)
    outward = [c for c in graph.connections if not c.is_lateral]
    count = {name: sum(name in (c.left, c.right) for c in outward) for name in graph.layer_names}

    def scale(c: Connection) -> float:
        if c.is_lateral:
            return INNER / math.sqrt(max(2 * c.count_edges(*graph.ends(c)) / graph.layer(c.left).nodes, 1.0))
        near, far = sorted((c.left, c.right), key=lambda name: (distance[name], graph.layer(name).nodes))
        edges_of_a_node = max(c.count_edges(*graph.ends(c)) / graph.layer(near).nodes, 1.0)
        if count[far] > 1 or near == graph.root:
            return INNER / math.sqrt(edges_of_a_node)
        return INPUT / math.sqrt(edges_of_a_node * max(edges_of_a_node / MANY, 1.0))

    return {c.name: scale(c) for c in graph.connections}


def _distances(graph: Graph) -> dict[str, int]:
    """Connections between each layer and the root."""
    distance, frontier = {graph.root: 0}, [graph.root]
    for layer in frontier:
        for c in graph.connections:
            if layer in (c.left, c.right):
                neighbour = c.right if c.left == layer else c.left
                if neighbour not in distance:
                    distance[neighbour] = distance[layer] + 1
                    frontier.append(neighbour)
    return distance
