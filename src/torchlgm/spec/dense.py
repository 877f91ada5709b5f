"""Every node with every node."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, ClassVar

from torchlgm.errors import GraphError
from torchlgm.spec.connection import Connection, Edge, register
from torchlgm.spec.layer import Layer

if TYPE_CHECKING:
    from torchlgm.layout import Layout


@register
@dataclass(frozen=True)
class Dense(Connection):
    """Edges from every node of one layer to every node of another, or between all nodes of one layer.

    Parameters
    ----------
    left, right : str
        The names of the layers.
    name : str, optional
        The name of the connection, by default made of theirs.
    """

    may_be_lateral: ClassVar[bool] = True

    def validate(self, left: Layer, right: Layer) -> None:
        if self.is_lateral and left.nodes == 1:
            raise GraphError(f"connection '{self.name}' has no edges: layer '{left.name}' has one node")

    def list_edges(self, left: Layer, right: Layer) -> Iterator[Edge]:
        if self.is_lateral:
            return (Edge(i, j, (n,), (n,)) for n, (i, j) in enumerate(combinations(range(left.nodes), 2)))
        return (Edge(i, j, (i, j), (i, j)) for i in range(left.nodes) for j in range(right.nodes))

    def make_layout(self, left: Layer, right: Layer) -> Layout:
        from torchlgm.layout.dense import CliqueLayout, DenseLayout

        if self.is_lateral:
            return CliqueLayout(left.nodes)
        return DenseLayout(left.nodes, right.nodes)

    def count_edges(self, left: Layer, right: Layer) -> int:
        return left.nodes * (left.nodes - 1) // 2 if self.is_lateral else left.nodes * right.nodes

    def covered(self, left: Layer, right: Layer) -> tuple[Collection[int], Collection[int]]:
        return range(left.nodes), range(right.nodes)
