"""Deeper window models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from torchlgm._utils.validate import check_choice, check_int, is_int_at_least
from torchlgm.errors import GraphError
from torchlgm.spec.connection import Connection
from torchlgm.spec.dense import Dense
from torchlgm.spec.graph import Graph
from torchlgm.spec.layer import Layer
from torchlgm.spec.window import Conv, Local
from torchlgm.spec.zoo.paper import require_sizes


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

    Parameters
    ----------
    stages : sequence of Stage
        The layers with windows, from the inputs up.
    inputs : tuple of int
        `(channels, height, width)` of the images.
    hidden : sequence of int
        The number of nodes of each dense hidden layer.
    classes : int
        Labels of the class node.
    input_labels : int
        Labels of an input, such as grey levels.
    hidden_labels : int
        Labels of a node of the dense hidden layers.
    skips : sequence of str
        Layers that are also connected directly to the class node.

    Returns
    -------
    Graph
        The layers "inputs", "maps1", "maps2" ... (one for each stage), "hidden1" ... and "classes".

    Examples
    --------
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
    require_sizes("hidden", hidden)
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
