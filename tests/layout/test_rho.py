"""Edge appearance probabilities: valid on any layer graph, and just the spanning trees' where these can be listed."""

import warnings
from collections import Counter
from fractions import Fraction
from itertools import combinations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from torchlgm.errors import GraphWarning
from torchlgm.layout import appearance
from torchlgm.layout.rho import child_probabilities
from torchlgm.spec import Conv, Dense, Graph, Layer, Local, Sparse
from torchlgm.testing import edge_list

LAYER_GRAPHS = {
    "one connection": [(0, 1)],
    "chain": [(0, 1), (1, 2), (2, 3)],
    "tree": [(0, 2), (1, 2), (2, 3)],
    "skip": [(0, 1), (1, 2), (2, 3), (0, 3)],
    "triangle": [(0, 1), (1, 2), (0, 2)],
    "triangle with a tail": [(0, 1), (1, 2), (0, 2), (2, 3)],
    "loop": [(0, 1), (1, 2), (2, 3), (3, 0)],
    "clique": list(combinations(range(4), 2)),
    "parallel connections": [(0, 1), (0, 1), (1, 2)],
}
NAMES = "abcd"


def dense_graph(pairs, nodes, root=""):
    layers = [Layer(NAMES[i], nodes[i]) for i in range(1 + max(map(max, pairs)))]
    return Graph(tuple(layers), tuple(Dense(NAMES[i], NAMES[j], name=f"c{n}") for n, (i, j) in enumerate(pairs)), root)


def rho_of(graph):
    """rho of every edge, as `{connection: {(left node, right node): rho}}`, nodes being `(layer, number)`."""
    layouts = {c.name: c.make_layout(*graph.ends(c)) for c in graph.connections}
    result = {}
    for c in graph.connections:
        rho = appearance(graph, layouts)[c.name]
        (left, right), exist = edge_list(layouts[c.name])
        values = rho.expand(layouts[c.name].edge_shape).flatten()[exist]
        ends = zip([(c.left, i) for i in left.tolist()], [(c.right, j) for j in right.tolist()], strict=True)
        result[c.name] = dict(zip(ends, values.tolist(), strict=True))
    return result


def nodes_of(graph):
    return [(layer.name, i) for layer in graph.layers for i in range(layer.nodes)]


def broken_subsets(nodes, edges):
    """The node sets S, as bits, inside which the rho of `((node, node), rho)` sum to more than |S| - 1."""
    assert len(nodes) <= 10
    bits = {node: 1 << i for i, node in enumerate(nodes)}
    pairs = [(bits[a] | bits[b], rho) for (a, b), rho in edges]
    sums = {s: sum(rho for pair, rho in pairs if pair & s == pair) for s in range(1, 1 << len(nodes))}
    return [s for s, inside in sums.items() if inside > s.bit_count() - 1 + 1e-9]


def check_valid(graph):
    """A rho with `0 < rho <= 1` and no broken subset is a mixture of forests (Edmonds)."""
    edges = [pair for per_edge in rho_of(graph).values() for pair in per_edge.items()]
    assert all(0 < rho <= 1 for _, rho in edges)
    assert broken_subsets(nodes_of(graph), edges) == []


def spanning_trees(graph):
    """Every spanning tree of the layer graph, as a tuple of connections."""
    for chosen in combinations(graph.connections, len(graph.layers) - 1):
        group = {name: name for name in graph.layer_names}
        for c in chosen:
            old, new = group[c.left], group[c.right]
            group = {name: new if at == old else at for name, at in group.items()}
        if len(set(group.values())) == 1:
            yield chosen


def children(tree, root):
    """The pairs (connection, child layer) of a tree hung up at the root."""
    found, frontier, rest = [], [root], list(tree)
    while frontier:
        parent = frontier.pop()
        for c in [c for c in rest if parent in (c.left, c.right)]:
            rest.remove(c)
            child = c.right if c.left == parent else c.left
            found.append((c.name, child))
            frontier.append(child)
    return found


@pytest.mark.parametrize("pairs", LAYER_GRAPHS.values(), ids=LAYER_GRAPHS)
@pytest.mark.parametrize("root", range(2))
def test_child_probabilities_are_those_of_all_spanning_trees(pairs, root):
    graph = dense_graph(pairs, (1, 2, 2, 1), NAMES[root])
    trees = list(spanning_trees(graph))
    counts = Counter(pair for tree in trees for pair in children(tree, graph.root))
    got = child_probabilities(graph)
    for c in graph.connections:
        for layer, probability in zip((c.left, c.right), got[c.name], strict=True):
            expected = Fraction(counts[c.name, layer], len(trees))
            assert probability == pytest.approx(float(expected), abs=1e-12)


