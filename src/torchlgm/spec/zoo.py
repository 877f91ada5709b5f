"""The paper's architectures, deeper ones, and classical models that are layered graphical models, as graphs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import NamedTuple

from torchlgm._utils.validate import check_choice, check_int, is_int_at_least
from torchlgm.errors import GraphError
from torchlgm.spec.connection import Connection
from torchlgm.spec.dense import Dense
from torchlgm.spec.graph import Graph
from torchlgm.spec.layer import Layer
from torchlgm.spec.window import Conv, Local

_SMALL_SIDE = 16  # of an image, below which the first windows have a stride of 1 and kernels near 3


def dense(
    inputs: int | tuple[int, ...] = 784,
    hidden: Sequence[int] = (100,),
    classes: int = 10,
    input_labels: int = 2,
    hidden_labels: int = 2,
) -> Graph:
    """The paper's sequential model: input, any number of hidden layers, one output node, all dense.

    >>> dense(inputs=(1, 8, 8), hidden=[50, 20]).layer_names
    ('inputs', 'hidden1', 'hidden2', 'classes')
    """
    _require_list("hidden", hidden)
    layers = [Layer("inputs", inputs, input_labels)]
    names = ["hidden"] if len(hidden) == 1 else [f"hidden{i + 1}" for i in range(len(hidden))]
    layers += [Layer(name, n, hidden_labels) for name, n in zip(names, hidden, strict=True)]
    layers.append(Layer("classes", 1, classes))
    return _chain(layers)


def windows(
    kind: str = "local",
    inputs: tuple[int, int, int] = (1, 28, 28),
    channels: tuple[int, int] = (6, 16),
    kernels: tuple[int, int] = (5, 5),
    strides: tuple[int, int] = (2, 2),
    padding: int = 1,
    hidden: int = 100,
    classes: int = 10,
    input_labels: int = 2,
    first_labels: int = 2,
) -> Graph:
    """The paper's Conv and Local models: two window connections, then two dense ones.

    With the defaults 1x28x28 - 6x13x13 - 16x5x5 - 100 - 1; the first windows have `padding` before and none after.

    >>> [layer.sizes for layer in windows("conv").layers]
    [(1, 28, 28), (6, 13, 13), (16, 5, 5), (100,), (1,)]
    """
    if kind not in ("conv", "local"):
        raise GraphError(f"kind={kind!r}; expected 'conv' or 'local'")
    connect = Conv if kind == "conv" else Local
    for name, pair in (("channels", channels), ("kernels", kernels), ("strides", strides)):
        if not (isinstance(pair, Sequence) and len(pair) == 2 and all(is_int_at_least(n, 1) for n in pair)):
            raise GraphError(f"{name}={pair!r}; expected two whole numbers >= 1, one for each window connection")
    check_int("padding", padding, 0, error=GraphError)
    if len(Layer("inputs", inputs, input_labels).sizes) != 3:
        raise GraphError(f"inputs={inputs!r}; expected (channels, height, width)")
    first = [(n + padding - kernels[0]) // strides[0] + 1 for n in inputs[1:]]
    second = [(n - kernels[1]) // strides[1] + 1 for n in first]
    if min(*first, *second) < 1:
        raise GraphError(f"kernels {kernels} do not fit into inputs of {inputs[1]}x{inputs[2]} positions")
    return Graph(
        layers=(
            Layer("inputs", inputs, input_labels),
            Layer("edges", (channels[0], *first), first_labels),
            Layer("parts", (channels[1], *second)),
            Layer("hidden", hidden),
            Layer("classes", 1, classes),
        ),
        connections=(
            connect("inputs", "edges", kernels[0], strides[0], ((padding, 0), (padding, 0))),
            connect("edges", "parts", kernels[1], strides[1]),
            Dense("parts", "hidden"),
            Dense("hidden", "classes"),
        ),
    )


@dataclass(frozen=True)
class Stage:
    """One layer of a `tower`: `channels` maps of nodes with `labels` labels, each with a window of the layer below.

    `padding` is a number of positions on every side, or a pair (before, after). `kind` is "conv" (one table for all
    positions) or "local" (one each).
    """

    channels: int
    kernel: int = 3
    stride: int = 1
    padding: int | tuple[int, int] = 0
    kind: str = "conv"
    labels: int = 2

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, ("conv", "local"), error=GraphError)
        for name, least in (("channels", 1), ("kernel", 1), ("stride", 1), ("labels", 2)):
            value = check_int(name, getattr(self, name), least, error=GraphError, what=" of a stage")
            object.__setattr__(self, name, value)
        if len(self.sides) != 2 or not all(is_int_at_least(n, 0) and n < self.kernel for n in self.sides):
            raise GraphError(
                f"padding={self.padding!r} of a stage; expected a whole number from 0 to {self.kernel - 1}, one less "
                "than the kernel, or a pair of them"
            )

    @property
    def sides(self) -> tuple[int, int]:
        """The padding before and after."""
        return self.padding if isinstance(self.padding, tuple) else (self.padding, self.padding)

    def layer(self, name: str, below: Layer) -> Layer:
        room = [n + sum(self.sides) - self.kernel for n in below.sizes[1:]]
        if min(room) < 0:
            positions = "x".join(map(str, below.sizes[1:]))
            raise GraphError(
                f"'{name}': a kernel of {self.kernel} with padding {self.sides[0]}+{self.sides[1]} does not fit into "
                f"the {positions} positions of '{below.name}'; use a smaller kernel, fewer stages or smaller strides"
            )
        return Layer(name, (self.channels, *[n // self.stride + 1 for n in room]), self.labels)

    def connection(self, left: str, right: str) -> Conv | Local:
        connect = Conv if self.kind == "conv" else Local
        return connect(left, right, self.kernel, self.stride, (self.sides, self.sides))


def tower(
    stages: Sequence[Stage],
    inputs: tuple[int, int, int] = (1, 28, 28),
    hidden: Sequence[int] = (),
    classes: int = 10,
    input_labels: int = 2,
    hidden_labels: int = 2,
    skips: Sequence[str] = (),
) -> Graph:
    """A deeper window model: any number of window connections, then dense ones, one output node at the end.

    The layers are "inputs", "maps1", "maps2" ... (one for each stage), "hidden1" ... and "classes". `skips` names
    layers that are connected to the class node as well, past those between.

    >>> stages = [Stage(8, 3, padding=1), Stage(16, 4, 2, padding=1), Stage(16, 3, 2)]
    >>> graph = tower(stages, hidden=[50], skips=["maps3"])
    >>> [layer.sizes for layer in graph.layers]
    [(1, 28, 28), (8, 28, 28), (16, 14, 14), (16, 6, 6), (50,), (1,)]
    >>> [c.name for c in graph.connections]
    ['inputs-maps1', 'maps1-maps2', 'maps2-maps3', 'maps3-hidden1', 'hidden1-classes', 'maps3-classes']
    """
    if isinstance(stages, Stage) or not all(isinstance(stage, Stage) for stage in stages):
        raise GraphError(f"stages={stages!r}; expected a list of zoo.Stage")
    if isinstance(skips, str):
        raise GraphError(f"skips={skips!r}; expected a list of names, [{skips!r}]")
    _require_list("hidden", hidden)
    if not stages:
        raise GraphError("a tower needs at least one stage; zoo.dense has none")
    layers = [Layer("inputs", inputs, input_labels)]
    if len(layers[0].sizes) != 3:
        raise GraphError(f"inputs={inputs!r}; expected (channels, height, width)")
    connections: list[Connection] = []
    for i, stage in enumerate(stages):
        layers.append(stage.layer(f"maps{i + 1}", layers[-1]))
        connections.append(stage.connection(layers[-2].name, layers[-1].name))
    top = len(stages)
    layers += [Layer(f"hidden{i + 1}", n, hidden_labels) for i, n in enumerate(hidden)]
    layers.append(Layer("classes", 1, classes))
    connections += [Dense(a.name, b.name) for a, b in pairwise(layers[top:])]
    possible = [layer.name for layer in layers[1:-2]]
    for name in skips:
        if name not in possible:
            names = ", ".join(possible) or "none in so short a tower"
            raise GraphError(f"skips: no layer {name!r} below one that leads to the class node; possible: {names}")
        connections.append(Dense(name, "classes"))
    return Graph(tuple(layers), tuple(connections))


def rbm(visible: int, hidden: int) -> Graph:
    """Restricted Boltzmann machine: E(v, h) = a.v + b.h + v.W.h with energies a, b, W."""
    return _chain([Layer("visible", visible), Layer("hidden", hidden)])


def classification_rbm(visible: int, hidden: int, classes: int) -> Graph:
    """Restricted Boltzmann machine whose hidden layer also sees a class node."""
    return _chain([Layer("visible", visible), Layer("hidden", hidden), Layer("label", 1, classes)])


def conditional_rbm(conditions: int, hidden: int, outputs: int) -> Graph:
    """Restricted Boltzmann machine over outputs and hidden nodes, both also connected to what is conditioned on."""
    layers = (Layer("conditions", conditions), Layer("hidden", hidden), Layer("outputs", outputs))
    connections = (Dense("conditions", "hidden"), Dense("conditions", "outputs"), Dense("hidden", "outputs"))
    return Graph(layers, connections)


def deep_boltzmann_machine(visible: int, hidden: Sequence[int]) -> Graph:
    """A stack of hidden layers, each connected to the next."""
    _require_list("hidden", hidden)
    return _chain([Layer("visible", visible), *[Layer(f"hidden{i + 1}", n) for i, n in enumerate(hidden)]])


def semi_restricted_bm(visible: int, hidden: int) -> Graph:
    """Semi-restricted Boltzmann machine: visible nodes are connected to each other as well, hidden ones are not."""
    layers = (Layer("visible", visible), Layer("hidden", hidden))
    return Graph(layers, (Dense("visible", "visible"), Dense("visible", "hidden")))


def grid(height: int, width: int, labels: int = 2) -> Graph:
    """A grid with four neighbours (Ising for 2 labels, Potts for more), with a table for each edge.

    >>> grid(3, 3).edges
    12
    """
    sizes = [check_int(name, n, error=GraphError) for name, n in (("height", height), ("width", width))]
    if sizes == [1, 1]:
        raise GraphError("a grid of 1x1 has no neighbours")
    across, down = Local("cells", "cells", (1, 3), name="across"), Local("cells", "cells", (3, 1), name="down")
    connections = [c for c, size in ((across, width), (down, height)) if size > 1]
    return Graph((Layer("cells", (1, *sizes), labels),), tuple(connections))


def grid_crf(height: int, width: int, labels: int = 2, input_labels: int = 2) -> Graph:
    """A conditional random field for pictures: a label for each pixel, which sees the pixel and its four neighbours.

    All positions share their tables.

    >>> grid_crf(28, 28).edges == 784 + 2 * 27 * 28
    True
    """
    layers = (Layer("inputs", (1, height, width), input_labels), Layer("labels", (1, height, width), labels))
    across, down = Conv("labels", "labels", (1, 3), name="across"), Conv("labels", "labels", (3, 1), name="down")
    return Graph(layers, (Conv("inputs", "labels", 1), across, down))


def linear_crf(length: int, labels: int, input_labels: int, kernel: int = 1) -> Graph:
    """A conditional random field for sequences: a label for each position, which sees the inputs in a window around it
    and the labels before and after.

    All positions share their tables.

    >>> linear_crf(length=10, labels=3, input_labels=20).edges
    19
    """
    if not is_int_at_least(kernel, 1) or kernel % 2 == 0:
        raise GraphError(f"kernel={kernel!r}; expected an odd number, so that windows are centred")
    layers = (Layer("inputs", (1, length), input_labels), Layer("labels", (1, length), labels))
    return Graph(layers, (Conv("inputs", "labels", kernel, padding=kernel // 2), Conv("labels", "labels", 3)))


def _require_list(name: str, sizes: object) -> None:
    if not isinstance(sizes, Collection) or isinstance(sizes, str):
        raise GraphError(f"{name}={sizes!r}; expected a list of numbers of nodes, one for each layer, such as [100]")


def _chain(layers: Sequence[Layer]) -> Graph:
    connections = [Dense(a.name, b.name) for a, b in pairwise(layers)]
    return Graph(tuple(layers), tuple(connections))


class Windows(NamedTuple):
    """Two window connections: their kernels and strides, and the padding in front of the first."""

    kernels: tuple[int, int]
    strides: tuple[int, int]
    padding: int

    def leftover(self, side: int) -> tuple[int, int] | None:
        """How many positions each connection leaves out of an image side; None if it does not fit."""
        room = side + self.padding - self.kernels[0]
        first = room // self.strides[0] + 1
        if room < 0 or first < self.kernels[1]:
            return None
        return room % self.strides[0], (first - self.kernels[1]) % self.strides[1]


def windows_for(height: int, width: int) -> Windows:
    """The paper's windows (5x5, stride 2) where they fit and leave no pixel out, else the nearest that do."""
    for name, side in (("height", height), ("width", width)):
        check_int(name, side, error=GraphError)
    strides = [(1, 2), (1, 1)] if min(height, width) < _SMALL_SIDE else [(2, 2), (1, 2)]
    sizes = sorted(product((5, 4, 3, 2), (5, 4, 3, 2)), reverse=True)
    if min(height, width) < _SMALL_SIDE:
        sizes.sort(key=lambda kernels: abs(3 - kernels[0]) + abs(3 - kernels[1]))
    candidates = [Windows(k, s, p) for s in strides for k in sizes for p in (1, 0)]
    fitting = [w for w in candidates if w.leftover(height) is not None and w.leftover(width) is not None]
    exact = [w for w in fitting if w.leftover(height) == w.leftover(width) == (0, 0)]
    if not fitting:
        raise GraphError(f"images of {height}x{width} pixels are too small for windows")
    return (exact or fitting)[0]
