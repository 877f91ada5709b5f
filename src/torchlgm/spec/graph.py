"""The graph that layers and connections form: validated, counted, JSON in and out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from torchlgm.errors import GraphError, GraphWarning, warn
from torchlgm.spec.connection import Connection, connection_from_dict
from torchlgm.spec.layer import Layer, record_from_dict

FORMAT = "torchlgm.graph"
VERSION = 1


@dataclass(frozen=True)
class Graph:
    """Layers and the connections between or inside them, in any connected pattern.

    Parameters
    ----------
    layers : sequence of Layer
        In order, the inputs first.
    connections : sequence of Connection
        `Dense`, `Conv`, `Local` and `Sparse` ones.
    root : str, optional
        The layer that the spanning trees of tree-reweighted inference lead to, and that a `Posterior` predicts; the
        last one by default.

    Examples
    --------
    >>> from torchlgm import Dense, Local
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
        for name in ("layers", "connections"):
            given = getattr(self, name)
            if not isinstance(given, Iterable):
                raise GraphError(f"{name}={given!r}; expected a list of them")
            object.__setattr__(self, name, tuple(given))
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
        return sum(c.count_edges(*self.ends(c)) for c in self.connections)

    @property
    def parameters(self) -> int:
        """Free numbers: labels - 1 for each node, (left labels - 1)(right labels - 1) for each own edge table."""
        unary = sum(layer.nodes * (layer.labels - 1) for layer in self.layers)
        return unary + sum(c.count_parameters(*self.ends(c)) for c in self.connections)

    def summary(self) -> str:
        """A table of layers and connections with their counts."""
        rows = [
            f"Graph with {self.nodes:,} nodes, {self.edges:,} edges, {self.parameters:,} parameters, root '{self.root}'"
        ]
        for layer in self.layers:
            shape = "x".join(map(str, layer.sizes))
            rows.append(f"  {layer.name:<14} {shape:<12} {layer.nodes:>8,} nodes  {layer.labels} labels")
        for c in self.connections:
            edges, parameters = c.count_edges(*self.ends(c)), c.count_parameters(*self.ends(c))
            rows.append(
                f"  {c.name:<22} {type(c).__name__:<7} {c.left} - {c.right}: {edges:,} edges, {parameters:,} parameters"
            )
        return "\n".join(rows)

    def __str__(self) -> str:
        return self.summary()

    def to_json(self, indent: int | None = 2) -> str:
        return json.dumps(
            {
                "format": FORMAT,
                "version": VERSION,
                "layers": [asdict(layer) for layer in self.layers],
                "connections": [c.to_dict() for c in self.connections],
                "root": self.root,
            },
            indent=indent,
        )

    @staticmethod
    def from_json(text: str) -> Graph:
        try:
            data = json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise GraphError(f"the graph description is not JSON: {error}") from error
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise GraphError(f'not a graph description: expected "format": "{FORMAT}"')
        if data.get("version") != VERSION:
            raise GraphError(f"graph description version {data.get('version')!r}; this torchlgm reads {VERSION}")
        unknown = sorted(set(data) - {"format", "version", "layers", "connections", "root"})
        if unknown:
            raise GraphError(f"the graph description has unknown fields: {', '.join(unknown)}")
        try:
            layers = [record_from_dict(Layer, layer) for layer in data["layers"]]
            connections = [connection_from_dict(c) for c in data["connections"]]
            return Graph(tuple(layers), tuple(connections), data.get("root", ""))
        except (KeyError, TypeError) as error:
            raise GraphError(f"the graph description is incomplete or of another form: {error}") from error


def _check_layers(layers: Sequence[Layer]) -> None:
    if not layers:
        raise GraphError("a graph needs at least one layer")
    for layer in layers:
        if not isinstance(layer, Layer):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise GraphError(f"layer {layer!r}; expected a Layer, such as Layer('inputs', 784)")
    twice = [name for name, count in Counter(layer.name for layer in layers).items() if count > 1]
    if twice:
        raise GraphError(f"two layers are named '{twice[0]}'")


def _check_connections(graph: Graph) -> None:
    for c in graph.connections:
        if not isinstance(c, Connection):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise GraphError(f"connection {c!r}; expected a Connection, such as Dense('{graph.layers[0].name}', ...)")
    twice = [name for name, count in Counter(c.name for c in graph.connections).items() if count > 1]
    if twice:
        raise GraphError(
            f"two connections are named '{twice[0]}': parallel connections between two layers are legal, "
            "give each a name of its own with name=..."
        )
    for c in graph.connections:
        left, right = graph.ends(c)
        if c.is_lateral and not c.may_be_lateral:
            raise GraphError(
                f"connection '{c.name}' joins layer '{left.name}' with itself, which {type(c).__name__} cannot; use "
                "Sparse, Dense, Conv or Local, or split the layer in two"
            )
        c.validate(left, right)


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
    covered: dict[str, Collection[int]] = dict.fromkeys(graph.layer_names, ())
    for c in graph.connections:
        ends = graph.ends(c)
        for layer, nodes in zip(ends, c.covered(*ends), strict=True):
            earlier = covered[layer.name]
            complete = [some for some in (earlier, nodes) if len(some) == layer.nodes]
            covered[layer.name] = complete[0] if complete else {*earlier, *nodes}
    counts = {layer.name: layer.nodes - len(covered[layer.name]) for layer in graph.layers}
    return {name: count for name, count in counts.items() if count}


def _warn_uncovered(graph: Graph) -> None:
    if not graph.connections:
        return
    for name, count in uncovered(graph).items():
        warn(
            f"{count} of {graph.layer(name).nodes} nodes of layer '{name}' have no edge, so nothing can be learned "
            "about them; change kernel, stride or padding if that is not meant",
            GraphWarning,
        )
