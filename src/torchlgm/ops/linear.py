"""Messages that are linear in what is known about their source, soft evidence and mean field: formula 3 of
docs/kernels.md."""

from __future__ import annotations

from torch import Tensor

from torchlgm.layout import LEFT, RIGHT, DenseLayout, Layout
from torchlgm.ops.backend import Backend, kernels
from torchlgm.ops.program import NO_SLOT, Form, LinkSpec, MessageStep, Program, Slot

MANY = 128  # samples
LARGE = 16  # entries of an edge's table


def linear(layout: Layout, table: Tensor, q: Tensor, side: int, scale: float = 1.0) -> Tensor:
    """`scale * layout.linear(table, q, side)`, by a kernel where there is one."""
    backend = linear_kernels(layout, table, q)
    if backend is None:
        return scale * layout.linear(table, q, side)
    from torchlgm.ops.fused import run

    spec = LinkSpec(layout, scale)
    return run(_PROGRAMS[side], backend.launcher(), [spec], [q, layout.spread(table)])[0]


def _program(side: int) -> Program:
    q, table, inflow = range(3)
    step = MessageStep(table, side, (NO_SLOT, q, NO_SLOT, NO_SLOT), NO_SLOT, inflow)
    return Program((Slot(Form.NODES), Slot(Form.TABLE), Slot(Form.NODES)), (q, table), (step,), (inflow,))


_PROGRAMS = {side: _program(side) for side in (LEFT, RIGHT)}


def linear_kernels(layout: Layout, table: Tensor, q: Tensor) -> Backend | None:
    """The kernels that make such messages; None for plain PyTorch."""
    return kernels(table, work=_work(layout, table, q), constants=layout.buffers())


def _work(layout: Layout, table: Tensor, q: Tensor) -> int:
    """See `kernels`: PyTorch has fast operations for matrices and for shared tables.

    On a GPU, kernels are as fast for few samples and few labels, and spare launches; and they are exact where PyTorch's
    convolutions round to ten bits by default.
    """
    if table.is_cuda:
        plain = isinstance(layout, DenseLayout) and (table.shape[-2:].numel() >= LARGE or q.shape[0] >= MANY)
    else:
        plain = isinstance(layout, DenseLayout) or layout.table_shape != layout.edge_shape
    return 0 if plain else table.numel() * q.shape[0]
