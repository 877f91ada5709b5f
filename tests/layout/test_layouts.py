"""Every kind of connection keeps the laws of a layout, and the laws notice a layout that does not."""

from dataclasses import replace

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from torchlgm.errors import GraphError
from torchlgm.layout import (
    LEFT,
    RIGHT,
    DenseLayout,
    SparseLayout,
    TurnedLayout,
    WindowLayout,
    appearance,
    colour,
    colour_masks,
    edge_list,
)
from torchlgm.spec import Conv, Dense, Graph, Layer, Local, Sparse
from torchlgm.testing import check_connection, check_layout

pytestmark = pytest.mark.filterwarnings("ignore::torchlgm.errors.GraphWarning")  # nodes without edges are welcome

ONE_SIDED = ((1, 0), (1, 0))
WINDOWS = {  # left shape, right shape, kernel, stride, padding, dilation
    "1d": ((2, 7), (3, 5), 3, 1, 0, 1),
    "1d stride over kernel": ((1, 10), (2, 3), 2, 4, 0, 1),
    "1d kernel over stride": ((2, 9), (2, 3), 5, 2, 0, 1),
    "1d dilated": ((2, 9), (1, 5), 3, 1, 0, 2),
    "1d after only": ((1, 4), (2, 4), 2, 1, ((0, 1),), 1),
    "1d a window in the padding": ((1, 3), (2, 6), 2, 1, ((2, 2),), 1),
    "1d trailing nodes uncovered": ((2, 8), (1, 2), 3, 3, 0, 1),
    "2d non-square": ((2, 5, 7), (3, 3, 6), (3, 2), 1, 0, 1),
    "2d the paper's first": ((1, 28, 28), (2, 13, 13), 5, 2, ONE_SIDED, 1),
    "2d one-sided, non-square": ((1, 8, 6), (2, 3, 2), 5, 2, ONE_SIDED, 1),
    "2d all different": ((2, 7, 10), (2, 4, 3), (2, 3), (2, 3), ((1, 0), (0, 2)), (1, 2)),
    "2d single position": ((3, 4, 2), (2, 1, 1), (4, 2), 1, 0, 1),
    "3d": ((1, 3, 4, 5), (2, 2, 2, 2), (2, 3, 4), 1, 0, 1),
    "3d all different": ((2, 5, 4, 3), (2, 2, 4, 2), (3, 2, 1), (2, 1, 2), ((0, 0), (0, 1), (1, 0)), (1, 1, 2)),
}
LABELS = [(2, 2), (2, 4), (3, 2), (4, 3)]


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


def window_graph(kind, left, right, kernel, stride, padding, dilation):
    return Graph((Layer("a", left), Layer("b", right)), (kind("a", "b", kernel, stride, padding, dilation),))


def layout_of(graph):
    connection = graph.connections[0]
    return connection.make_layout(*graph.ends(connection))


def check_laws(graph, labels):
    """Of the only connection, its layout included, with these numbers of labels."""
    left, right = (replace(layer, labels=n) for layer, n in zip(graph.layers, labels, strict=True))
    check_connection(graph.connections[0], left, right)


@pytest.mark.parametrize("kind", [Conv, Local])
@pytest.mark.parametrize("geometry", WINDOWS.values(), ids=WINDOWS)
def test_windows_keep_the_laws(kind, geometry):
    for labels in LABELS:
        check_laws(window_graph(kind, *geometry), labels)


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("nodes", [(1, 1), (1, 4), (5, 1), (3, 4)])
def test_dense_keeps_the_laws(nodes, labels):
    graph = Graph((Layer("a", nodes[0]), Layer("b", nodes[1])), (Dense("a", "b"),))
    check_laws(graph, labels)


@pytest.mark.parametrize("labels", LABELS)
def test_sparse_keeps_the_laws(labels):
    graph = Graph((Layer("a", (3, 2)), Layer("b", 4)), (Sparse("a", "b", ((5, 0), (0, 3), (0, 2), (3, 1))),), "a")
    check_laws(graph, labels)


INSIDE = {
    "clique": (5, Dense("a", "a")),
    "pairs": ((3, 2), Sparse("a", "a", ((5, 0), (0, 3), (2, 0), (3, 1)))),
    "chain": ((1, 5), Conv("a", "a", 3)),
    "grid": ((1, 3, 4), Local("a", "a", (3, 1))),
    "all around, two channels": ((2, 3, 4), Conv("a", "a", 3)),
    "all around, tables of their own": ((2, 2, 3), Local("a", "a", 3)),
    "between channels": ((3, 2), Conv("a", "a", 1)),
    "dilated, most uncovered": ((1, 6, 3), Conv("a", "a", (3, 1), dilation=(4, 1))),
    "3d, wider than the layer": ((1, 2, 3, 2), Local("a", "a", (5, 3, 1))),
}


