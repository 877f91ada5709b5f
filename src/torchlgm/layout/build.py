"""From the description of a connection to its layout."""

from __future__ import annotations

from torchlgm.layout.base import Layout
from torchlgm.layout.dense import DenseLayout
from torchlgm.layout.sparse import SparseLayout
from torchlgm.layout.window import WindowLayout
from torchlgm.spec import Connection, Conv, Dense, Layer, Sparse, windows


def build(connection: Connection, left: Layer, right: Layer) -> Layout:
    match connection:
        case Dense():
            return DenseLayout(left.nodes, right.nodes)
        case Sparse():
            return SparseLayout(left.nodes, right.nodes, connection.edges)
        case _:
            return WindowLayout(left, right, windows(connection, left, right), isinstance(connection, Conv))
