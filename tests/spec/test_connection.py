"""A connection of one's own: in a graph, in JSON, in a picture, and held to its laws."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch

import torchlgm as lgm
from torchlgm.errors import GraphError
from torchlgm.layout import SparseLayout
from torchlgm.spec import Connection, Dense, Edge, Graph, Layer, Sparse, register
from torchlgm.spec.connection import CONNECTIONS
from torchlgm.testing import check_connection
from torchlgm.viz.graphs import draw_graph

A, B = Layer("a", 4), Layer("b", 4, labels=3)


@dataclass(frozen=True)
class Band(Connection):
    """Node i of `left` with the nodes of `right` that are at most `width` away."""

    width: int = 0

    def validate(self, left: Layer, right: Layer) -> None:
        if left.nodes != right.nodes:
            raise GraphError(f"connection '{self.name}': {left.nodes} and {right.nodes} nodes; expected as many")

    def list_edges(self, left: Layer, right: Layer) -> Iterator[Edge]:
        pairs = [(i, j) for i in range(left.nodes) for j in range(right.nodes) if abs(i - j) <= self.width]
        return (Edge(i, j, (n,), (n,)) for n, (i, j) in enumerate(pairs))

    def make_layout(self, left, right):
        return SparseLayout(left.nodes, right.nodes, tuple((e.left, e.right) for e in self.list_edges(left, right)))

    def caption(self, left, right):
        return f"width {self.width}"


@pytest.fixture
def registered():
    register(Band)
    yield
    del CONNECTIONS["band"]


@pytest.mark.parametrize("width", [0, 1, 3])
@pytest.mark.usefixtures("registered")
def test_the_laws_hold(width):
    check_connection(Band("a", "b", width), A, B)
    check_connection(Band("a", "b", width), B, A)


@pytest.mark.usefixtures("registered")
def test_it_is_counted_written_read_and_drawn():
    graph = Graph((A, B), (Band("a", "b", width=1),))
    assert (graph.edges, graph.parameters) == (10, 4 + 4 * 2 + 10 * 2)
    assert "Band    a - b: 10 edges, 20 parameters" in graph.summary()
    assert Graph.from_json(graph.to_json()) == graph
    assert {"width 1\n10 edges", "Band"} <= {text.get_text() for text in draw_graph(graph).axes[0].texts}


def test_inference_on_it_is_that_on_the_list_of_its_edges():
    band = Band("a", "b", width=1)
    listed = Sparse("a", "b", tuple((edge.left, edge.right) for edge in band.list_edges(A, B)))
    models = [lgm.LGM(Graph((A, B), (c,)), generator=torch.Generator().manual_seed(0)) for c in (band, listed)]
    ours, theirs = (lgm.infer(model, {}, lgm.trw(3))["b"].probs for model in models)
    assert torch.equal(ours, theirs)


def test_it_is_asked_whether_it_fits():
    with pytest.raises(GraphError, match="connection 'a-c': 4 and 5 nodes; expected as many"):
        Graph((A, Layer("c", 5)), (Band("a", "c"),))


@dataclass(frozen=True)
class Neighbours(Connection):
    """Node i with node i + 1 of the same layer."""

    may_be_lateral = True

    def list_edges(self, left: Layer, right: Layer) -> Iterator[Edge]:
        return (Edge(i, i + 1, (i,), (i,)) for i in range(left.nodes - 1))

    def make_layout(self, left, right):
        return SparseLayout(left.nodes, left.nodes, tuple((i, i + 1) for i in range(left.nodes - 1)))


def test_a_connection_may_be_lateral_if_it_says_so():
    with pytest.raises(
        GraphError, match="'a-a' joins layer 'a' with itself, which Band cannot; use Sparse, Dense, Conv"
    ):
        Graph((A,), (Band("a", "a"),))
    register(Neighbours)
    try:
        check_connection(Neighbours("b", "b"), B, B)
    finally:
        del CONNECTIONS["neighbours"]
    listed = Sparse("b", "b", ((0, 1), (1, 2), (2, 3)))
    ours, theirs = (
        lgm.LGM(Graph((B,), (c,)), generator=torch.Generator().manual_seed(0)) for c in (Neighbours("b", "b"), listed)
    )
    assert torch.equal(lgm.infer(ours, {}, lgm.lbp(3)).log_z, lgm.infer(theirs, {}, lgm.lbp(3)).log_z)


def test_only_connections_connect():
    with pytest.raises(GraphError, match=r"connection \('a', 'b'\); expected a Connection, such as Dense"):
        Graph((A, B), (("a", "b"),))


# --- the registry


def test_what_is_not_registered_is_not_written():
    with pytest.raises(GraphError, match="connection 'a-b': Band cannot be written to JSON; decorate the class with"):
        Graph((A, B), (Band("a", "b"),)).to_json()


@pytest.mark.usefixtures("registered")
def test_a_class_may_be_defined_again():
    again = dataclass(frozen=True)(type("Band", (Band,), {"__qualname__": "Band", "__module__": Band.__module__}))
    assert register(again) is again
    assert CONNECTIONS["band"] is again


def test_a_name_stands_for_one_kind():
    with pytest.raises(GraphError, match="two kinds of connections are named 'dense' in JSON"):
        register(dataclass(frozen=True)(type("Dense", (Band,), {"__qualname__": "elsewhere.Dense"})))
    assert CONNECTIONS["dense"] is Dense


@pytest.mark.parametrize("kind", [int, Band("a", "b"), Layer, "band"])
def test_only_kinds_of_connections_are_registered(kind):
    with pytest.raises(GraphError, match="expected a frozen dataclass derived from"):
        register(kind)


# --- the laws notice what breaks them


class Miscounts(Band):
    def count_edges(self, left, right):
        return 1


class Covers(Band):
    def covered(self, left, right):
        return set(range(3)), set(range(left.nodes))


class MisplacesTables(Band):
    def list_edges(self, left, right):
        edges = list(super().list_edges(left, right))
        return [edge._replace(table=edges[-1 - n].table) for n, edge in enumerate(edges)]


class OtherEdges(Band):
    def make_layout(self, left, right):
        return SparseLayout(left.nodes, right.nodes, tuple((i, 3 - i) for i in range(4)))


class SharesAnIndex(Band):
    def list_edges(self, left, right):
        return [edge._replace(at=(0,)) for edge in super().list_edges(left, right)]


class Forgets(Band):
    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "width", 0 if self.name == "a-b" else 1)
        object.__setattr__(self, "name", self.name + "x")


@pytest.mark.parametrize(
    ("kind", "law"),
    [
        (Miscounts, "count_edges counts the listed edges"),
        (Covers, "covered are the ends of the listed edges"),
        (MisplacesTables, "each at its index and with its table"),
        (OtherEdges, "the layout has the listed edges"),
        (SharesAnIndex, "every edge has an index of its own in the layout"),
        (Forgets, "comes back from JSON as it was"),
    ],
)
def test_a_broken_law_is_named(kind, law, monkeypatch):
    monkeypatch.setitem(CONNECTIONS, kind.__name__.lower(), kind)
    with pytest.raises(AssertionError, match=law):
        check_connection(kind("a", "b"), A, B)
