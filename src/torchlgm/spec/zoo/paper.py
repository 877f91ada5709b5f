"""The paper's architectures, and windows for images of other sizes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise, product
from typing import NamedTuple

from torchlgm._utils.validate import check_int, is_int_at_least
from torchlgm.errors import GraphError
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

    Parameters
    ----------
    inputs : int or tuple of int
        How many inputs there are, or their shape.
    hidden : sequence of int
        The number of nodes of each hidden layer.
    classes : int
        Labels of the class node.
    input_labels : int
        Labels of an input, such as grey levels.
    hidden_labels : int
        Labels of a hidden node.

    Returns
    -------
    Graph
        The layers "inputs", "hidden" (or "hidden1", "hidden2" ... if there are several) and "classes".

    Examples
    --------
    >>> dense(inputs=(1, 8, 8), hidden=[50, 20]).layer_names
    ('inputs', 'hidden1', 'hidden2', 'classes')
    """
    require_sizes("hidden", hidden)
    layers = [Layer("inputs", inputs, input_labels)]
    names = ["hidden"] if len(hidden) == 1 else [f"hidden{i + 1}" for i in range(len(hidden))]
    layers += [Layer(name, n, hidden_labels) for name, n in zip(names, hidden, strict=True)]
    layers.append(Layer("classes", 1, classes))
    return chain(layers)


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

    Parameters
    ----------
    kind : {"local", "conv"}
        With `"local"`, the windows of all positions have tables of their own; with `"conv"`, they share one.
    inputs : tuple of int
        `(channels, height, width)` of the images.
    channels : tuple of int
        Channels of the two layers with windows.
    kernels : tuple of int
        Height and width of their windows.
    strides : tuple of int
        Strides of their windows.
    padding : int
        Positions added before the first row and column of the images.
    hidden : int
        Nodes of the hidden layer.
    classes : int
        Labels of the class node.
    input_labels : int
        Labels of an input, such as grey levels.
    first_labels : int
        Labels of a node of the first layer with windows.

    Returns
    -------
    Graph
        The layers "inputs", "edges", "parts", "hidden" and "classes".

    Examples
    --------
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
    """The paper's windows (5x5, stride 2) where they fit and leave no pixel out, else the nearest that do.

    Parameters
    ----------
    height, width : int
        Of the images.

    Returns
    -------
    Windows
        Kernels, strides and padding, as `windows` takes them.
    """
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


def require_sizes(name: str, sizes: object) -> None:
    if not isinstance(sizes, Collection) or isinstance(sizes, str):
        raise GraphError(f"{name}={sizes!r}; expected a list of numbers of nodes, one for each layer, such as [100]")


def chain(layers: Sequence[Layer]) -> Graph:
    connections = [Dense(a.name, b.name) for a, b in pairwise(layers)]
    return Graph(tuple(layers), tuple(connections))
