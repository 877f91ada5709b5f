"""An explicit list of edges."""

from __future__ import annotations

import torch
from torch import Tensor

from torchlgm.layout.base import LEFT, Layout


class SparseLayout(Layout):
    """One edge axis, in the order of the list."""

    index: Tensor  # (2, edges): left node, right node

    def __init__(self, left: int, right: int, edges: tuple[tuple[int, int], ...]) -> None:
        super().__init__()
        self.nodes = (left, right)
        self.edge_shape = self.table_shape = (len(edges),)
        self.mask = None
        self.register_buffer("index", torch.tensor(edges).T.contiguous(), persistent=False)

    def gather(self, x: Tensor, side: int) -> Tensor:
        return x.index_select(1, self.index[side])

    def scatter(self, e: Tensor, side: int) -> Tensor:
        nodes = e.new_zeros(e.shape[0], self.nodes[side], e.shape[-1])
        return nodes.index_add(1, self.index[side], e)

    def _linear(self, table: Tensor, q: Tensor, side: int) -> Tensor:
        pattern = "bel,elr->ber" if side == LEFT else "ber,elr->bel"
        return self.scatter(torch.einsum(pattern, self.gather(q, side), table), 1 - side)
