"""Windows in one to three dimensions: convolutional (one table for all positions) and local (one each)."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from torchlgm._utils.validate import is_int_at_least
from torchlgm.errors import GraphError, TooLargeError
from torchlgm.spec.connection import Connection, Edge, register
from torchlgm.spec.layer import Layer, as_tuples

if TYPE_CHECKING:
    from torchlgm.layout import Layout

MOST = 2**24  # pairs of a position and one of its kernel, in one dimension


class Window(NamedTuple):
    """The geometry of one dimension: right position r meets left position r*stride - before + k*dilation."""

    left: int
    right: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int

    def pairs(self) -> list[tuple[int, int]]:
        """The (left, right) positions of the edges that exist."""
        first = (self.before - self.dilation * (self.kernel - 1)) // self.stride  # before it all lies in the padding
        last = (self.before + self.left) // self.stride
        positions = range(max(0, first), min(self.right, last + 1))
        starts = [(r * self.stride - self.before, r) for r in positions]
        return [
            (start + k * self.dilation, r)
            for start, r in starts
            for k in range(self.kernel)
            if 0 <= start + k * self.dilation < self.left
        ]


class Neighbour(NamedTuple):
    """In windows of a layer over itself: a node of channel `left`, and one of channel `right` that is `offset` away."""

    left: int
    right: int
    offset: tuple[int, ...]


@dataclass(frozen=True)
class Windowed(Connection):
    """Edges from each node of `right` to a window of `left`; layers are shaped `(channels, *positions)` in 1 to 3
    dimensions.

    Edges outside `left` do not exist. Windows of a layer over itself are centred: each node meets the others in the
    window around it, each pair once.
    """

    kernel: int | tuple[int, ...]
    stride: int | tuple[int, ...] = 1
    padding: int | tuple[int | tuple[int, int], ...] = 0
    dilation: int | tuple[int, ...] = 1
    shares_tables: ClassVar[bool]  # whether all positions share the tables of one window
    may_be_lateral: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("kernel", "stride", "padding", "dilation"):
            object.__setattr__(self, field, as_tuples(getattr(self, field)))

    def validate(self, left: Layer, right: Layer) -> None:
        windows = self.windows(left, right)
        if self.is_lateral and not self.count_edges(left, right):
            size = "x".join(str(w.kernel) for w in windows)
            raise GraphError(
                f"connection '{self.name}' has no edges: no window of {size} holds two nodes of {left.sizes}"
            )

    def windows(self, left: Layer, right: Layer) -> tuple[Window, ...]:
        """The geometry of each dimension, or a GraphError that names the numbers that do not fit."""
        dims = len(left.sizes) - 1
        if len(right.sizes) != len(left.sizes) or not 1 <= dims <= 3:
            raise GraphError(
                f"connection '{self.name}': window connections join layers shaped (channels, *positions) with the same "
                f"1 to 3 position dimensions, got '{left.name}' {left.sizes} and '{right.name}' {right.sizes}"
            )
        geometry = zip(
            left.sizes[1:],
            right.sizes[1:],
            self._per_dimension("kernel", dims),
            self._per_dimension("stride", dims),
            self._per_dimension("dilation", dims),
            self._centred(dims) if self.is_lateral else self._pads(dims),
            strict=True,
        )
        windows = tuple(Window(n, m, k, s, d, *pad) for n, m, k, s, d, pad in geometry)
        for axis, window in enumerate(windows):
            self._check_fit(axis, window, left, right)
        return windows

    def _per_dimension(self, field: str, dims: int) -> tuple[int, ...]:
        value = getattr(self, field)
        values = _repeated(value, dims)
        if len(values) != dims or not all(is_int_at_least(v, 1) for v in values):
            raise GraphError(f"connection '{self.name}': {field}={value!r}, expected an int >= 1 or {dims} of them")
        return values

    def _pads(self, dims: int) -> list[tuple[int, int]]:
        pairs = [pad if isinstance(pad, tuple) else (pad, pad) for pad in _repeated(self.padding, dims)]
        if len(pairs) != dims or not all(len(p) == 2 and all(is_int_at_least(v, 0) for v in p) for p in pairs):
            raise GraphError(
                f"connection '{self.name}': padding={self.padding!r}, expected an int >= 0, or {dims} ints or "
                "(before, after) pairs"
            )
        return pairs

    def _centred(self, dims: int) -> list[tuple[int, int]]:
        """The padding with which windows of a layer over itself are centred."""
        kernels, steps = self._per_dimension("kernel", dims), self._per_dimension("dilation", dims)
        as_is = set(self._per_dimension("stride", dims)) == {1} and set(self._pads(dims)) == {(0, 0)}
        if not as_is or not all(k % 2 for k in kernels):
            raise GraphError(
                f"connection '{self.name}': kernel={self.kernel!r}, stride={self.stride!r}, padding={self.padding!r}; "
                f"windows of layer '{self.left}' over itself are centred: use odd kernels, leave out stride and padding"
            )
        pads = [step * (size // 2) for size, step in zip(kernels, steps, strict=True)]
        return list(zip(pads, pads, strict=True))

    def neighbours(self, layer: Layer) -> list[Neighbour]:
        """Of a layer over itself: one of each pair of offsets that mirror each other, and of channels."""
        reach = self._reach(layer)
        pairs = list(product(range(layer.sizes[0]), repeat=2))
        centre = (0,) * len(reach)
        return [
            Neighbour(a, b, offset)
            for offset in product(*reach)
            for a, b in pairs
            if offset > centre or (offset == centre and a < b)
        ]

    def _reach(self, layer: Layer) -> list[range]:
        """The offsets of a window of a layer over itself, in each dimension."""
        return [range(-w.before, w.after + 1, w.dilation) for w in self.windows(layer, layer)]

    def _check_fit(self, axis: int, w: Window, left: Layer, right: Layer) -> None:
        room = w.left + w.before + w.after - w.dilation * (w.kernel - 1) - 1
        fits = room // w.stride + 1 if room >= 0 else 0
        if fits != w.right:
            raise GraphError(
                f"connection '{self.name}', dimension {axis}: {w.left} positions of '{left.name}' with kernel "
                f"{w.kernel}, stride {w.stride}, dilation {w.dilation}, padding {w.before}+{w.after} make {fits} "
                f"windows, but '{right.name}' has {w.right} positions"
            )
        if w.kernel * w.left > MOST:
            raise TooLargeError(
                f"connection '{self.name}', dimension {axis}: a kernel of {w.kernel} over {w.left} positions; expected "
                f"up to {MOST:,} pairs of positions"
            )
        if not w.pairs():
            raise GraphError(
                f"connection '{self.name}' has no edges: in dimension {axis} every window lies in the padding "
                f"{w.before}+{w.after} around the {w.left} positions of '{left.name}'"
            )

    def list_edges(self, left: Layer, right: Layer) -> Iterator[Edge]:
        """Straight from the fields, not by `windows`, so that these are tested as well."""
        dims = len(left.sizes) - 1
        kernel, stride, dilation = (_repeated(v, dims) for v in (self.kernel, self.stride, self.dilation))
        if self.is_lateral:
            yield from self._list_lateral(left, kernel, dilation)
            return
        before = [pad[0] if isinstance(pad, tuple) else pad for pad in _repeated(self.padding, dims)]
        for a, b in product(range(left.sizes[0]), range(right.sizes[0])):
            for k in product(*map(range, kernel)):
                for to in product(*map(range, right.sizes[1:])):
                    seen = [to[d] * stride[d] - before[d] + k[d] * dilation[d] for d in range(dims)]
                    if all(0 <= seen[d] < left.sizes[1 + d] for d in range(dims)):
                        at = (a, b, *k, *to)
                        table = (a, b, *k) if self.shares_tables else at
                        yield Edge(_node(left, (a, *seen)), _node(right, (b, *to)), at, table)

    def _list_lateral(self, layer: Layer, kernel: Sequence[int], dilation: Sequence[int]) -> Iterator[Edge]:
        number = 0
        for k in product(*map(range, kernel)):
            offset = [(i - size // 2) * step for i, size, step in zip(k, kernel, dilation, strict=True)]
            for a, b in product(range(layer.sizes[0]), repeat=2):
                if [*offset, b] <= [*[0] * len(offset), a]:  # itself, or the mirror image of one that is listed
                    continue
                for at in product(*map(range, layer.sizes[1:])):
                    seen = [i + o for i, o in zip(at, offset, strict=True)]
                    if all(0 <= i < size for i, size in zip(seen, layer.sizes[1:], strict=True)):
                        table = (number,) if self.shares_tables else (number, *at)
                        yield Edge(_node(layer, (a, *at)), _node(layer, (b, *seen)), (number, *at), table)
                number += 1

    def make_layout(self, left: Layer, right: Layer) -> Layout:
        from torchlgm.layout.window import NeighbourLayout, WindowLayout

        if self.is_lateral:
            return NeighbourLayout(left, self.neighbours(left), self.shares_tables)
        return WindowLayout(left, right, self.windows(left, right), self.shares_tables)

    def count_edges(self, left: Layer, right: Layer) -> int:
        if self.is_lateral:
            channels, *sizes = left.sizes
            near = [sum(max(n - abs(o), 0) for o in reach) for n, reach in zip(sizes, self._reach(left), strict=True)]
            return (channels**2 * math.prod(near) - left.nodes) // 2  # each pair once, and no node with itself
        per_channels = math.prod(len(w.pairs()) for w in self.windows(left, right))
        return left.sizes[0] * right.sizes[0] * per_channels

    def covered(self, left: Layer, right: Layer) -> tuple[Collection[int], Collection[int]]:
        if self.is_lateral:
            nodes = self._covered_laterally(left)
            return nodes, nodes
        axes = [w.pairs() for w in self.windows(left, right)]
        left_positions = [{i for i, _ in pairs} for pairs in axes]
        right_positions = [{j for _, j in pairs} for pairs in axes]
        return _grid(left, left_positions), _grid(right, right_positions)

    def _covered_laterally(self, layer: Layer) -> Collection[int]:
        """A node has a neighbour if there is another channel, or a position one step away in some dimension."""
        alone = [
            {i for i in range(w.left) if w.kernel == 1 or (i < w.dilation and i + w.dilation >= w.left)}
            for w in self.windows(layer, layer)
        ]
        if layer.sizes[0] > 1 or not all(alone):
            return range(layer.nodes)
        return set(range(layer.nodes)) - set(_grid(layer, alone))

    def caption(self, left: Layer, right: Layer) -> str:
        """Kernel, and stride and dilation where they are not 1, such as "5x5, stride 2"."""
        axes = self.windows(left, right)
        words = ["x".join(str(w.kernel) for w in axes)]
        for field in ("stride", "dilation"):
            steps = [getattr(w, field) for w in axes]
            if set(steps) != {1}:
                words.append(f"{field} {'x'.join(map(str, steps if len(set(steps)) > 1 else steps[:1]))}")
        return ", ".join(words)


@register
@dataclass(frozen=True)
class Conv(Windowed):
    """Edges to windows of a layer, with tables that all positions share.

    Parameters
    ----------
    left, right : str
        The names of the layers. Each node of `right` meets a window of `left`.
    kernel, stride, dilation : int or tuple of int
        One number, or one for each dimension. Inside a layer, kernels are odd, and stride and padding are left out.
    padding : int or tuple
        One number, or for each dimension a number or a pair `(before, after)`.
    name : str, optional
        The name of the connection, by default made of theirs.
    """

    shares_tables: ClassVar[bool] = True

    def count_tables(self, left: Layer, right: Layer) -> int:
        if self.is_lateral:
            channels, kernels = left.sizes[0], [w.kernel for w in self.windows(left, right)]
            return (channels**2 * math.prod(kernels) - channels) // 2
        return left.sizes[0] * right.sizes[0] * math.prod(w.kernel for w in self.windows(left, right))


@register
@dataclass(frozen=True)
class Local(Windowed):
    """Edges to windows of a layer, with tables of their own at each position. Parameters are those of `Conv`."""

    shares_tables: ClassVar[bool] = False


def _repeated(value: Any, dims: int) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,) * dims


def _grid(layer: Layer, positions: Sequence[set[int]]) -> Collection[int]:
    """The nodes of all channels at the product of `positions`."""
    if tuple(map(len, positions)) == layer.sizes[1:]:
        return range(layer.nodes)
    return {_node(layer, index) for index in product(range(layer.sizes[0]), *positions)}


def _node(layer: Layer, index: Sequence[int]) -> int:
    number = 0
    for size, i in zip(layer.sizes, index, strict=True):
        number = number * size + i
    return number
