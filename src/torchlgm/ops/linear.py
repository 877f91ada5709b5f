"""Messages that are linear in what is known about their source: soft evidence and mean field."""

from __future__ import annotations

from torch import Tensor

from torchlgm.layout import DenseLayout, Layout
from torchlgm.ops.backend import fused


def linear(layout: Layout, table: Tensor, q: Tensor, side: int, scale: float = 1.0) -> Tensor:
    """`scale * layout.linear(table, q, side)`, by a kernel where there is one."""
    if not fused(table, work=_work(layout, table, q)):
        return scale * layout.linear(table, q, side)
    from torchlgm.ops.fused import linear as by_kernel

    return by_kernel(layout, table, q, side, scale)


def _work(layout: Layout, table: Tensor, q: Tensor) -> int:
    """See `fused`: edges that share no table and do not make a matrix are what PyTorch has no fast operation for."""
    if isinstance(layout, DenseLayout) or layout.table_shape != layout.edge_shape:
        return 0
    return table.numel() * q.shape[0]
