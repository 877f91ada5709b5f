"""Graphs: what is refused, what is warned about, how they are counted, printed and written as JSON."""

import json
import warnings
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from torchlgm import zoo
from torchlgm.errors import GraphError, GraphWarning
from torchlgm.spec import Conv, Dense, Graph, Layer, Local, Sparse, uncovered
from torchlgm.testing import edges

A, B, C = Layer("a", 3), Layer("b", 4, 3), Layer("c", 1, 5)


# --- what is refused


def test_a_graph_needs_a_layer():
    with pytest.raises(GraphError, match="at least one layer"):
        Graph((), ())


def test_layers_have_different_names():
    with pytest.raises(GraphError, match="two layers are named 'a'"):
        Graph((A, Layer("a", 5)), (Dense("a", "a"),))


def test_connections_join_layers_that_exist():
    with pytest.raises(GraphError, match="no layer 'd'; the graph has a, b"):
        Graph((A, B), (Dense("a", "d"),))


def test_the_root_exists():
    with pytest.raises(GraphError, match="no layer 'd'; the graph has a, b"):
        Graph((A, B), (Dense("a", "b"),), root="d")


def test_a_layer_may_be_joined_with_itself():
    graph = Graph(
        (A, Layer("g", (2, 3, 3))),
        (Dense("a", "g"), Dense("a", "a"), Conv("g", "g", 3), Local("g", "g", (1, 3), name="across")),
    )
    assert [c.count_edges(*graph.ends(c)) for c in graph.connections[1:]] == [3, 4 * 20 + 9, 4 * 6 + 9]
    assert [c.count_tables(*graph.ends(c)) for c in graph.connections[1:]] == [3, 4 * 4 + 1, 4 * 6 + 9]
    assert Graph.from_json(graph.to_json()) == graph
    assert "Conv    g - g: 89 edges, 17 parameters" in graph.summary()
    assert not uncovered(graph)


@pytest.mark.parametrize(
    ("connection", "message"),
    [
        (
            Sparse("a", "a", ((0, 1), (1, 1))),
            r"edge \(1, 1\) joins a node with itself; its energies belong to the unary",
        ),
        (Sparse("a", "a", ((0, 1), (1, 0))), r"edge \(0, 1\) is listed twice"),
        (Dense("one", "one"), "has no edges: layer 'one' has one node"),
        (Conv("one", "one", 3), r"has no edges: no window of 3 holds two nodes of \(1, 1\)"),
        (Conv("g", "g", 1), r"has no edges: no window of 1x1 holds two nodes of \(1, 2, 3\)"),
        (Local("g", "g", 2), "windows of layer 'g' over itself are centred: use odd kernels, leave out stride and pad"),
        (Local("g", "g", 3, 2), "kernel=3, stride=2, padding=0; windows of layer 'g' over itself are centred"),
        (Conv("g", "g", 3, padding=1), "kernel=3, stride=1, padding=1; windows of layer 'g' over itself are centred"),
    ],
)
def test_edges_inside_a_layer_are_pairs_of_its_nodes(connection, message):
    layers = Layer("a", 4), Layer("one", (1, 1)), Layer("g", (1, 2, 3))
    chain = Dense("a", "one"), Dense("one", "g")
    with pytest.raises(GraphError, match=message):
        Graph(layers, (*chain, connection))


def test_parallel_connections_are_legal_once_named():
    with pytest.raises(GraphError, match=r"two connections are named 'a-b'.* are legal, give each a name of its own"):
        Graph((A, B), (Dense("a", "b"), Sparse("a", "b", ((0, 0),))))
    graph = Graph((A, B), (Dense("a", "b"), Sparse("a", "b", ((0, 0),), name="extra")))
    assert graph.edges == 13


def test_every_layer_is_connected():
    with pytest.raises(GraphError, match=r"no path leads from layer 'a' to 'c', 'd'; connect every layer, or make two"):
        Graph((A, B, C, Layer("d", 2)), (Dense("a", "b"), Dense("c", "d")))


@pytest.mark.parametrize("edges", [5, "ab", None])
def test_edges_are_a_list(edges):
    with pytest.raises(GraphError, match=r"connection 'a-b': edges=.*, expected a list of pairs"):
        Graph((A, B), (Sparse("a", "b", edges),))


def test_an_edge_list_is_not_empty():
    with pytest.raises(GraphError, match="connection 'a-b' has no edges"):
        Graph((A, B), (Sparse("a", "b", ()),))


@pytest.mark.parametrize("edge", [(0,), (0, 1, 2), 0, "ab", (0, -1), (0.0, 1), (True, 1), (None, 0)])
def test_an_edge_is_a_pair_of_nodes(edge):
    with pytest.raises(GraphError, match=r"connection 'a-b': edge .*, expected a pair \(left node, right node\)"):
        Graph((A, B), (Sparse("a", "b", ((0, 0), edge)),))


