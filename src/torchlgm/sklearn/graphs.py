"""The graphs that suit a table, and what its columns are on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from torchlgm import zoo
from torchlgm.errors import DataError, GraphError
from torchlgm.sklearn.choices import Choices
from torchlgm.sklearn.columns import Column, LabelledRows, Numbers, learn_column
from torchlgm.sklearn.encoding import Place, Plan
from torchlgm.sklearn.parts import VALUE, Part, parts_of, split_up
from torchlgm.sklearn.reading import Raw, is_time
from torchlgm.spec import Dense, Graph, Layer

CLASS = "classes"


def plan_graph(raws: Sequence[Raw], rows: LabelledRows, choices: Choices) -> Plan:
    """The plan of the architecture that was chosen."""
    given = choices.parameters
    architecture, scaling = given["architecture"], given["scaling"]
    parts = parts_of(raws, given["add_indicator"])
    nodes = split_up(raws, parts)
    if isinstance(architecture, Graph):
        return plan_given(parts, nodes, rows, scaling, architecture)
    if architecture == "dense":
        columns = learn_columns(nodes, rows, choices.bins, scaling, given["max_categories"])
        return plan_dense(parts, columns, choices.hidden, rows.classes)
    image = given["image_shape"]
    return plan_windows(parts, nodes, choices.bins, architecture, image, choices.hidden, rows.classes)


def learn_columns(
    nodes: Sequence[Raw], rows: LabelledRows, bins: int, scaling: str, max_categories: int | None
) -> list[Column | None]:
    return [learn_column(raw, rows, bins, scaling, most=max_categories) for raw in nodes]


def plan_dense(
    parts: tuple[Part, ...], columns: Sequence[Column | None], hidden: tuple[int, ...], classes: int | None
) -> Plan:
    """Columns with the same number of labels are a layer; all of them meet the first hidden layer, or the class, if
    there is one."""
    labels = [2 if column is None else column.labels for column in columns]
    places = [Place(f"columns{k}", tuple(j for j, n in enumerate(labels) if n == k), k) for k in sorted(set(labels))]
    chain = [Layer(f"hidden{i + 1}", n) for i, n in enumerate(hidden)]
    chain += [] if classes is None else [Layer(CLASS, 1, classes)]
    layers = [Layer(p.layer, len(p.columns), p.labels) for p in places] + chain
    connections = [Dense(p.layer, chain[0].name) for p in places]
    connections += [Dense(a.name, b.name) for a, b in pairwise(chain)]
    return Plan(parts, tuple(columns), tuple(places), Graph(tuple(layers), tuple(connections)), (len(columns),))


def with_hidden(plan: Plan, hidden: tuple[int, ...]) -> Plan:
    """A dense plan with other sizes of its hidden layers."""
    sizes = iter(hidden)
    layers = [
        replace(layer, shape=next(sizes)) if layer.name.startswith("hidden") else layer for layer in plan.graph.layers
    ]
    return replace(plan, graph=replace(plan.graph, layers=tuple(layers)))


def plan_windows(
    parts: tuple[Part, ...],
    raws: Sequence[Raw],
    bins: int,
    kind: str,
    image: tuple[int, ...] | None,
    hidden: tuple[int, ...],
    classes: int,
) -> Plan:
    """Columns are the pixels of an image, channel by channel and row by row; all have one scale."""
    if any(raw.named or is_time(raw) for raw in raws) or any(part.what != VALUE for part in parts):
        raise DataError(
            f"architecture={kind!r} takes numbers alone, but there are names, dates or indicators; use 'dense'"
        )
    shape = _image_shape(image, len(raws))
    try:
        windows = zoo.windows_for(*shape[1:])
    except GraphError as error:
        raise DataError(f"{error}; use architecture='dense'") from error
    if len(hidden) != 1:
        raise GraphError(f"architecture={kind!r} has one hidden layer above its windows, got hidden={hidden}")
    graph = zoo.windows(kind, shape, **windows._asdict(), hidden=hidden[0], classes=classes, input_labels=bins)
    seen = np.concatenate([raw.values[~np.isnan(raw.values)] for raw in raws])
    low, high = (seen.min(), seen.max()) if len(seen) else (0.0, 1.0)
    column = Numbers(tuple(np.linspace(low, high, bins).tolist()) if high > low else (float(low),))
    place = Place(graph.layers[0].name, tuple(range(len(raws))), bins)
    return Plan(parts, (column,) * len(raws), (place,), graph, shape)


def _image_shape(image: tuple[int, ...] | None, columns: int) -> tuple[int, int, int]:
    side = math.isqrt(columns)
    shape = (1, side, side) if image is None else (1, *image) if len(image) == 2 else tuple(image)
    if len(shape) != 3 or math.prod(shape) != columns:
        raise DataError(
            f"{columns} columns are no image of shape {shape}; pass image_shape=(height, width) or "
            "(channels, height, width)"
        )
    return shape


def plan_given(parts: tuple[Part, ...], raws: Sequence[Raw], rows: LabelledRows, scaling: str, graph: Graph) -> Plan:
    """The first layers of a graph take the columns in order, as many as they have nodes; its root is the class."""
    root, classes = graph.layer(graph.root), rows.classes
    if root.nodes != 1 or root.labels != classes:
        raise GraphError(
            f"the root '{root.name}' has {root.nodes} nodes with {root.labels} labels; expected one node with "
            f"{classes} labels, one for each class"
        )
    places: list[Place] = []
    taken = 0
    for layer in graph.layers:
        if taken == len(raws):
            break
        if layer.name != root.name:
            places.append(Place(layer.name, tuple(range(taken, taken + layer.nodes)), layer.labels))
        taken = places[-1].columns[-1] + 1 if places else 0
    if taken != len(raws):
        raise GraphError(
            f"the first layers of the graph must have as many nodes as there are columns, {len(raws)} with "
            f"parts of dates and indicators; they have {', '.join(str(len(p.columns)) for p in places)}"
        )
    columns = [
        learn_column(raws[j], rows, place.labels, scaling, exactly=True) for place in places for j in place.columns
    ]
    only = len(places) == 1
    shape = graph.layer(places[0].layer).sizes if only else (len(raws),)
    return Plan(parts, tuple(columns), tuple(places), graph, shape)
