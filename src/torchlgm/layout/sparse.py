"""An explicit list of edges."""

from __future__ import annotations

import torch
from torch import Tensor

from torchlgm.layout.base import LEFT, Layout


class SparseLayout(Layout):
    """Edges by the nodes at their ends: a list of pairs, or `(2, *edge)`, where edges that `mask` leaves out may have
    any ends."""

    index: Tensor  # (2, edges): left node, right node

    def __init__(
        self, left: int, right: int, edges: tuple[tuple[int, int], ...] | Tensor, mask: Tensor | None = None
    ) -> None:
        super().__init__()
        ends = edges if isinstance(edges, Tensor) else torch.tensor(edges).T
        self.nodes = (left, right)
        self.edge_shape = self.table_shape = tuple(ends.shape[1:])
        self.register_buffer("mask", mask, persistent=False)
        self.register_buffer("index", ends.flatten(1).contiguous(), persistent=False)

    def gather(self, x: Tensor, side: int) -> Tensor:
        return x.index_select(1, self.index[side]).unflatten(1, self.edge_shape)

    def scatter(self, e: Tensor, side: int) -> Tensor:
        nodes = e.new_zeros(e.shape[0], self.nodes[side], e.shape[-1])
        return nodes.index_add(1, self.index[side], e.flatten(1, -2))

    def _linear(self, table: Tensor, q: Tensor, side: int) -> Tensor:
        pattern = "b...l,...lr->b...r" if side == LEFT else "b...r,...lr->b...l"
        return self.scatter(torch.einsum(pattern, self.gather(q, side), self.expand(table)), 1 - side)