@pytest.mark.parametrize("edge", [(3, 0), (0, 4)])
def test_an_edge_ends_inside_its_layers(edge):
    text = rf"edge \({edge[0]}, {edge[1]}\) is out of range, 'a' has 3 nodes and 'b' 4"
    with pytest.raises(GraphError, match=text):
        Graph((A, B), (Sparse("a", "b", (edge,)),))


def test_an_edge_is_listed_once():
    with pytest.raises(GraphError, match=r"edge \(1, 2\) is listed twice"):
        Graph((A, B), (Sparse("a", "b", ((1, 2), (0, 0), (1, 2))),))


def test_windows_are_checked_with_the_graph():
    with pytest.raises(GraphError, match="make 3 windows, but 'h' has 5 positions"):
        Graph((Layer("x", (1, 5)), Layer("h", (1, 5))), (Local("x", "h", 3),))


def test_errors_are_value_errors():
    with pytest.raises(ValueError, match="no layer 'z'"):
        Graph((A,), ()).layer("z")


# --- what is warned about


@pytest.mark.parametrize(
    ("left", "right", "connection", "layer", "count"),
    [
        ((2, 8), (1, 2), Conv("x", "h", 3, 3), "x", 4),
        ((1, 9, 6), (2, 2, 1), Local("x", "h", 4, 4), "x", 9 * 6 - 8 * 4),
        ((1, 3), (2, 5), Conv("x", "h", 1, 1, 1), "h", 4),
        (3, 4, Sparse("x", "h", ((0, 0), (1, 1), (2, 2))), "h", 1),
    ],
)
def test_nodes_without_edges_are_counted_in_a_warning(left, right, connection, layer, count):
    with pytest.warns(GraphWarning, match=rf"{count} of \d+ nodes of layer '{layer}' have no edge") as caught:
        graph = Graph((Layer("x", left), Layer("h", right)), (connection,))
    assert [w.filename for w in caught] == [__file__]  # where the user made the graph
    assert uncovered(graph) == {layer: count}


def test_what_one_connection_leaves_out_another_may_cover():
    graph = Graph((A, B), (Sparse("a", "b", ((0, 0), (1, 1))), Sparse("b", "a", ((2, 2), (3, 2)), name="rest")))
    assert uncovered(graph) == {}
    assert uncovered(Graph((A, B), (Sparse("a", "b", ((0, 0),)), Dense("a", "b", name="all")))) == {}


def test_a_layer_alone_is_no_reason_to_warn():
    assert Graph((A,), ()).edges == 0


# --- counts


