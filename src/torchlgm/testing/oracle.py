"""Slow and obvious: energies by loops over edges, from the description of the graph alone.

No layout is used, so an energy that agrees with this one was vectorised correctly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from torch import Tensor

from torchlgm.spec import Connection, Edge, Graph


def edges(graph: Graph, connection: Connection) -> list[Edge]:
    """Every edge of a connection, as the connection itself lists them."""
    return list(connection.list_edges(*graph.ends(connection)))


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
                total += unary[layer.name][node, label - 1].item()
    for connection in graph.connections:
        for edge in edges(graph, connection):
            a, b = labels[connection.left][edge.left], labels[connection.right][edge.right]
            if a > 0 and b > 0:
                total += table[connection.name][(*edge.table, a - 1, b - 1)].item()
    return total


def labellings(graph: Graph) -> Iterator[dict[str, tuple[int, ...]]]:
    """Every labelling of all nodes."""
    per_layer = [product(range(layer.labels), repeat=layer.nodes) for layer in graph.layers]
    for choice in product(*per_layer):
        yield dict(zip(graph.layer_names, choice, strict=True))
