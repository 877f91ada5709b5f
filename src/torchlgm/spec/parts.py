"""Layers, connections between two of them, and the geometry of windows."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from torchlgm._utils.validate import is_int_at_least
from torchlgm.errors import GraphError

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


def _check_name(kind: str, name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise GraphError(f"{kind} name {name!r}: expected letters, digits, '_' and '-', such as 'hidden_1'")


@dataclass(frozen=True)
class Layer:
    """A set of discrete nodes with the same labels `0 .. labels-1`.

    `shape` is an int, or `(channels, *positions)` for window connections.

    >>> Layer("pixels", (1, 28, 28)).nodes
    784
    """

    name: str
    shape: int | tuple[int, ...]
    labels: int = 2

    def __post_init__(self) -> None:
        _check_name("layer", self.name)
        shape = _as_tuples(self.shape)
        object.__setattr__(self, "shape", shape if isinstance(shape, tuple) else (shape,))
        object.__setattr__(self, "labels", _as_tuples(self.labels))
        if not self.sizes or not all(is_int_at_least(n, 1) for n in self.sizes):
            raise GraphError(f"layer '{self.name}': shape {self.shape} must hold positive whole numbers")
        if not is_int_at_least(self.labels, 2):
            raise GraphError(f"layer '{self.name}': {self.labels!r} labels; a node needs a whole number >= 2")

    @property
    def sizes(self) -> tuple[int, ...]:
        """`shape` as the tuple it always is."""
        return self.shape  # pyright: ignore[reportReturnType]

    @property
    def nodes(self) -> int:
        return math.prod(self.sizes)


@dataclass(frozen=True)
class Dense:
    """Every node of `left` with every node of `right`."""

    left: str
    right: str
    name: str = ""

    def __post_init__(self) -> None:
        _name_connection(self)


@dataclass(frozen=True)
class _Windows:
    """Each node of `right` with a window of `left`; layers are shaped `(channels, *positions)` in 1 to 3 dimensions.

    `kernel`, `stride` and `dilation` are an int or one int per dimension; `padding` is an int, or per
    dimension an int or a pair `(before, after)`. Edges outside `left` do not exist.
    """

    left: str
    right: str
    kernel: int | tuple[int, ...]
    stride: int | tuple[int, ...] = 1
    padding: int | tuple[int | tuple[int, int], ...] = 0
    dilation: int | tuple[int, ...] = 1
    name: str = ""

    def __post_init__(self) -> None:
        _name_connection(self)
        for field in ("kernel", "stride", "padding", "dilation"):
            object.__setattr__(self, field, _as_tuples(getattr(self, field)))


@dataclass(frozen=True)
class Conv(_Windows):
    """Windows that share one table at all positions."""


@dataclass(frozen=True)
class Local(_Windows):
    """Windows with a table of their own at each position."""


@dataclass(frozen=True)
class Sparse:
    """An explicit list of edges `(left node, right node)`, nodes counted in row-major order."""

    left: str
    right: str
    edges: tuple[tuple[int, int], ...]
    name: str = ""

    def __post_init__(self) -> None:
        _name_connection(self)
        object.__setattr__(self, "edges", _as_tuples(self.edges))


Connection = Dense | Conv | Local | Sparse
CONNECTIONS = {"dense": Dense, "conv": Conv, "local": Local, "sparse": Sparse}


def _name_connection(connection: Any) -> None:
    if not connection.name:
        object.__setattr__(connection, "name", f"{connection.left}-{connection.right}")
    _check_name("connection", connection.name)


def _as_tuples(value: Any) -> Any:
    """Lists, arrays and numbers from JSON or numpy become the ints and tuples that a frozen record can hash."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Iterable) and not isinstance(value, str):
        return tuple(_as_tuples(item) for item in value)
    return value


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
        starts = [(r * self.stride - self.before, r) for r in range(self.right)]
        return [
            (start + k * self.dilation, r)
            for start, r in starts
            for k in range(self.kernel)
            if 0 <= start + k * self.dilation < self.left
        ]


def windows(connection: Conv | Local, left: Layer, right: Layer) -> tuple[Window, ...]:
    """The geometry of each dimension, or a GraphError that names the numbers that do not fit."""
    what = f"connection '{connection.name}'"
    dims = len(left.sizes) - 1
    if len(right.sizes) != len(left.sizes) or not 1 <= dims <= 3:
        raise GraphError(
            f"{what}: window connections join layers shaped (channels, *positions) with the same 1 to 3 "
            f"position dimensions, got '{left.name}' {left.sizes} and '{right.name}' {right.sizes}"
        )

    def per_dimension(field: str, least: int) -> tuple[int, ...]:
        value = getattr(connection, field)
        values = value if isinstance(value, tuple) else (value,) * dims
        if len(values) != dims or not all(is_int_at_least(v, least) for v in values):
            raise GraphError(f"{what}: {field}={value!r}, expected an int >= {least} or {dims} of them")
        return values

    pads = connection.padding if isinstance(connection.padding, tuple) else (connection.padding,) * dims
    pairs = [pad if isinstance(pad, tuple) else (pad, pad) for pad in pads]
    if len(pairs) != dims or not all(len(p) == 2 and all(is_int_at_least(v, 0) for v in p) for p in pairs):
        raise GraphError(
            f"{what}: padding={connection.padding!r}, expected an int >= 0, or {dims} ints or (before, after) pairs"
        )
    geometry = zip(
        left.sizes[1:],
        right.sizes[1:],
        per_dimension("kernel", 1),
        per_dimension("stride", 1),
        per_dimension("dilation", 1),
        pairs,
        strict=True,
    )
    result = tuple(Window(n, m, k, s, d, *pad) for n, m, k, s, d, pad in geometry)
    for axis, w in enumerate(result):
        room = w.left + w.before + w.after - w.dilation * (w.kernel - 1) - 1
        fits = room // w.stride + 1 if room >= 0 else 0
        if fits != w.right:
            raise GraphError(
                f"{what}, dimension {axis}: {w.left} positions of '{left.name}' with kernel {w.kernel}, stride "
                f"{w.stride}, dilation {w.dilation}, padding {w.before}+{w.after} make {fits} windows, "
                f"but '{right.name}' has {w.right} positions"
            )
        if not w.pairs():
            raise GraphError(
                f"{what} has no edges: in dimension {axis} every window lies in the padding {w.before}+{w.after} "
                f"around the {w.left} positions of '{left.name}'"
            )
    return result