@st.composite
def graphs(draw):
    """A chain of layers with any connections, perhaps a second connection, any root."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=2, max_size=4))
    layers = [Layer(f"l{i}", (draw(st.integers(1, 2)), n), draw(st.integers(2, 4))) for i, n in enumerate(sizes)]
    pairs = [(i, i + 1) for i in range(len(sizes) - 1)]
    pairs += draw(st.lists(st.sampled_from(pairs), max_size=1))
    connections = [draw(connections_between(layers[i], layers[j], f"c{n}")) for n, (i, j) in enumerate(pairs)]
    return make(layers, connections, draw(st.sampled_from(layers)).name)


def make(layers, connections, root=""):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)
        return Graph(tuple(layers), tuple(connections), root)


@st.composite
def connections_between(draw, left, right, name):
    kind = draw(st.sampled_from([Dense, Sparse, Conv, Local]))
    if kind is Dense:
        return Dense(left.name, right.name, name=name)
    if kind is Sparse:
        every = [(i, j) for i in range(left.nodes) for j in range(right.nodes)]
        edges = draw(st.lists(st.sampled_from(every), min_size=1, unique=True))
        return Sparse(left.name, right.name, tuple(edges), name=name)
    pad = draw(st.integers(0, 1))
    kernel = left.sizes[1] + pad - right.sizes[1] + 1
    assume(kernel >= 1)
    return kind(left.name, right.name, kernel, padding=((pad, 0),), name=name)


@given(graphs())
def test_counts_are_those_of_the_listed_edges(graph):
    assert graph.nodes == sum(layer.nodes for layer in graph.layers)
    touched = {layer.name: set() for layer in graph.layers}
    for c in graph.connections:
        listed = edges(graph, c)
        assert c.count_edges(*graph.ends(c)) == len(listed)
        touched[c.left] |= {e.left for e in listed}
        touched[c.right] |= {e.right for e in listed}
        labels = [graph.layer(name).labels - 1 for name in (c.left, c.right)]
        used = len({e.table for e in listed})
        if not isinstance(c, Conv):  # a Conv may have kernel cells that only meet the padding
            assert c.count_parameters(*graph.ends(c)) == used * labels[0] * labels[1]
    bare = {n: graph.layer(n).nodes - len(nodes) for n, nodes in touched.items()}
    assert uncovered(graph) == {n: count for n, count in bare.items() if count}


def test_counts_of_a_graph_by_hand():
    graph = Graph(
        (Layer("x", (2, 6, 5)), Layer("h", (3, 2, 4), 3), C), (Conv("x", "h", (4, 2), (2, 1)), Dense("h", "c"))
    )
    assert graph.nodes == 60 + 24 + 1
    assert graph.edges == 2 * 3 * (4 * 2) * (2 * 4) + 24
    assert graph.parameters == (60 + 24 * 2 + 4) + 2 * 3 * 8 * 2 + 24 * 2 * 4


def test_looking_things_up():
    graph = Graph([A, B, C], [Dense("a", "b"), Dense("b", "c")])
    assert graph.layer_names == ("a", "b", "c")
    assert graph.root == "c"
    assert graph.layer("b") is B
    assert graph.ends(graph.connections[1]) == (B, C)


def test_summary_tells_names_shapes_and_counts():
    graph = zoo.windows("conv")
    text = graph.summary()
    assert str(graph) == text
    first, *rows = text.splitlines()
    edges = 6 * (13 * 5 - 1) ** 2 + 6 * 16 * 5**2 * 5**2 + 400 * 100 + 100
    parameters = (784 + 1014 + 400 + 100 + 9) + 6 * 5**2 + 6 * 16 * 5**2 + 400 * 100 + 100 * 9
    assert first == f"Graph with 2,299 nodes, {edges:,} edges, {parameters:,} parameters, root 'classes'"
    assert len(rows) == 5 + 4
    assert [row.split()[:3] for row in rows[:2]] == [["inputs", "1x28x28", "784"], ["edges", "6x13x13", "1,014"]]
    assert rows[5].split()[:2] == ["inputs-edges", "Conv"]
    assert rows[6].endswith("edges - parts: 60,000 edges, 2,400 parameters")


# --- frozen, hashable, JSON


def test_graphs_are_frozen_and_hashable():
    graph = Graph([A, B], [Dense("a", "b")])
    assert graph == Graph((A, B), (Dense("a", "b"),), "b")
    assert len({graph, Graph((A, B), (Dense("a", "b"),)), Graph((A, B), (Dense("a", "b"),), "a")}) == 2
    with pytest.raises(FrozenInstanceError):
        graph.root = "a"


@given(graphs())
def test_json_round_trip(graph):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)
        again = Graph.from_json(graph.to_json())
        assert Graph.from_json(graph.to_json(indent=None)) == again == graph
    assert hash(again) == hash(graph)


def test_numpy_numbers_can_be_written():
    layers = (Layer("x", np.array([1, 6])), Layer("h", (np.int64(2), np.int64(3)), np.int64(3)))
    graph = Graph(layers, (Conv("x", "h", np.int64(2), np.int64(2)),))
    assert Graph.from_json(graph.to_json()) == graph


def described(**changes):
    data = json.loads(Graph((A, B), (Dense("a", "b"),)).to_json())
    return json.dumps({k: v for k, v in {**data, **changes}.items() if v != "drop"})


def test_json_may_leave_out_the_root():
    assert Graph.from_json(described(root="drop")).root == "b"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", 'expected "format": "torchlgm.graph"'),
        ("{}", 'expected "format": "torchlgm.graph"'),
        (described(format="other"), 'expected "format": "torchlgm.graph"'),
        (described(version=2), "version 2; this torchlgm reads 1"),
        (described(version="drop"), "version None; this torchlgm reads 1"),
        (described(colour="red"), "unknown fields: colour"),
        (described(layers="drop"), "incomplete or of another form: 'layers'"),
        (described(connections="drop"), "incomplete or of another form: 'connections'"),
        (described(layers=3), "incomplete or of another form"),
        (described(layers=["a"]), "a description of Layer is 'a'; expected its fields"),
        (described(layers=[{"name": "a"}]), "a description of Layer lacks 'shape'"),
        (
            described(layers=[{"name": "a", "shape": 3, "color": 1}]),
            "Layer has no field 'color'; it has name, shape, labels",
        ),
        (described(connections=["ab"]), "unknown connection type None"),
        (described(connections=[3]), "unknown connection type None"),
        (described(connections=[{"left": "a", "right": "b"}]), "unknown connection type None"),
        (
            described(connections=[{"type": "ring", "left": "a", "right": "b"}]),
            "unknown connection type 'ring'; known: d",
        ),
        (described(connections=[{"type": "dense", "left": "a"}]), "a description of Dense lacks 'right'"),
        (described(connections=[{"type": "dense", "left": "a", "right": "z"}]), "no layer 'z'"),
        (described(root="z"), "no layer 'z'"),
        (described(layers=[{"name": "a", "shape": 1.5}]), "shape .* must hold positive whole numbers"),
    ],
)
def test_descriptions_that_cannot_be_read_say_why(text, message):
    with pytest.raises(GraphError, match=message):
        Graph.from_json(text)
