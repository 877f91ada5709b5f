"""Slow and obvious: energies by loops over edges, from the description of the graph alone.

Nothing here uses a layout, so an energy that agrees with this one was vectorised rightly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from torch import Tensor

from torchlgm.spec import Connection, Conv, Dense, Graph, Layer, Local, Sparse


class Edge(NamedTuple):
    """Two nodes, counted in row-major order, and where the table of their edge is stored."""

    left: int
    right: int
    table: tuple[int, ...]


def edges(graph: Graph, connection: Connection) -> list[Edge]:
    """Every edge of a connection."""
    left, right = graph.ends(connection)
    match connection:
        case Dense():
            return [Edge(i, j, (i, j)) for i in range(left.nodes) for j in range(right.nodes)]
        case Sparse():
            return [Edge(i, j, (n,)) for n, (i, j) in enumerate(connection.edges)]
        case _:
            return list(_window_edges(connection, left, right))


def energy(
    graph: Graph, unary: Mapping[str, Tensor], table: Mapping[str, Tensor], labels: Mapping[str, Sequence[int]]
) -> float:
    """E(x) of one labelling of all nodes: the sum of `unary[layer]` `(nodes, K-1)` and `table[connection]` entries.

    `labels[layer]` holds a label for each node; label 0 has energy 0.
    """
    total = 0.0
    for layer in graph.layers:
        for node, label in enumerate(labels[layer.name]):
            if label > 0:
                total += float(unary[layer.name][node, label - 1])
    for connection in graph.connections:
        for edge in edges(graph, connection):
            a, b = labels[connection.left][edge.left], labels[connection.right][edge.right]
            if a > 0 and b > 0:
                total += float(table[connection.name][(*edge.table, a - 1, b - 1)])
    return total


def labellings(graph: Graph) -> Iterator[dict[str, tuple[int, ...]]]:
    """Every labelling of all nodes."""
    per_layer = [product(range(layer.labels), repeat=layer.nodes) for layer in graph.layers]
    for choice in product(*per_layer):
        yield dict(zip(graph.layer_names, choice, strict=True))


def _window_edges(connection: Conv | Local, left: Layer, right: Layer) -> Iterator[Edge]:
    dims = len(left.sizes) - 1
    kernel, stride, dilation = (_each(v, dims) for v in (connection.kernel, connection.stride, connection.dilation))
    before = [pad[0] if isinstance(pad, tuple) else pad for pad in _each(connection.padding, dims)]
    for a, b in product(range(left.sizes[0]), range(right.sizes[0])):
        for at in product(*map(range, right.sizes[1:])):
            for k in product(*map(range, kernel)):
                seen = [at[d] * stride[d] - before[d] + k[d] * dilation[d] for d in range(dims)]
                if all(0 <= seen[d] < left.sizes[1 + d] for d in range(dims)):
                    table = (a, b, *k) if isinstance(connection, Conv) else (a, b, *k, *at)
                    yield Edge(_number(left, (a, *seen)), _number(right, (b, *at)), table)


def _each(value: object, dims: int) -> tuple:
    return value if isinstance(value, tuple) else (value,) * dims


def _number(layer: Layer, index: Sequence[int]) -> int:
    number = 0
    for size, i in zip(layer.sizes, index, strict=True):
        number = number * size + i
    return number
