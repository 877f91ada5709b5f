"""The edges of a layout as sparse rows (CSR), one for each node: the one form in which kernels read every layout."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from torchlgm._utils.tracing import is_traced
from torchlgm.layout import LEFT, RIGHT, Layout, edge_list


class Csr(NamedTuple):
    """The edges at each node of one side: those of node n are at `indptr[n] .. indptr[n+1]-1`."""

    edges: Tensor  # (edges that exist,), int32: positions in the flattened edge axes
    indices: Tensor  # (edges that exist,), int32: the nodes at their other ends
    indptr: Tensor  # (nodes + 1,), int32
    nodes: int
    degree: float  # mean number of edges at a node
    stride: int | None  # 1: edge i is at place i; `nodes`: edge i is one of node i % nodes; None: neither
    dense: bool  # whether all nodes have as many edges, with the nodes 0, 1, 2, ... of the other side


class Incidence:
    """The edges of a layout, by the nodes of both sides, on one device."""

    def __init__(self, layout: Layout, device: torch.device) -> None:
        self.shape = layout.edge_shape
        self.count = torch.Size(self.shape).numel()
        self.complete = layout.mask is None
        self.device = device
        ends, exist = edge_list(layout)
        orders = [nodes.argsort(stable=True) for nodes in ends]
        self.sides = tuple(
            _side(ends[s], ends[1 - s][orders[s]], exist[orders[s]], layout.nodes[s], device) for s in (LEFT, RIGHT)
        )
        self.factors: dict[_Key, Weights] = {}
        self._sorted = [exist[order] for order in orders]
        self._rows: dict[torch.Size, tuple[Tensor, Tensor]] = {}

    def sorted(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Values of the edges, broadcastable to them, in the order of both lists."""
        flat = values.expand(self.shape).flatten()
        left, right = (flat.index_select(0, side.edges) for side in self.sides)
        return left, right

    def rows(self, shape: torch.Size) -> tuple[Tensor, Tensor]:
        """For each edge in the order of both lists, the row of a table whose `shape` broadcasts to the edges.

        Copied to the device, like all that kernels read before their predecessors are done, see `begin` of the kernels.
        """
        if shape.numel() == self.count:
            left, right = self.sides
            return left.edges, right.edges
        if shape not in self._rows:
            rows = torch.arange(shape.numel(), dtype=torch.int32).reshape(shape).expand(self.shape).flatten()
            left, right = (rows[edges].to(self.device) for edges in self._sorted)
            self._rows[shape] = left, right
        return self._rows[shape]


_known: WeakKeyDictionary[Layout, dict[torch.device, Incidence]] = WeakKeyDictionary()


def incidence(layout: Layout, device: torch.device) -> Incidence:
    by_device = _known.setdefault(layout, {})
    if device not in by_device:
        by_device[device] = Incidence(layout, device)
    return by_device[device]


def _side(owners: Tensor, indices: Tensor, edges: Tensor, nodes: int, device: torch.device) -> Csr:
    indptr = torch.cat([torch.zeros(1, dtype=torch.long), owners.bincount(minlength=nodes).cumsum(0)])
    degree = len(edges) / max(nodes, 1)
    stride, each = _stride(edges, nodes), round(degree)
    dense = indptr.equal(each * torch.arange(nodes + 1)) and indices.equal(torch.arange(each).repeat(nodes))
    edges, indices, indptr = (x.int().to(device) for x in (edges, indices, indptr))
    return Csr(edges, indices, indptr, nodes, degree, stride, dense)


def _stride(edges: Tensor, nodes: int) -> int | None:
    places = torch.arange(len(edges))
    if edges.equal(places):
        return 1
    if nodes == 0 or len(edges) % nodes:
        return None
    return nodes if edges.equal(places.view(-1, nodes).T.flatten()) else None


_Key = tuple[float, bool, torch.dtype, int | None]  # scale, whether it is over rho, dtype, version of rho


class Weights(NamedTuple):
    """For each edge in the order of both lists: rho, None where it is 1, and what stored tables are multiplied by."""

    rho: tuple[Tensor, Tensor] | tuple[None, None]
    factor: tuple[Tensor, Tensor]


_by_rho: MutableMapping[Tensor, dict[_Key, Weights]] = WeakIdKeyDictionary()


def weights(lists: Incidence, rho: Tensor | None, scale: float, like: Tensor, divide_by_rho: bool = True) -> Weights:
    """Factors `scale / rho`, or `scale`, made once for each `rho`, which is a constant of the graph."""
    cached: dict[_Key, Weights] = lists.factors if rho is None else _by_rho.setdefault(rho, {})
    key = scale, divide_by_rho, like.dtype, None if rho is None else rho._version
    if key in cached:
        return cached[key]
    one = like.new_ones(()) if rho is None else rho.detach().to(like.dtype)
    factor = scale / one if divide_by_rho else torch.full_like(one, scale)
    weights = Weights((None, None) if rho is None else lists.sorted(one), lists.sorted(factor))
    if not is_traced(one):  # what is made while a graph is captured has no value before it is replayed
        cached[key] = weights
    return weights
