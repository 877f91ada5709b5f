"""The graph that layers and connections form: validated, counted, JSON in and out."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from torchlgm._utils.validate import is_int_at_least
from torchlgm.errors import GraphError, GraphWarning, warn
from torchlgm.spec.parts import CONNECTIONS, Connection, Conv, Dense, Layer, Local, Sparse, windows

FORMAT = "torchlgm.graph"
VERSION = 1


@dataclass(frozen=True)
class Graph:
    """Layers in order (input first) and the connections between them; any connected pattern, none inside a layer.

    `root` is the layer that the spanning trees of tree-reweighted inference lead to; the last one unless told.

    >>> layers = [Layer("pixels", (1, 4, 4)), Layer("parts", (2, 2, 2)), Layer("digit", 1, labels=10)]
    >>> graph = Graph(layers, [Local("pixels", "parts", kernel=2, stride=2), Dense("parts", "digit")])
    >>> graph.nodes, graph.edges, graph.root
    (25, 40, 'digit')
    >>> Graph.from_json(graph.to_json()) == graph
    True
    """

    layers: tuple[Layer, ...]
    connections: tuple[Connection, ...]
    root: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(self.layers))
        object.__setattr__(self, "connections", tuple(self.connections))
        _check_layers(self.layers)
        if not self.root:
            object.__setattr__(self, "root", self.layers[-1].name)
        self.layer(self.root)
        _check_connections(self)
        _check_connected(self)
        _warn_uncovered(self)

    def layer(self, name: str) -> Layer:
        for layer in self.layers:
            if layer.name == name:
                return layer
        raise GraphError(f"no layer '{name}'; the graph has {', '.join(self.layer_names)}")

    @property
    def layer_names(self) -> tuple[str, ...]:
        return tuple(layer.name for layer in self.layers)

    def ends(self, connection: Connection) -> tuple[Layer, Layer]:
        return self.layer(connection.left), self.layer(connection.right)

    @property
    def nodes(self) -> int:
        return sum(layer.nodes for layer in self.layers)

    @property
    def edges(self) -> int:
        return sum(count_edges(self, c) for c in self.connections)

    @property
    def parameters(self) -> int:
        """Free numbers: labels - 1 for each node, (left labels - 1)(right labels - 1) for each own edge table."""
        unary = sum(layer.nodes * (layer.labels - 1) for layer in self.layers)
        return unary + sum(count_parameters(self, c) for c in self.connections)

    def summary(self) -> str:
        """A table of layers and connections with their counts."""
        rows = [
            f"Graph with {self.nodes:,} nodes, {self.edges:,} edges, {self.parameters:,} parameters, root '{self.root}'"
        ]
        for layer in self.layers:
            shape = "x".join(map(str, layer.sizes))
            rows.append(f"  {layer.name:<14} {shape:<12} {layer.nodes:>8,} nodes  {layer.labels} labels")
        for c in self.connections:
            kind = type(c).__name__
            rows.append(
                f"  {c.name:<22} {kind:<7} {c.left} - {c.right}: "
                f"{count_edges(self, c):,} edges, {count_parameters(self, c):,} parameters"
            )
        return "\n".join(rows)

    def __str__(self) -> str:
        return self.summary()

    def to_json(self, indent: int | None = 2) -> str:
        connections = [{"type": type(c).__name__.lower(), **asdict(c)} for c in self.connections]
        return json.dumps(
            {
                "format": FORMAT,
                "version": VERSION,
                "layers": [asdict(layer) for layer in self.layers],
                "connections": connections,
                "root": self.root,
            },
            indent=indent,
        )

    @staticmethod
    def from_json(text: str) -> Graph:
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise GraphError(f"the graph description is not JSON: {error}") from error
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise GraphError(f'not a graph description: expected "format": "{FORMAT}"')
        if data.get("version") != VERSION:
            raise GraphError(f"graph description version {data.get('version')!r}; this torchlgm reads {VERSION}")
        unknown = sorted(set(data) - {"format", "version", "layers", "connections", "root"})
        if unknown:
            raise GraphError(f"the graph description has unknown fields: {', '.join(unknown)}")
        try:
            layers = [Layer(**layer) for layer in data["layers"]]
            connections = [_connection_from(**c) for c in data["connections"]]
            return Graph(tuple(layers), tuple(connections), data.get("root", ""))
        except (KeyError, TypeError) as error:
            raise GraphError(f"the graph description is incomplete or has unknown fields: {error}") from error


def _connection_from(*, type: str, **fields: Any) -> Connection:
    if type not in CONNECTIONS:
        raise GraphError(f"unknown connection type {type!r}; known: {', '.join(CONNECTIONS)}")
    return CONNECTIONS[type](**fields)


def count_edges(graph: Graph, connection: Connection) -> int:
    left, right = graph.ends(connection)
    match connection:
        case Dense():
            return left.nodes * right.nodes
        case Sparse():
            return len(connection.edges)
        case _:
            per_channels = math.prod(len(w.pairs()) for w in windows(connection, left, right))
            return left.sizes[0] * right.sizes[0] * per_channels


def count_parameters(graph: Graph, connection: Connection) -> int:
    left, right = graph.ends(connection)
    tables = count_edges(graph, connection)
    if isinstance(connection, Conv):
        kernel = math.prod(w.kernel for w in windows(connection, left, right))
        tables = left.sizes[0] * right.sizes[0] * kernel
    return tables * (left.labels - 1) * (right.labels - 1)


def _check_layers(layers: Sequence[Layer]) -> None:
    if not layers:
        raise GraphError("a graph needs at least one layer")
    twice = [name for name, count in Counter(layer.name for layer in layers).items() if count > 1]
    if twice:
        raise GraphError(f"two layers are named '{twice[0]}'")


def _check_connections(graph: Graph) -> None:
    twice = [name for name, count in Counter(c.name for c in graph.connections).items() if count > 1]
    if twice:
        raise GraphError(
            f"two connections are named '{twice[0]}': parallel connections between two layers are legal, "
            "give each a name of its own with name=..."
        )
    for c in graph.connections:
        left, right = graph.ends(c)
        if left == right:
            raise GraphError(f"connection '{c.name}' joins layer '{left.name}' with itself; split the layer in two")
        if isinstance(c, Conv | Local):
            windows(c, left, right)
        if isinstance(c, Sparse):
            _check_edges(c, left, right)


def _check_edges(connection: Sparse, left: Layer, right: Layer) -> None:
    what = f"connection '{connection.name}'"
    if not isinstance(connection.edges, tuple):
        raise GraphError(f"{what}: edges={connection.edges!r}, expected a list of pairs (left node, right node)")
    if not connection.edges:
        raise GraphError(f"{what} has no edges")
    for edge in connection.edges:
        if not isinstance(edge, tuple) or len(edge) != 2 or not all(is_int_at_least(n, 0) for n in edge):
            raise GraphError(f"{what}: edge {edge!r}, expected a pair (left node, right node)")
        if edge[0] >= left.nodes or edge[1] >= right.nodes:
            raise GraphError(
                f"{what}: edge {edge} is out of range, '{left.name}' has {left.nodes} nodes and "
                f"'{right.name}' {right.nodes}"
            )
    twice = [edge for edge, count in Counter(connection.edges).items() if count > 1]
    if twice:
        raise GraphError(f"{what}: edge {twice[0]} is listed twice")


def _check_connected(graph: Graph) -> None:
    reached, frontier = {graph.layers[0].name}, [graph.layers[0].name]
    neighbours: dict[str, set[str]] = {name: set() for name in graph.layer_names}
    for c in graph.connections:
        neighbours[c.left].add(c.right)
        neighbours[c.right].add(c.left)
    while frontier:
        new = neighbours[frontier.pop()] - reached
        reached |= new
        frontier += new
    lost = [name for name in graph.layer_names if name not in reached]
    if lost:
        raise GraphError(
            f"no path leads from layer '{graph.layers[0].name}' to {', '.join(map(repr, lost))}; "
            "connect every layer, or make two graphs"
        )


def uncovered(graph: Graph) -> Mapping[str, int]:
    """How many nodes of each layer have no edge at all."""
    touched: dict[str, set[int] | None] = {name: set() for name in graph.layer_names}
    for c in graph.connections:
        left, right = graph.ends(c)
        for layer, nodes in zip((left, right), _touched_nodes(c, left, right), strict=True):
            known = touched[layer.name]
            touched[layer.name] = None if nodes is None or known is None else known | nodes
    counts = {n: graph.layer(n).nodes - len(nodes) for n, nodes in touched.items() if nodes is not None}
    return {name: count for name, count in counts.items() if count}


def _touched_nodes(c: Connection, left: Layer, right: Layer) -> tuple[set[int] | None, set[int] | None]:
    """The nodes with an edge on either side; None means all of them."""
    if isinstance(c, Dense):
        return None, None
    if isinstance(c, Sparse):
        return {i for i, _ in c.edges}, {j for _, j in c.edges}
    axes = [w.pairs() for w in windows(c, left, right)]
    return tuple(
        _grid_nodes(layer, [{pair[side] for pair in axis} for axis in axes]) for side, layer in enumerate((left, right))
    )  # type: ignore[return-value]


def _grid_nodes(layer: Layer, covered: list[set[int]]) -> set[int] | None:
    if [len(axis) for axis in covered] == list(layer.sizes[1:]):
        return None
    nodes = set()
    for position in product(range(layer.sizes[0]), *covered):
        index = 0
        for size, at in zip(layer.sizes, position, strict=True):
            index = index * size + at
        nodes.add(index)
    return nodes


def _warn_uncovered(graph: Graph) -> None:
    if len(graph.layers) == 1:
        return
    for name, count in uncovered(graph).items():
        warn(
            f"{count} of {graph.layer(name).nodes} nodes of layer '{name}' have no edge, so nothing can be learned "
            "about them; change kernel, stride or padding if that is not meant",
            GraphWarning,
        )
