"""What kernels for every kind of device share: a connection made ready, its messages and their gradients, `linear`.

Tensors here have the kernels' form: nodes `(models, nodes, k, width)`, edges `(models, edges, k, width)`, where the
width is the number of samples, padded, or, for what is the same in every sample, 1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from torchlgm.layout import LEFT, Layout
from torchlgm.ops.autograd import call
from torchlgm.ops.csr import EdgeLists, Weights, edge_lists, weights


class Wires(NamedTuple):
    """A connection for the kernels: `table` `(models, rows, kl, kr)` with rows that broadcast to the edges."""

    lists: EdgeLists
    table: Tensor
    rows: tuple[Tensor, Tensor]
    weights: Weights
    mode: str  # "sum", "max" or "linear"

    @property
    def models(self) -> int:
        return self.table.shape[0]

    def labels(self, side: int) -> tuple[int, int]:
        """The numbers of labels of source and target, less one."""
        kl, kr = self.table.shape[-2:]
        return (kl, kr) if side == LEFT else (kr, kl)


def wires(
    layout: Layout,
    table: Tensor,
    shape: torch.Size,
    scale: float,
    rho: Tensor | None,
    mode: str,
    divided: bool = True,
) -> Wires:
    """Messages take the table times `scale`, `divided` by rho; it is `(models, rows, kl, kr)` and was `shape`,
    `(models, *broadcasts to the edges, kl, kr)`."""
    lists = edge_lists(layout, table.device)
    return Wires(lists, table, lists.rows(shape[1:-2]), weights(lists, rho, scale, table, divided), mode)


def nodes_in(x: Tensor, launch: Launch) -> Tensor:
    """`(models, batch or 1, nodes, k)` -> the kernels' form."""
    x = x.detach().permute(0, 2, 3, 1)
    wide = launch.padded(x.shape[-1])
    return x if wide == x.shape[-1] and x.is_contiguous() else launch.pack(x, wide)


def nodes_out(x: Tensor, batch: int) -> Tensor:
    """The kernels' form of `batch` samples -> `(models, batch, nodes, k)`."""
    return x.permute(0, 3, 1, 2)[:, :batch]


def edges_in(x: Tensor, shape: tuple[int, ...], launch: Launch) -> Tensor:
    """`(models, batch or 1, *edge, k)` -> the kernels' form."""
    return nodes_in(x.expand(*x.shape[:2], *shape, x.shape[-1]).flatten(2, -2), launch)


def edges_out(x: Tensor, shape: tuple[int, ...], batch: int) -> Tensor:
    return nodes_out(x, batch).unflatten(2, shape)


class Belief(NamedTuple):
    """The parts of a belief: minus `unary`, plus `field`, plus two inflows."""

    unary: Tensor | None
    field: Tensor | None
    first: Tensor | None = None
    second: Tensor | None = None


class Sink(NamedTuple):
    """Where a gradient goes: a tensor, and whether it already holds something to add to."""

    tensor: Tensor
    old: bool


