"""The lists that kernels read: every edge that exists stands in both, once, at the right node."""

from itertools import product

import pytest
import torch

import torchlgm as lgm
from torchlgm.layout import LEFT, RIGHT
from torchlgm.ops.csr import Incidence, incidence, weights
from torchlgm.spec import Conv, Dense, Local, Sparse
from torchlgm.testing import oracle

CPU = torch.device("cpu")
GEOMETRIES = {
    "line": ((2, 5), (3, 3), {"kernel": 3, "stride": 2, "padding": ((1, 1),)}),
    "one-sided": ((1, 4, 3), (2, 2, 3), {"kernel": 3, "stride": (2, 1), "padding": ((1, 0), (1, 1))}),
    "whole": ((2, 3, 3), (1, 2, 2), {"kernel": 2}),
    "cube": ((1, 3, 2, 3), (2, 2, 1, 2), {"kernel": 2, "padding": ((0, 0), (0, 0), (1, 0)), "stride": (1, 1, 2)}),
    "dilated": ((1, 6), (1, 3), {"kernel": 2, "dilation": 3, "padding": 0}),
}


def _cases():
    yield "dense", (3,), (4,), Dense("a", "b")
    yield "sparse", (4,), (3,), Sparse("a", "b", ((3, 2), (0, 0), (2, 2), (0, 2), (3, 0)))
    yield "clique", (4,), (4,), Dense("a", "a")
    yield "around", (2, 2, 3), (2, 2, 3), Conv("a", "a", 3)
    for kind in (Conv, Local):
        for name, (left, right, how) in GEOMETRIES.items():
            yield f"{kind.__name__.lower()} {name}", left, right, kind("a", "b", **how)


CASES = {name: (left, right, connection) for name, left, right, connection in _cases()}
pytestmark = pytest.mark.filterwarnings("ignore:.*have no edge")  # nodes without edges must have empty lists


@pytest.fixture(params=CASES)
def connection(request):
    return CASES[request.param][2]


@pytest.fixture
def graph(connection):
    left, right, _ = next(case for case in CASES.values() if case[2] is connection)
    layers = [lgm.Layer("a", left), lgm.Layer("b", right)]
    return lgm.Graph(layers[:1] if connection.is_lateral else layers, [connection])


def _places(graph, connection, shape):
    """Position in the flattened edge axes -> (left node, right node, index of the table), of every edge."""
    position = {index: i for i, index in enumerate(product(*map(range, shape)))}
    return {position[e.at]: (e.left, e.right, e.table) for e in oracle.edges(graph, connection)}


def test_every_edge_once_at_each_side(graph, connection):
    layout = connection.make_layout(*graph.ends(connection))
    lists = Incidence(layout, CPU)
    places = _places(graph, connection, layout.edge_shape)
    assert lists.count == torch.Size(layout.edge_shape).numel()
    assert lists.complete == (len(places) == lists.count)
    for side in (LEFT, RIGHT):
        here = lists.sides[side]
        assert here.nodes == layout.nodes[side] == len(here.indptr) - 1
        assert sorted(here.edges.tolist()) == sorted(places)
        assert (here.indptr[0], here.indptr[-1]) == (0, len(places))
        assert here.degree == pytest.approx(len(places) / here.nodes)
        for node in range(here.nodes):
            for slot in range(int(here.indptr[node]), int(here.indptr[node + 1])):
                ends = places[int(here.edges[slot])]
                assert (ends[side], ends[1 - side]) == (node, int(here.indices[slot]))


def test_rows_are_those_of_the_table(graph, connection):
    layout = connection.make_layout(*graph.ends(connection))
    lists = Incidence(layout, CPU)
    places = _places(graph, connection, layout.edge_shape)
    table = layout.spread(torch.zeros(*layout.table_shape, 1, 1))
    number = {index: i for i, index in enumerate(product(*map(range, layout.table_shape)))}
    for side, rows in zip(lists.sides, lists.rows(table.shape[:-2]), strict=True):
        assert rows.tolist() == [number[places[e][2]] for e in side.edges.tolist()]
        assert rows.dtype == torch.int32