@pytest.mark.parametrize("labels", [2, 4])
@pytest.mark.parametrize("case", INSIDE.values(), ids=INSIDE)
def test_edges_inside_a_layer_keep_the_laws(case, labels):
    shape, connection = case
    layer = Layer("a", shape, labels)
    check_connection(connection, layer, layer)


@pytest.mark.parametrize("case", INSIDE.values(), ids=INSIDE)
def test_turned_edges_are_the_same_and_go_up_the_colours(case):
    shape, connection = case
    layer = Layer("a", shape, 3)
    layout = connection.make_layout(layer, layer)
    colours = colour_masks([layout])
    turned = TurnedLayout(layout, colours)
    check_layout(turned, 3, 3, torch.Generator().manual_seed(0))
    (ends, at), (theirs, also) = edge_list(layout), edge_list(turned)
    low, high = (colours.int().argmax(0)[nodes] for nodes in theirs)
    assert (low < high).all()
    assert torch.equal(at, also)
    assert torch.equal(ends.sort(0).values, theirs.sort(0).values)
    tables = torch.rand(1, *layout.edge_shape, 2, 2)
    assert torch.equal(turned.turn(turned.turn(tables)), tables)
    for edge, (a, b) in enumerate(zip(ends.T.tolist(), theirs.T.tolist(), strict=True)):
        mine, other = (x.flatten(1, -3)[0, at[edge]] for x in (tables, turned.turn(tables)))
        assert torch.equal(other, mine if a == b else mine.T)


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)).filter(lambda pair: pair[0] != pair[1])))
def test_colours_are_proper_and_few(pairs):
    colours = colour(range(9), pairs)
    assert list(colours) == list(range(9))
    assert all(colours[i] != colours[j] for i, j in pairs)
    neighbours = [{*sum((pair for pair in pairs if v in pair), ())} - {v} for v in range(9)]
    assert all(colours[v] <= len(near) for v, near in enumerate(neighbours))


def test_grids_and_trees_have_two_colours():
    for shape, connection in (((1, 5, 4), Conv("a", "a", (3, 1))), (7, Sparse("a", "a", ((6, 0), (2, 6), (2, 3))))):
        layer = Layer("a", shape)
        assert len(colour_masks([connection.make_layout(layer, layer)])) == 2


