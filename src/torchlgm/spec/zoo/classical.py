"""Classical models that are layered graphical models: Boltzmann machines, grids and random fields."""

from __future__ import annotations

from collections.abc import Sequence

from torchlgm._utils.validate import check_int, is_int_at_least
from torchlgm.errors import GraphError
from torchlgm.spec.dense import Dense
from torchlgm.spec.graph import Graph
from torchlgm.spec.layer import Layer
from torchlgm.spec.window import Conv, Local
from torchlgm.spec.zoo.paper import chain, require_sizes


def rbm(visible: int, hidden: int) -> Graph:
    """Restricted Boltzmann machine: E(v, h) = a.v + b.h + v.W.h with energies a, b, W.

    Parameters
    ----------
    visible : int
        The number of visible nodes.
    hidden : int
        The number of hidden nodes.

    Returns
    -------
    Graph
        The layers "visible" and "hidden".
    """
    return chain([Layer("visible", visible), Layer("hidden", hidden)])


def classification_rbm(visible: int, hidden: int, classes: int) -> Graph:
    """Restricted Boltzmann machine whose hidden layer also sees a class node.

    Parameters
    ----------
    visible : int
        The number of visible nodes.
    hidden : int
        The number of hidden nodes.
    classes : int
        Labels of the class node.

    Returns
    -------
    Graph
        The layers "visible", "hidden" and "label".
    """
    return chain([Layer("visible", visible), Layer("hidden", hidden), Layer("label", 1, classes)])


def conditional_rbm(conditions: int, hidden: int, outputs: int) -> Graph:
    """Restricted Boltzmann machine over outputs and hidden nodes, both also connected to what is conditioned on.

    Parameters
    ----------
    conditions : int
        The number of nodes that are conditioned on.
    hidden : int
        The number of hidden nodes.
    outputs : int
        The number of outputs.

    Returns
    -------
    Graph
        The layers "conditions", "hidden" and "outputs".
    """
    layers = (Layer("conditions", conditions), Layer("hidden", hidden), Layer("outputs", outputs))
    connections = (Dense("conditions", "hidden"), Dense("conditions", "outputs"), Dense("hidden", "outputs"))
    return Graph(layers, connections)


def deep_boltzmann_machine(visible: int, hidden: Sequence[int]) -> Graph:
    """A stack of hidden layers, each connected to the next.

    Parameters
    ----------
    visible : int
        The number of visible nodes.
    hidden : sequence of int
        The number of nodes of each hidden layer.

    Returns
    -------
    Graph
        The layers "visible", "hidden1", "hidden2" ...
    """
    require_sizes("hidden", hidden)
    return chain([Layer("visible", visible), *[Layer(f"hidden{i + 1}", n) for i, n in enumerate(hidden)]])


def semi_restricted_bm(visible: int, hidden: int) -> Graph:
    """Semi-restricted Boltzmann machine: visible nodes are connected to each other as well, hidden ones are not.

    Parameters
    ----------
    visible : int
        The number of visible nodes.
    hidden : int
        The number of hidden nodes.

    Returns
    -------
    Graph
        The layers "visible" and "hidden".
    """
    layers = (Layer("visible", visible), Layer("hidden", hidden))
    return Graph(layers, (Dense("visible", "visible"), Dense("visible", "hidden")))


def grid(height: int, width: int, labels: int = 2) -> Graph:
    """A grid with four neighbours (Ising for 2 labels, Potts for more), with a table for each edge.

    Parameters
    ----------
    height, width : int
        Of the grid, in nodes.
    labels : int
        Labels of a node.

    Returns
    -------
    Graph
        The layer "cells", with the connections "across" and "down".

    Examples
    --------
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

    Parameters
    ----------
    height, width : int
        Of the picture, in pixels.
    labels : int
        Labels of a pixel in the answer.
    input_labels : int
        Labels of an input, such as grey levels.

    Returns
    -------
    Graph
        The layers "inputs" and "labels".

    Examples
    --------
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

    Parameters
    ----------
    length : int
        The number of positions.
    labels : int
        Labels of a position in the answer.
    input_labels : int
        Labels of an input, such as words.
    kernel : int
        The width of the window on the inputs, an odd number.

    Returns
    -------
    Graph
        The layers "inputs" and "labels".

    Examples
    --------
    >>> linear_crf(length=10, labels=3, input_labels=20).edges
    19
    """
    if not is_int_at_least(kernel, 1) or kernel % 2 == 0:
        raise GraphError(f"kernel={kernel!r}; expected an odd number, so that windows are centred")
    layers = (Layer("inputs", (1, length), input_labels), Layer("labels", (1, length), labels))
    return Graph(layers, (Conv("inputs", "labels", kernel, padding=kernel // 2), Conv("labels", "labels", 3)))