def test_values_in_the_order_of_both_lists():
    layout = Conv("a", "b", 2, 2, ((1, 0),)).make_layout(lgm.Layer("a", (1, 3)), lgm.Layer("b", (2, 2)))
    lists = Incidence(layout, CPU)
    values = torch.rand(2, 2, 1)  # broadcasts over positions
    for side, found in zip(lists.sides, lists.sorted(values), strict=True):
        assert torch.equal(found, values.expand(layout.edge_shape).flatten()[side.edges.long()])


def test_lists_are_made_once_for_a_layout():
    first, second = (Dense("a", "b").make_layout(lgm.Layer("a", 2), lgm.Layer("b", 3)) for _ in range(2))
    assert incidence(first, CPU) is incidence(first, CPU)
    assert incidence(first, CPU) is not incidence(second, CPU)


class TestWeights:
    lists = Incidence(Dense("a", "b").make_layout(lgm.Layer("a", 2), lgm.Layer("b", 3)), CPU)

    def test_of_rho(self):
        rho, like = torch.rand(2, 3) + 0.5, torch.zeros(())
        made = weights(self.lists, rho, -2.0, like)
        for side, own, factor in zip(self.lists.sides, made.rho, made.factor, strict=True):
            assert torch.equal(own, rho.flatten()[side.edges.long()])
            torch.testing.assert_close(factor, -2 / own)

    def test_undivided(self):
        rho, like = torch.rand(2, 3) + 0.5, torch.zeros(())
        divided, made = (weights(self.lists, rho, -2.0, like, how) for how in (True, False))
        assert all(torch.equal(a, b) for a, b in zip(divided.rho, made.rho, strict=True))
        assert all(torch.equal(factor, torch.full((6,), -2.0)) for factor in made.factor)

    def test_without_rho(self):
        made = weights(self.lists, None, 3.0, torch.zeros((), dtype=torch.float32))
        assert made.rho == (None, None)
        assert torch.equal(made.factor[0], torch.full((6,), 3.0, dtype=torch.float32))

    def test_are_made_once_until_rho_changes(self):
        rho, like = torch.rand(2, 1) + 0.5, torch.zeros(())
        first = weights(self.lists, rho, 1.0, like)
        assert weights(self.lists, rho, 1.0, like) is first
        assert weights(self.lists, rho, 1.0, like.float()).factor[0].dtype == torch.float32
        torch.testing.assert_close(weights(self.lists, rho, 5.0, like).factor[0], 5 * first.factor[0])
        rho.mul_(2)
        torch.testing.assert_close(weights(self.lists, rho, 1.0, like).factor[0], first.factor[0] / 2)
        torch.testing.assert_close(weights(self.lists, rho.clone(), 1.0, like).factor[1], first.factor[1] / 2)


def test_what_kernels_reckon_is_what_the_lists_say(graph, connection):
    for side in Incidence(connection.make_layout(*graph.ends(connection)), CPU).sides:
        owner = torch.arange(side.nodes).repeat_interleave(side.indptr.diff())
        slot, own = torch.arange(len(owner)), side.indptr[owner]
        if side.stride is not None:
            assert torch.equal(side.edges, (slot if side.stride == 1 else owner + (slot - own) * side.stride).int())
        if side.dense:
            assert torch.equal(side.indices, (slot - own).int())


@pytest.mark.parametrize(
    ("name", "strides", "dense"),
    [
        ("dense", (1, 4), (True, True)),
        ("sparse", (None, None), (False, False)),
        ("local whole", (None, 4), (False, False)),
        ("local line", (None, None), (False, False)),  # some edges of its windows do not exist
    ],
)
def test_what_kernels_can_reckon(name, strides, dense):
    left, right, connection = CASES[name]
    graph = lgm.Graph([lgm.Layer("a", left), lgm.Layer("b", right)], [connection])
    sides = Incidence(connection.make_layout(*graph.ends(connection)), CPU).sides
    assert tuple(side.stride for side in sides) == strides
    assert tuple(side.dense for side in sides) == dense
