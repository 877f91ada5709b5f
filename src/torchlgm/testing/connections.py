"""The laws that every connection must keep. The test of a new one calls `check_connection`."""

from __future__ import annotations

import torch

from torchlgm.layout import edge_list
from torchlgm.spec import Connection, Graph, Layer
from torchlgm.testing.layouts import check_layout


def check_connection(connection: Connection, left: Layer, right: Layer, seed: int = 0) -> None:
    """Raise an AssertionError that names the first law of a `Connection`, or of its layout, that is broken.

    `left` and `right` are the same for a connection of a layer with itself.

    The layout and the counts must be those of `list_edges`, which is therefore to be written as plainly as possible.
    """
    connection.validate(left, right)
    _check_counts(connection, left, right)
    _check_layout_edges(connection, left, right)
    generator = torch.Generator().manual_seed(seed)
    check_layout(connection.make_layout(left, right), left.labels, right.labels, generator)
    graph = Graph((left,) if connection.is_lateral else (left, right), (connection,))
    _holds(Graph.from_json(graph.to_json()) == graph, "a graph with it comes back from JSON as it was")


def _check_counts(connection: Connection, left: Layer, right: Layer) -> None:
    edges = list(connection.list_edges(left, right))
    _holds(len({edge.at for edge in edges}) == len(edges), "every edge has an index of its own in the layout")
    _holds(connection.count_edges(left, right) == len(edges), "count_edges counts the listed edges")
    ends = {edge.left for edge in edges}, {edge.right for edge in edges}
    covered = [sorted(nodes) for nodes in connection.covered(left, right)]
    if connection.is_lateral:
        ends, covered = (ends[0] | ends[1],), [sorted({*covered[0], *covered[1]})]
        pairs = {frozenset((edge.left, edge.right)) for edge in edges}
        _holds(len(pairs) == len(edges) and all(len(pair) == 2 for pair in pairs), "pairs of one layer are listed once")
    _holds(covered == [sorted(nodes) for nodes in ends], "covered are the ends of the listed edges")
    used, stored = len({edge.table for edge in edges}), connection.make_layout(left, right).table_shape
    tables = connection.count_tables(left, right)
    _holds(used <= tables <= torch.Size(stored).numel(), "count_tables counts the tables of the listed edges")


def _check_layout_edges(connection: Connection, left: Layer, right: Layer) -> None:
    layout = connection.make_layout(left, right)
    _holds(layout.nodes == (left.nodes, right.nodes), "the layout has the nodes of the layers")
    numbers = torch.arange(torch.Size(layout.table_shape).numel(), dtype=torch.float64).reshape(layout.table_shape)
    tables = layout.spread(numbers[..., None, None]).expand(*layout.edge_shape, 1, 1).flatten()
    (lefts, rights), exist = edge_list(layout)
    theirs = set(zip(exist.tolist(), lefts.tolist(), rights.tolist(), tables[exist].long().tolist(), strict=True))
    at = torch.arange(torch.Size(layout.edge_shape).numel()).reshape(layout.edge_shape)
    ours = {
        (int(at[edge.at]), edge.left, edge.right, int(numbers[edge.table]))
        for edge in connection.list_edges(left, right)
    }
    _holds(ours == theirs, "the layout has the listed edges, each at its index and with its table")


def _holds(kept: bool, law: str) -> None:
    if not kept:
        raise AssertionError(f"the law is broken that {law}")