@pytest.mark.parametrize("pairs", LAYER_GRAPHS.values(), ids=LAYER_GRAPHS)
@pytest.mark.parametrize("nodes", [(3, 2, 3, 1), (2, 2, 2, 2), (1, 1, 1, 1)])
def test_rho_of_dense_graphs_is_valid(pairs, nodes):
    for root in NAMES[: 1 + max(map(max, pairs))]:
        check_valid(dense_graph(pairs, nodes, root))


@pytest.mark.parametrize("pairs", LAYER_GRAPHS.values(), ids=LAYER_GRAPHS)
def test_rho_is_that_of_drawing_a_tree_and_then_a_parent_for_each_node(pairs):
    graph = dense_graph(pairs, (2, 3, 2, 1))
    trees = list(spanning_trees(graph))
    expected = Counter()
    for tree in trees:
        for name, child in children(tree, graph.root):
            c = next(c for c in tree if c.name == name)
            parent = c.right if child == c.left else c.left
            expected[name] += 1 / graph.layer(parent).nodes / len(trees)
    for name, per_edge in rho_of(graph).items():
        assert list(per_edge.values()) == pytest.approx([expected[name]] * len(per_edge))


@pytest.mark.parametrize("pairs", LAYER_GRAPHS.values(), ids=LAYER_GRAPHS)
@pytest.mark.parametrize("root", range(2))
def test_rho_sums_to_the_nodes_that_pick_a_parent(pairs, root):
    graph = dense_graph(pairs, (1, 3, 2, 2), NAMES[root])
    total = sum(sum(per_edge.values()) for per_edge in rho_of(graph).values())
    assert total == pytest.approx(graph.nodes - graph.layer(graph.root).nodes)


TREES = {
    "star": Graph((Layer("x", 1), Layer("h", 4)), (Dense("x", "h"),), root="x"),
    "star behind a hub": Graph((Layer("x", 3), Layer("h", 1), Layer("y", 1)), (Dense("x", "h"), Dense("h", "y"))),
    "path of nodes": Graph((Layer("x", 1), Layer("h", 1), Layer("y", 1)), (Dense("x", "h"), Dense("h", "y"))),
    "disjoint windows": Graph((Layer("x", (1, 6)), Layer("h", (1, 2))), (Local("x", "h", 3, 3),)),
    "sparse tree": Graph((Layer("x", 4), Layer("h", 2)), (Sparse("x", "h", ((0, 0), (1, 0), (2, 1), (3, 1))),)),
    "quadtree": Graph(
        (Layer("x", (1, 4, 4)), Layer("h", (1, 2, 2)), Layer("y", (1, 1, 1))),
        (Conv("x", "h", 2, 2), Conv("h", "y", 2, 2)),
    ),
}


@pytest.mark.parametrize("graph", TREES.values(), ids=TREES)
def test_rho_is_1_where_each_node_has_one_neighbour_toward_the_root(graph):
    for per_edge in rho_of(graph).values():
        assert list(per_edge.values()) == pytest.approx([1.0] * len(per_edge), abs=1e-12)


def test_rho_of_windows_counts_the_neighbours_that_exist():
    """5 cells, 3 windows of 3 with stride 1: cells pick one of the 1, 2, 3, 2, 1 windows over them."""
    graph = Graph((Layer("x", (1, 5)), Layer("h", (1, 3))), (Conv("x", "h", 3),))
    for ((_, cell), _), rho in rho_of(graph)["x-h"].items():
        assert rho == pytest.approx(1 / [1, 2, 3, 2, 1][cell])


def test_rho_is_1_where_there_is_no_edge():
    graph = Graph((Layer("x", (1, 3)), Layer("h", (2, 3))), (Conv("x", "h", 3, 1, 1),))
    layout = graph.connections[0].make_layout(*graph.ends(graph.connections[0]))
    rho = appearance(graph, {"x-h": layout})["x-h"].expand(layout.edge_shape)
    assert layout.mask is not None
    absent = rho[layout.mask.expand(layout.edge_shape) == 0]
    assert absent.numel() == 4
    assert absent.eq(1).all()
    assert rho.dtype == torch.float64


