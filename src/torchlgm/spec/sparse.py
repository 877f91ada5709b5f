"""An explicit list of edges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from torchlgm._utils.validate import is_int_at_least
from torchlgm.errors import GraphError
from torchlgm.spec.connection import Connection, Edge, register
from torchlgm.spec.layer import Layer, as_tuples

if TYPE_CHECKING:
    from torchlgm.layout import Layout


@register
@dataclass(frozen=True)
class Sparse(Connection):
    """A list of edges.

    Parameters
    ----------
    left, right : str
        The names of the layers.
    edges : sequence of tuple
        Pairs `(left node, right node)`, with nodes counted in row-major order. Inside one layer, each pair is listed
        once, in either order.
    name : str, optional
        The name of the connection, by default made of theirs.
    """

    edges: tuple[tuple[int, int], ...]
    may_be_lateral: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "edges", as_tuples(self.edges))

    def validate(self, left: Layer, right: Layer) -> None:
        what = f"connection '{self.name}'"
        if not isinstance(self.edges, tuple):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise GraphError(f"{what}: edges={self.edges!r}, expected a list of pairs (left node, right node)")
        if not self.edges:
            raise GraphError(f"{what} has no edges")
        for edge in self.edges:
            if not _is_pair(edge):
                raise GraphError(f"{what}: edge {edge!r}, expected a pair (left node, right node)")
            if edge[0] >= left.nodes or edge[1] >= right.nodes:
                raise GraphError(
                    f"{what}: edge {edge} is out of range, '{left.name}' has {left.nodes} nodes and "
                    f"'{right.name}' {right.nodes}"
                )
        pairs = [tuple(sorted(edge)) for edge in self.edges] if self.is_lateral else self.edges
        twice = [pair for pair, count in Counter(pairs).items() if count > 1]
        if twice:
            raise GraphError(f"{what}: edge {twice[0]} is listed twice")
        loops = [edge for edge in self.edges if self.is_lateral and edge[0] == edge[1]]
        if loops:
            raise GraphError(f"{what}: edge {loops[0]} joins a node with itself; its energies belong to the unary")

    def list_edges(self, left: Layer, right: Layer) -> Iterator[Edge]:
        del left, right
        return (Edge(i, j, (n,), (n,)) for n, (i, j) in enumerate(self.edges))

    def count_edges(self, left: Layer, right: Layer) -> int:
        del left, right
        return len(self.edges)

    def covered(self, left: Layer, right: Layer) -> tuple[Collection[int], Collection[int]]:
        del left, right
        return {i for i, _ in self.edges}, {j for _, j in self.edges}

    def make_layout(self, left: Layer, right: Layer) -> Layout:
        from torchlgm.layout.sparse import SparseLayout

        return SparseLayout(left.nodes, right.nodes, self.edges)


def _is_pair(edge: object) -> bool:
    return isinstance(edge, tuple) and len(edge) == 2 and all(is_int_at_least(n, 0) for n in edge)
