from itertools import combinations, pairwise

import pytest
from matplotlib.patches import FancyBboxPatch, PathPatch

from helpers.drawings import draw, texts
from torchlgm import Conv, Dense, Graph, Layer, Local, viz, zoo

SKIPS = Graph(
    [
        Layer("inputs", (3, 8, 8), 4),
        Layer("parts", (8, 4, 4)),
        *[Layer(f"h{i}", 5) for i in range(4)],
        Layer("y", 1, 10),
    ],
    [
        Conv("inputs", "parts", 3, 2, ((1, 0), (1, 0))),
        Local("inputs", "parts", (2, 4), 2, (0, 1), name="second"),
        Dense("parts", "h0"),
        Dense("h1", "h0"),
        Dense("h1", "h2"),
        Dense("h2", "h3"),
        Dense("h3", "y"),
        Dense("y", "inputs"),
        Dense("h0", "y"),
        Dense("h1", "h3"),
    ],
)
LATERAL = Graph(
    [Layer("v", (1, 4, 4), 3), Layer("h", 9), Layer("y", 1)],
    [
        Dense("v", "h"),
        Dense("h", "y"),
        Conv("v", "v", (1, 3), name="across"),
        Conv("v", "v", (3, 1), name="down"),
        Dense("h", "h"),
        Dense("v", "y"),
    ],
)
STAR = Graph([Layer(name, 1) for name in "abc"], [Dense("a", "c"), Dense("b", "c")])
GRAPHS = {
    "local": zoo.windows("local"),
    "dense": zoo.dense(),
    "conditional_rbm": zoo.conditional_rbm(4, 3, 2),
    "deep_boltzmann_machine": zoo.deep_boltzmann_machine(784, [500, 400, 300, 200, 100, 50]),
    "grid": zoo.grid(3, 2),
    "skips": SKIPS,
    "star": STAR,
    "lateral": LATERAL,
    "single": Graph([Layer("a", 1)], []),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_every_layer_and_connection_is_drawn(name):
    graph = GRAPHS[name]
    figure = viz.draw_graph(graph)
    (axes,) = figure.axes
    shown = texts(axes)
    for layer in graph.layers:
        assert shown.count(layer.name) == 1
        assert f"{layer.nodes:,} node{'' if layer.nodes == 1 else 's'}" in shown
        assert f"{layer.labels} labels" in shown
    boxes = [patch for patch in axes.patches if isinstance(patch, FancyBboxPatch)]
    assert len(boxes) == len(graph.layers)
    for one, other in pairwise(boxes):
        assert one.get_x() + one.get_width() + 0.2 < other.get_x()
    arcs = [patch for patch in axes.patches if isinstance(patch, PathPatch)]
    assert len(arcs) + len(axes.lines) == len(graph.connections)
    assert any(f"{graph.edges:,} edge" in text and f"{graph.parameters:,} parameter" in text for text in shown)


@pytest.mark.parametrize("name", GRAPHS)
def test_texts_of_a_graph_are_whole_and_apart(name):
    figure = viz.draw_graph(GRAPHS[name])
    renderer = draw(figure)
    (axes,) = figure.axes
    extents = [text.get_window_extent(renderer).padded(-1.5) for text in axes.texts]
    page = figure.bbox
    for extent in extents:
        assert page.x0 <= extent.x0
        assert extent.x1 <= page.x1
        assert page.y0 <= extent.y0
        assert extent.y1 <= page.y1
    assert not any(one.overlaps(other) for one, other in combinations(extents, 2))


def test_connections_say_their_kind_and_geometry():
    shown = texts(viz.draw_graph(zoo.windows("local")))
    assert [shown.count(kind) for kind in ("Local", "Dense", "Conv")] == [2, 2, 0]
    assert "5x5, stride 2\n24,576 edges" in shown
    assert "6x13x13" in shown
    assert "10 labels" in shown
    shown = texts(viz.draw_graph(SKIPS))
    assert any(text.startswith("second: Local, 2x4, stride 2, ") for text in shown)
    assert any("dilation 2" in text for text in texts(viz.draw_graph(dilated())))


def dilated():
    return Graph([Layer("a", (1, 7)), Layer("b", (1, 3))], [Conv("a", "b", 3, dilation=2)])


def test_skips_and_parallel_connections_are_arcs():
    (axes,) = viz.draw_graph(zoo.conditional_rbm(4, 3, 2)).axes
    (arc,) = [patch for patch in axes.patches if isinstance(patch, PathPatch)]
    boxes = [patch for patch in axes.patches if isinstance(patch, FancyBboxPatch)]
    assert arc.get_path().vertices[:, 1].max() > max(box.get_y() + box.get_height() for box in boxes)
    feet = arc.get_path().vertices[[0, -1], 0]
    for foot, box in zip(feet, (boxes[0], boxes[2]), strict=True):
        assert box.get_x() < foot < box.get_x() + box.get_width()
    (axes,) = viz.draw_graph(SKIPS).axes
    assert len([patch for patch in axes.patches if isinstance(patch, PathPatch)]) == 4
    assert len(axes.lines) == 6