@st.composite
def geometries(draw):
    dims = draw(st.integers(1, 3))
    size = st.integers(1, {1: 9, 2: 6, 3: 4}[dims])
    small = st.integers(1, 3)
    axes = [
        (
            draw(size),
            draw(small),
            draw(small),
            draw(st.integers(1, 2)),
            draw(st.integers(0, 2)),
            draw(st.integers(0, 2)),
        )
        for _ in range(dims)
    ]
    left, kernel, stride, dilation, before, after = zip(*axes, strict=True)
    room = [n + b + a - d * (k - 1) - 1 for n, k, _, d, b, a in axes]
    assume(min(room) >= 0)
    right = [space // s + 1 for space, s in zip(room, stride, strict=True)]
    shapes = (draw(small), *left), (draw(small), *right)
    return *shapes, kernel, stride, tuple(zip(before, after, strict=True)), dilation


@settings(max_examples=60)
@given(geometries(), st.sampled_from([Conv, Local]), st.sampled_from(LABELS))
def test_random_windows_keep_the_laws(geometry, kind, labels):
    left, right, *numbers = geometry
    connection = kind("a", "b", *numbers)
    try:
        connection.windows(Layer("a", left), Layer("b", right))
    except GraphError as error:
        assume("every window lies in the padding" not in str(error))
        raise
    check_laws(window_graph(kind, *geometry), labels)


def test_padding_makes_the_mask_and_nothing_else_does():
    tight = layout_of(window_graph(Conv, (1, 5, 4), (1, 4, 3), 2, 1, 0, 1))
    padded = layout_of(window_graph(Conv, (1, 5, 4), (1, 5, 3), 2, 1, ((1, 0), (0, 0)), 1))
    assert tight.mask is None
    assert padded.mask is not None
    assert padded.mask.flatten().tolist().count(0.0) == 2 * 3  # the upper row of two kernel cells, at 3 positions


@pytest.mark.parametrize("samples", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("labels", [(4, 2), (8, 3), (2, 4)])
def test_few_samples_of_a_dense_layout_with_many_labels(samples, labels):
    layout, draw = DenseLayout(3, 7), torch.Generator().manual_seed(0)
    table = torch.randn(3, 7, labels[0] - 1, labels[1] - 1, generator=draw, requires_grad=True)
    q = torch.rand(samples, 3, labels[0] - 1, generator=draw, requires_grad=True)
    found, expected = layout.linear(table, q, LEFT), torch.einsum("bik,ijkl->bjl", q, table)
    torch.testing.assert_close(found, expected)
    weight = torch.randn(found.shape, generator=draw)
    grads = [torch.autograd.grad((out * weight).sum(), [table, q]) for out in (found, expected)]
    torch.testing.assert_close(*grads)


def test_shapes_of_tables_and_edges():
    conv = layout_of(window_graph(Conv, (2, 7, 10), (3, 6, 8), (2, 3), 1, 0, 1))
    local = layout_of(window_graph(Local, (2, 7, 10), (3, 6, 8), (2, 3), 1, 0, 1))
    assert conv.table_shape == (2, 3, 2, 3)
    assert conv.edge_shape == local.edge_shape == local.table_shape == (2, 3, 2, 3, 6, 8)
    assert DenseLayout(3, 4).edge_shape == (3, 4)
    assert SparseLayout(3, 4, ((0, 1), (2, 3))).edge_shape == (2,)


@pytest.mark.parametrize("kind", [Conv, Local])
def test_a_layout_follows_the_type_and_saves_nothing(kind):
    layout = layout_of(window_graph(kind, (1, 5, 4), (2, 5, 4), 3, 1, 1, 1)).to(torch.float32)
    x = torch.rand(2, 20, 1, dtype=torch.float32)
    table = torch.randn(*layout.table_shape, 1, 1, dtype=torch.float32)
    assert layout.linear(table, x, LEFT).dtype == layout.expand(table).dtype == torch.float32
    assert layout.state_dict() == {}


@pytest.mark.parametrize("kind", [Conv, Local, Dense, Sparse])
def test_edges_and_degrees_are_on_the_cpu_whatever_the_default_device(kind):
    """They are computed in float64, which not every device has."""
    numbers = {Conv: (3, 1, 1), Local: (3, 1, 1), Dense: (), Sparse: (((0, 1), (3, 2)),)}[kind]
    graph = Graph((Layer("a", (1, 4)), Layer("b", (2, 4))), (kind("a", "b", *numbers),))
    layout = layout_of(graph)
    with torch.device("meta"):
        ends, indices = edge_list(layout)
        degrees, rho = layout.degree(RIGHT), appearance(graph, {"a-b": layout})["a-b"]
    assert {x.device.type for x in (ends, indices, degrees, rho)} == {"cpu"}
    assert degrees.sum() == len(indices) == graph.edges
    assert rho.dtype == torch.float64


# A suite that no layout can fail is worth nothing: each of these breaks one law.


class NotTheAdjoint(DenseLayout):
    def scatter(self, e, side):
        return e.sum(2 if side == LEFT else 1) * (2 if side == LEFT else 1)


class WrongAxis(DenseLayout):
    def scatter(self, e, side):
        return e.sum(1 if side == LEFT else 2)


class ForgetsToMask(WindowLayout):
    def expand(self, table):
        return (
            table.reshape(*self.table_shape, *[1] * self.dims, *table.shape[-2:]) if self._is_stored(table) else table
        )


class WrongDirection(DenseLayout):
    def linear(self, table, q, side):
        return super().linear(table, q, side) if side == LEFT else super().linear(table.flip(0), q, side)


class ForeignEnergies(DenseLayout):
    def expand(self, table):
        return table + 1


class LosesGradient(SparseLayout):
    def gather(self, x, side):
        return super().gather(x, side) * 0.5 + super().gather(x.detach(), side) * 0.5


class Learns(DenseLayout):
    def __init__(self, left, right):
        super().__init__(left, right)
        self.extra = torch.nn.Parameter(torch.zeros(1))


class MiscountsEdges(SparseLayout):
    def degree(self, side):
        return super().degree(side) + side


def padded_window(kind):
    left, right = Layer("a", (1, 4)), Layer("b", (2, 4))
    return kind(left, right, Conv("a", "b", 3, 1, 1).windows(left, right), True)


BROKEN = {
    "adjoint of gather on the left": lambda: NotTheAdjoint(3, 4),
    r"scatter to the left makes \(2, 3, 2\), got \(2, 4, 2\)": lambda: WrongAxis(3, 4),
    "edges that do not exist a table of 0": lambda: padded_window(ForgetsToMask),
    "linear from the right with a stored table": lambda: WrongDirection(3, 4),
    "expand only repeats stored energies": lambda: ForeignEnergies(3, 4),
    "gradient of gather from the left": lambda: LosesGradient(3, 4, ((0, 1), (2, 3))),
    "no two edges join the same nodes": lambda: SparseLayout(3, 4, ((0, 1), (0, 1))),
    "holds no parameters": lambda: Learns(3, 4),
    "degree of the right nodes": lambda: MiscountsEdges(3, 4, ((0, 1), (2, 3))),
}


@pytest.mark.parametrize("law", BROKEN)
def test_the_suite_names_the_broken_law(law, generator):
    with pytest.raises(AssertionError, match=law):
        check_layout(BROKEN[law](), 3, 2, generator)


def test_sides_are_left_and_right():
    assert (LEFT, RIGHT) == (0, 1)
    layout = DenseLayout(2, 3)
    assert layout.gather(torch.zeros(1, 2, 1), LEFT).shape == (1, 2, 1, 1)
    assert layout.gather(torch.zeros(1, 3, 1), RIGHT).shape == (1, 1, 3, 1)
