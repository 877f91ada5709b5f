"""The contract of a layout: where the edges between two layers, or inside one, are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import deepcopy
from typing import Self

import torch
from torch import Tensor, nn

from torchlgm._utils.tracing import no_autocast

LEFT, RIGHT = 0, 1


class Layout(nn.Module, ABC):
    """A fixed edge set between a left and a right layer, which may be the same. Holds index buffers, never a parameter.

    Node tensors are `(B, nodes, k)`, edge tensors `(B, *edge_shape, k)`; tables are `(*edge_shape, kl, kr)` or,
    where edges share tables, `(*table_shape, kl, kr)`. An edge axis of size 1 broadcasts. On edges that do not
    exist (`mask` is 0 there) an edge tensor is 0, and `expand` keeps it so by giving them a table of 0.
    """

    edge_shape: tuple[int, ...]
    table_shape: tuple[int, ...]
    nodes: tuple[int, int]
    mask: Tensor | None  # broadcasts against edge_shape; 1 where the edge exists, None where all do

    @abstractmethod
    def gather(self, x: Tensor, side: int) -> Tensor:
        """Nodes of `side` to edges: `(B, nodes, k)` -> broadcastable to `(B, *edge_shape, k)`."""

    @abstractmethod
    def scatter(self, e: Tensor, side: int) -> Tensor:
        """Edges to nodes of `side`, the exact adjoint of `gather`: `(B, *edge_shape, k)` -> `(B, nodes, k)`."""

    def spread(self, table: Tensor) -> Tensor:
        """A table in its stored shape -> broadcastable to `(*edge_shape, kl, kr)`, as a view."""
        return table

    def expand(self, table: Tensor) -> Tensor:
        """`spread`, and 0 where there is no edge."""
        table = self.spread(table)
        return table if self.mask is None else table * self.mask[..., None, None].to(table.dtype)

    @abstractmethod
    def _linear(self, table: Tensor, q: Tensor, side: int) -> Tensor:
        """`linear` as matrix products or convolutions."""

    def linear(self, table: Tensor, q: Tensor, side: int) -> Tensor:
        """`sum_i sum_x E_ij(x, .) q_i(x)` over the nodes i of `side`: `(B, nodes, k)` -> `(B, other nodes, k')`.

        `table` is in its stored shape or expanded. Computed in the dtype of `table`, under torch.autocast as well.
        """
        with no_autocast(table):
            return self._linear(table, q, side)

    def total(self, e: Tensor) -> Tensor:
        """Sum over the edges that exist: broadcastable to `(B, *edge_shape)` -> `(B,)`."""
        e = e.expand(e.shape[0], *self.edge_shape)
        if self.mask is not None:
            e = e * self.mask.to(e.dtype)
        return e.flatten(1).sum(1)

    def degree(self, side: int) -> Tensor:
        """How many edges each node of `side` has: `(nodes,)`, float64 on the CPU."""
        layout = self.on_cpu()
        ones = torch.ones((1, *self.edge_shape, 1), dtype=torch.float64, device="cpu")
        if layout.mask is not None:
            ones = ones * layout.mask.to(ones.dtype).unsqueeze(-1)
        return layout.scatter(ones, side)[0, :, 0]

    def on_cpu(self) -> Self:
        """Itself or a copy, on the CPU: what must be exact takes float64, which not every device has."""
        if all(buffer.device.type == "cpu" for buffer in self.buffers()):
            return self
        return deepcopy(self).cpu()


def edge_list(layout: Layout) -> tuple[Tensor, Tensor]:
    """The nodes `(2, edges)` of the edges that exist and their index `(edges,)` among the flattened edges."""
    layout = layout.on_cpu()
    exists = torch.ones(layout.edge_shape, dtype=torch.bool, device="cpu")
    if layout.mask is not None:
        exists = exists & layout.mask.bool()
    ends = []
    for side in (LEFT, RIGHT):
        numbers = torch.arange(layout.nodes[side], dtype=torch.float64, device="cpu")[None, :, None]
        ends.append(layout.gather(numbers, side).expand(1, *layout.edge_shape, 1).flatten())
    exists = exists.flatten()
    return torch.stack(ends)[:, exists].round().long(), exists.nonzero().squeeze(1)
