"""Every node with every node."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchlgm.spec.connection import Connection, Edge, register
from torchlgm.spec.layer import Layer

if TYPE_CHECKING:
    from torchlgm.layout import Layout


@register
@dataclass(frozen=True)
class Dense(Connection):
    """Every node of `left` with every node of `right`."""

    def list_edges(self, left: Layer, right: Layer) -> Iterator[Edge]:
        return (Edge(i, j, (i, j), (i, j)) for i in range(left.nodes) for j in range(right.nodes))

    def make_layout(self, left: Layer, right: Layer) -> Layout:
        from torchlgm.layout.dense import DenseLayout

        return DenseLayout(left.nodes, right.nodes)

    def count_edges(self, left: Layer, right: Layer) -> int:
        return left.nodes * right.nodes

    def covered(self, left: Layer, right: Layer) -> tuple[Collection[int], Collection[int]]:
        return range(left.nodes), range(right.nodes)