@st.composite
def mixed_graphs(draw):
    """Up to 10 nodes in 2 to 4 layers, any connected layer graph, dense, sparse and window connections, any root."""
    count = draw(st.integers(2, 4))
    sizes = [draw(st.integers(1, {2: 5, 3: 3, 4: 2}[count])) for _ in range(count)]
    tree = [(draw(st.integers(0, i - 1)), i) for i in range(1, count)]
    more = draw(st.lists(st.sampled_from(list(combinations(range(count), 2))), max_size=3))
    layers = tuple(Layer(NAMES[i], (1, n)) for i, n in enumerate(sizes))
    connections = tuple(draw(connection(n, i, j, sizes)) for n, (i, j) in enumerate([*tree, *more]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)
        return Graph(layers, connections, draw(st.sampled_from(NAMES[:count])))


@st.composite
def graphs_with_edges_inside(draw):
    graph = draw(mixed_graphs())
    connections = list(graph.connections)
    for layer in graph.layers:
        every = list(combinations(range(layer.nodes), 2))
        if every and draw(st.booleans()):
            pairs = draw(st.lists(st.sampled_from(every), min_size=1, unique=True))
            edges = tuple(pair[::-1] if draw(st.booleans()) else pair for pair in pairs)
            connections.append(Sparse(layer.name, layer.name, edges))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)
        return Graph(graph.layers, tuple(connections), graph.root)


@st.composite
def connection(draw, number, i, j, sizes):
    ends, name = (NAMES[i], NAMES[j]), f"c{number}"
    kind = draw(st.sampled_from(["dense", "sparse", "window"]))
    if kind == "sparse":
        every = [(a, b) for a in range(sizes[i]) for b in range(sizes[j])]
        return Sparse(*ends, tuple(draw(st.lists(st.sampled_from(every), min_size=1, unique=True))), name=name)
    kernel = sizes[i] - sizes[j] + 1
    if kind == "window" and kernel >= 1:
        pad = draw(st.integers(0, 1))
        return Local(*ends, kernel + pad, padding=((pad, 0),), name=name)
    return Dense(*ends, name=name)


@settings(max_examples=60)
@given(mixed_graphs())
def test_rho_of_any_graph_is_valid(graph):
    check_valid(graph)


@pytest.mark.parametrize("most", [0, 2048])
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graph=graphs_with_edges_inside())
def test_rho_of_graphs_with_edges_inside_layers_is_valid(graph, most, monkeypatch):
    monkeypatch.setattr("torchlgm.layout.rho.MOST_NODES", most)
    check_valid(graph)


def test_rho_inside_a_layer_is_that_of_all_spanning_trees_of_its_nodes():
    edges = ((1, 0), (1, 2), (2, 3), (0, 3), (0, 2), (4, 3), (5, 6))
    graph = Graph((Layer("a", 7),), (Sparse("a", "a", edges),))
    trees = [chosen for chosen in combinations(edges, 5) if broken_subsets(range(7), [(e, 1.0) for e in chosen]) == []]
    counts = Counter(edge for tree in trees for edge in tree)
    rho = rho_of(graph)["a-a"]
    assert [rho[("a", i), ("a", j)] for i, j in edges] == pytest.approx([counts[edge] / len(trees) for edge in edges])


def test_rho_of_a_clique_is_2_over_its_nodes_and_that_of_a_chain_is_1():
    clique = Graph((Layer("a", 7),), (Dense("a", "a"),))
    assert list(rho_of(clique)["a-a"].values()) == pytest.approx([2 / 7] * 21)
    layers = Layer("x", (1, 6)), Layer("y", (1, 6))
    chain = Graph(layers, (Conv("x", "y", 1), Conv("y", "y", 3)))
    for per_edge in rho_of(chain).values():
        assert list(per_edge.values()) == pytest.approx([1.0] * len(per_edge))


def test_lbp_is_not_valid_on_a_loop():
    graph = dense_graph([(0, 1)], (2, 2))
    all_ones = [(ends, 1.0) for ends in rho_of(graph)["c0"]]
    assert broken_subsets(nodes_of(graph), all_ones) == [0b1111]


def test_a_root_of_several_nodes_makes_forests():
    """The hub of a star that is rooted at its leaves picks one of them."""
    graph = Graph((Layer("x", 1), Layer("h", 4)), (Dense("x", "h"),))
    assert list(rho_of(graph)["x-h"].values()) == pytest.approx([1 / 4] * 4)