class Sent(NamedTuple):
    """What a message is made of: `reverse` is the message that came back."""

    wires: Wires
    side: int
    belief: Belief
    reverse: Tensor | None
    width: int

    @classmethod
    def of(cls, wires: Wires, side: int, belief: Belief, reverse: Tensor | None) -> Sent:
        """As wide as the widest of its parts."""
        return cls(wires, side, belief, reverse, width(*belief, reverse))


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

    def send(self, sent: Sent, edges: Tensor | None, norms: Tensor | None, inflow: Tensor) -> None:
        """Fill in the message and the norms, unless they are None, and its inflow."""
        ...

    def send_backward(
        self,
        sent: Sent,
        message: Tensor | None,
        norms: Tensor | None,
        inflow_grads: Sequence[Tensor],
        edges_grad: Tensor | None,
        sinks: Sinks,
    ) -> None:
        """Add the gradients to the sinks, from that of the edges and at most two that add up to that of the inflow.

        These have a leading axis of parts, which are added up too. `message` is what was sent, where that is needed.
        """
        ...

    def add_up(self, sums: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        """For each, the sum of its one or two tensors over them and over their leading axes."""
        ...


def send(
    launch: Launch, sent: Sent, keep: bool, look_back: bool = False
) -> tuple[Tensor | None, Tensor | None, Tensor]:
    """The message, None unless it is to be kept or gradients `look_back` at it, the norms these then want as well, and
    its inflow."""
    wires, lists, (_, t) = sent.wires, sent.wires.lists, sent.wires.labels(sent.side)
    edges = norms = None
    if keep or look_back:
        make = wires.table.new_empty if lists.complete else wires.table.new_zeros
        edges = make(wires.models, lists.count, t, sent.width)
    inflow = wires.table.new_empty(wires.models, lists.sides[1 - sent.side].nodes, t, sent.width)
    if look_back and wires.mode == "sum":
        norms = wires.table.new_empty(wires.models, lists.count, 1, sent.width)
    launch.send(sent, edges, norms, inflow)
    return edges, norms, inflow


def width(*tensors: Tensor | None) -> int:
    return max(x.shape[-1] for x in tensors if x is not None)


class Gradients:
    """Sums of gradients by key, in the kernels' form, added to by one kernel after another of the same lane."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self._found: dict[Any, dict[tuple[Hashable, int], Tensor]] = defaultdict(dict)
        self._kept: list[Tensor] = []

    def sink(self, key: Any, like: Tensor, batch: int, complete: bool = True, lane: Hashable = None) -> Sink:
        """For the gradient of `like`, out of a kernel that takes `batch` samples."""
        parts = 1 if like.shape[-1] == batch else self.launch.blocks(batch)
        return self._sink(key, like, tuple(like.shape), parts, complete, lane)

    def table_sink(self, key: Any, wires: Wires, batch: int, lane: Hashable = None) -> Sink:
        """For the gradient of a table, written for each edge."""
        shape = (wires.models, wires.lists.count, *wires.table.shape[-2:])
        return self._sink(key, wires.table, shape, self.launch.blocks(batch), wires.lists.complete, lane)

    def _sink(self, key: Any, like: Tensor, shape: tuple[int, ...], parts: int, complete: bool, lane: Hashable) -> Sink:
        known = self._found[key]
        if (lane, parts) in known:
            return Sink(known[lane, parts], True)
        if parts == 1:  # added to the first part of several
            for (owner, count), more in known.items():
                if owner == lane and count > 1:
                    return Sink(more[:1], True)
        make = like.new_empty if complete else like.new_zeros
        known[lane, parts] = make(parts, *shape)
        return Sink(known[lane, parts], not complete)

    def add(self, key: Any, grad: Tensor, lane: Hashable = None) -> None:
        """A gradient that belongs to somebody else: kernels do not add to it."""
        known = self._found[key]
        known[lane, 0] = grad.unsqueeze(0) if (lane, 0) not in known else known[lane, 0] + grad

    def __contains__(self, key: Any) -> bool:
        return bool(self._found.get(key))

    def pop_all(self, keys: Sequence[Any]) -> list[Tensor | None]:
        """Whole gradients, shaped like what they belong to; all that are in parts are added up at once."""
        terms = [self.pop_terms(key) for key in keys]
        in_parts = [len(found) > 1 or any(len(x) > 1 for x in found) for found in terms]
        sums = iter(self.launch.add_up([found for found, several in zip(terms, in_parts, strict=True) if several]))
        return [
            next(sums) if several else found[0].squeeze(0) if found else None
            for found, several in zip(terms, in_parts, strict=True)
        ]

    def pop_terms(self, key: Any, lane: Hashable = None, most: int = 2) -> list[Tensor]:
        """At most so many tensors, in parts, that add up to the whole gradient.

        Memory of other lanes is not given back before they are joined: they would take it again at once.
        """
        found = self._found.pop(key, {})
        self._kept += [x for (owner, _), x in found.items() if owner != lane]
        terms = list(found.values())
        return terms if len(terms) <= most else [*terms[: most - 1], added_up(terms[most - 1 :]).unsqueeze(0)]


def added_up(terms: Sequence[Tensor]) -> Tensor:
    """The sum of tensors over them and over their leading axes."""
    first, *others = (x.squeeze(0) if x.shape[0] == 1 else x.sum(0) for x in terms)
    return sum(others, first)


def table_gradient(grad: Tensor, edge_shape: tuple[int, ...], shape: torch.Size) -> Tensor:
    """A gradient for each edge, `(models, edges, kl, kr)` -> one shaped like the table, which broadcasts to them."""
    return grad.unflatten(1, edge_shape).sum_to_size(shape)


class Linear:
    """`scale * sum_i sum_x E_ij(x, .) q_i(x)` over the nodes i of a side; tensors are an expanded table and q."""

    def __init__(self, layout: Layout, side: int, scale: float, launch: Launch) -> None:
        self.layout, self.side, self.scale = layout, side, scale
        self.launch = launch

    def forward(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor | None]]:
        self.shape, self.batch = tensors[0].shape, tensors[1].shape[1]
        table, q = tensors[0].detach().flatten(1, -3).contiguous(), nodes_in(tensors[1], self.launch)
        _, _, inflow = send(self.launch, self._sent(table, q), keep=False)
        return [nodes_out(inflow, self.batch)], [table, q]

    def backward(
        self, saved: Sequence[Tensor | None], wanted: Sequence[bool], grads: Sequence[Tensor | None]
    ) -> list[Tensor | None]:
        table, q = saved
        assert table is not None
        assert q is not None
        assert grads[0] is not None
        sent, found = self._sent(table, q), Gradients(self.launch)
        to_table = found.table_sink("table", sent.wires, sent.width) if wanted[0] else None
        to_q = found.sink("q", q, sent.width) if wanted[1] else None
        sinks = Sinks([None, to_q, None, None], None, to_table)
        self.launch.send_backward(sent, None, None, [nodes_in(grads[0], self.launch).unsqueeze(0)], None, sinks)
        of_table, of_q = found.pop_all(["table", "q"])
        return [
            None if of_table is None else table_gradient(of_table, self.layout.edge_shape, self.shape),
            None if of_q is None else nodes_out(of_q, self.batch),
        ]

    def _sent(self, table: Tensor, q: Tensor) -> Sent:
        made = wires(self.layout, table, self.shape, self.scale, None, "linear")
        return Sent.of(made, self.side, Belief(None, q), None)

    def eager(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        table, q = tensors
        return [self.scale * self.layout.linear(table, q, self.side)]


def linear_by(launch: Launch, layout: Layout, table: Tensor, q: Tensor, side: int, scale: float) -> Tensor:
    """`scale * layout.linear(table, q, side)` by a kernel."""
    return call(Linear(layout, side, scale, launch), [layout.spread(table), q])[0]
