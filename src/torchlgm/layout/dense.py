"""Every node with every node, of two layers or of one."""

from __future__ import annotations

import torch
from torch import Tensor

from torchlgm.layout.base import LEFT, Layout
from torchlgm.layout.sparse import SparseLayout


class DenseLayout(Layout):
    """Edge axes `(left node, right node)`."""

    def __init__(self, left: int, right: int) -> None:
        super().__init__()
        self.nodes = (left, right)
        self.edge_shape = self.table_shape = (left, right)
        self.mask = None

    def gather(self, x: Tensor, side: int) -> Tensor:
        return x.unsqueeze(2 if side == LEFT else 1)

    def scatter(self, e: Tensor, side: int) -> Tensor:
        return e.sum(2 if side == LEFT else 1)

    def _linear(self, table: Tensor, q: Tensor, side: int) -> Tensor:
        left, right = self.nodes
        kl, kr = table.shape[-2:]
        if side == LEFT and not torch.compiler.is_compiling() and 0 < q.shape[0] * kr * kr < min(right, kl):
            return self._from_left(table, q)
        matrix = table.transpose(1, 2).reshape(left * kl, right * kr)
        if side == LEFT:
            return (q.flatten(1) @ matrix).unflatten(1, (right, kr))
        return (q.flatten(1) @ matrix.T).unflatten(1, (left, kl))

    def _from_left(self, table: Tensor, q: Tensor) -> Tensor:
        """For few samples: reads the table, which is large then, in place instead of copying it into a matrix."""
        samples, kr = q.shape[0], table.shape[-1]
        one = torch.eye(kr, dtype=q.dtype, device=q.device)
        q = q.permute(1, 2, 0).contiguous()
        spread = (q[:, :, None, :, None] * one[:, None, :]).reshape(self.nodes[0], -1, samples * kr)
        return torch.bmm(table.flatten(2), spread).sum(0).unflatten(1, (samples, kr)).transpose(0, 1)


class CliqueLayout(SparseLayout):
    """Every pair of nodes of one layer, once: (0, 1), (0, 2) ... (1, 2) ..."""

    def __init__(self, nodes: int) -> None:
        super().__init__(nodes, nodes, torch.triu_indices(nodes, nodes, 1))

    def _linear(self, table: Tensor, q: Tensor, side: int) -> Tensor:
        (nodes, _), k = self.nodes, table.shape[-1]
        pairs = table.new_zeros(nodes, nodes, k, k).index_put((self.index[0], self.index[1]), table)
        matrix = pairs.transpose(1, 2).reshape(nodes * k, nodes * k)
        return (q.flatten(1) @ (matrix if side == LEFT else matrix.T)).unflatten(1, (nodes, k))
