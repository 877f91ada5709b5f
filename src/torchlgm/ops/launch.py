"""What kernels for every kind of device share: the form of their tensors, a link made ready, how they are called.

Tensors here have the kernels' form: nodes `(models, nodes, k, width)`, edges `(models, edges, k, width)`, where the
width is the number of samples, padded, or, for what is the same in every sample, 1. Tables are
`(models, rows, kl, kr)`, rows broadcasting to the edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from torchlgm.ops.csr import Incidence, Weights, incidence, weights
from torchlgm.ops.program import LinkSpec, MessageStep

Slots = Sequence[Tensor | None]  # by slot, with a None behind the last


class Wires(NamedTuple):
    """All that kernels read of a link but its table."""

    incidence: Incidence
    rows: tuple[Tensor, Tensor]
    weights: Weights
    mode: str  # "sum", "max" or "linear"
    models: int
    labels: tuple[int, int]  # of both sides, less one
    table_rows: int

    @property
    def edge_shape(self) -> tuple[int, ...]:
        return self.incidence.shape


def wires(spec: LinkSpec, table: Tensor) -> Wires:
    """Of a table `(models, *broadcasts to the edges, kl, kr)`."""
    layout, scale, rho, mode, divide_by_rho = spec
    models, *rows, kl, kr = table.shape
    lists = incidence(layout, table.device)
    factors = weights(lists, rho, scale, table, divide_by_rho)
    shape = torch.Size(rows)
    return Wires(lists, lists.rows(shape), factors, mode, models, (kl, kr), shape.numel())


class Sink(NamedTuple):
    """Where a gradient goes: a tensor, and whether it already contains something to add to."""

    tensor: Tensor
    old: bool


class Sinks(NamedTuple):
    """For the gradients of a message: one for each part of the belief. Narrow ones have a leading axis for blocks of
    samples; so has that of the table, `(blocks, models, edges, kl, kr)`."""

    belief: Sequence[Sink | None]
    reverse: Sink | None
    table: Sink | None


class Launch(Protocol):
    """Kernels for one kind of device. `looks_back` says that gradients of messages out of nodes with several labels
    need these messages again, and their norms: for each edge, the log of the sum over the labels of its source."""

    looks_back: bool

    def padded(self, batch: int) -> int:
        """The width of tensors for `batch` samples."""
        ...

    def blocks(self, batch: int) -> int:
        """How many blocks of samples `send_backward` takes one by one, `batch` being padded."""
        ...

    def pack(self, x: Tensor, wide: int) -> Tensor:
        """`(models, nodes, k, batch)` with any strides -> the same in one piece, padded with 0."""
        ...

    def send(self, step: MessageStep, wires: Wires, slots: Slots, width: int) -> None:
        """Fill in what the step makes, from what it reads, as wide as the widest of these."""
        ...

    def send_backward(
        self,
        step: MessageStep,
        wires: Wires,
        slots: Slots,
        width: int,
        inflow_grads: Sequence[Tensor],
        edges_grad: Tensor | None,
        sinks: Sinks,
    ) -> None:
        """Add the gradients to the sinks, from that of the edges and at most two that add up to that of the inflow.

        These have a leading axis of parts, which are added up too.
        """
        ...

    def add_up(self, sums: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        """For each, the sum of its one or two tensors over them and over their leading axes."""
        ...


def nodes_in(x: Tensor, launch: Launch) -> Tensor:
    """`(models, batch or 1, nodes, k)` -> the kernels' form."""
    x = x.detach().permute(0, 2, 3, 1)
    batch = x.shape[-1]
    wide = batch if batch == 1 else launch.padded(batch)
    return x if wide == batch and x.is_contiguous() else launch.pack(x, wide)


def nodes_out(x: Tensor, batch: int) -> Tensor:
    """The kernels' form of `batch` samples -> `(models, batch, nodes, k)`."""
    return x.permute(0, 3, 1, 2)[:, :batch]


def edges_in(x: Tensor, shape: tuple[int, ...], launch: Launch) -> Tensor:
    """`(models, batch or 1, *edge, k)` -> the kernels' form."""
    return nodes_in(x.expand(*x.shape[:2], *shape, x.shape[-1]).flatten(2, -2), launch)


def edges_out(x: Tensor, shape: tuple[int, ...], batch: int) -> Tensor:
    return nodes_out(x, batch).unflatten(2, shape)


def narrowed(x: Tensor, width: int) -> Tensor:
    """The gradient of what was broadcast to all samples, where `width` is 1."""
    return x if x.shape[-1] == width else x.sum(-1, keepdim=True)


def added_up(terms: Sequence[Tensor]) -> Tensor:
    """The sum of tensors over them and over their leading axes."""
    first, *others = [x.squeeze(0) if x.shape[0] == 1 else x.sum(0) for x in terms]
    return sum(others, first)
