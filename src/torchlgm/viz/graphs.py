"""The picture of a graph: layers as boxes in declared order, connections as lines and arcs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from torchlgm.errors import DataError
from torchlgm.spec import Connection, Graph
from torchlgm.viz.canvas import GREY, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# All lengths are in inches, and so is the coordinate system of the axes.
_MARGIN = 0.1
_LINE = 0.19  # height of a line of text
_FONT = 10
_PAD = 0.14  # between text and what surrounds it
_LEVEL = 0.42  # between arcs
_ROUND = 0.18
_LOOP = 0.16  # between loops, and half the width of the innermost


class _Box(NamedTuple):
    """A layer's place; the boxes stand on either side of the axis y = 0. `loops` say what connects it with itself."""

    lines: list[str]
    loops: list[str]
    left: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def centre(self) -> float:
        return self.left + self.width / 2

    @property
    def bottom(self) -> float:
        """Of the loops and what is written below them."""
        return -self.height / 2 - len(self.loops) * (_LOOP + _LINE) - (_PAD if self.loops else 0)


class _Link(NamedTuple):
    """A connection between the boxes `start` < `end`, and its caption."""

    start: int
    end: int
    title: str
    details: list[str]


class _Arc(NamedTuple):
    link: _Link
    level: int


def draw_graph(graph: Graph) -> Figure:
    """Draw layers as boxes from left to right, joined by lines between neighbours and by arcs above for all others.

    Connections of a layer with itself are loops below its box.

    Parameters
    ----------
    graph : Graph
        Its layers and connections.

    Returns
    -------
    Figure
        Of matplotlib.
    """
    if not isinstance(graph, Graph):
        raise DataError(f"expected a Graph, such as model.graph, got an object of type {type(graph).__name__}")
    figure = new_figure(1, 1)
    figure.set_layout_engine("none")
    links = [_describe(graph, connection) for connection in graph.connections if not connection.is_lateral]
    straight = {link.start: link for link in reversed(links) if link.end == link.start + 1}
    boxes = _place_boxes(graph, straight)
    arcs = _stack([link for link in links if straight.get(link.start) is not link], boxes)
    axes = _plane(figure, _title(graph), boxes, arcs)
    for box in boxes:
        _draw_box(axes, box)
        _draw_loops(axes, box)
    for link in straight.values():
        _draw_line(axes, link, boxes)
    for arc in arcs:
        _draw_arc(axes, arc, arcs, boxes)
    return figure


def _title(graph: Graph) -> str:
    counts = {"layer": len(graph.layers), "node": graph.nodes, "edge": graph.edges, "parameter": graph.parameters}
    return ", ".join(_count(number, noun) for noun, number in counts.items())


def _plane(figure: Figure, title: str, boxes: list[_Box], arcs: list[_Arc]) -> Axes:
    """Axes in inches that fill the figure, which gets the size that boxes, arcs and the title need."""
    middle = (boxes[0].left + boxes[-1].right) / 2
    spans = [(boxes[0].left, boxes[-1].right), _around(middle, _text_width([title], _FONT + 2))]
    spans += [_span(arc.link, boxes) for arc in arcs]
    left, right = min(start for start, _ in spans) - _MARGIN, max(end for _, end in spans) + _MARGIN
    bottom = min(box.bottom for box in boxes) - _MARGIN
    top = max([_half_height(boxes), *[_height(arc, boxes) + 1.5 * _LINE for arc in arcs]])
    roof = top + 2 * _LINE + _MARGIN
    figure.set_size_inches(right - left, roof - bottom)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(left, right), ylim=(bottom, roof))
    axes.set_axis_off()
    axes.text(middle, roof - _MARGIN - _LINE / 2, title, ha="center", va="center", fontsize=_FONT + 2)
    return axes


def _half_height(boxes: list[_Box]) -> float:
    return max(box.height for box in boxes) / 2


def _height(arc: _Arc, boxes: list[_Box]) -> float:
    return _half_height(boxes) + _LEVEL * (arc.level + 1) - 0.1


def _describe(graph: Graph, connection: Connection) -> _Link:
    ends = graph.ends(connection)
    start, end = sorted(graph.layers.index(layer) for layer in ends)
    kind = type(connection).__name__
    edges, caption = _count(connection.count_edges(*ends), "edge"), connection.caption(*ends)
    details = [caption, edges] if caption else [edges]
    own_name = connection.name != f"{connection.left}-{connection.right}"
    return _Link(start, end, f"{connection.name}: {kind}" if own_name else kind, details)


def _place_boxes(graph: Graph, straight: dict[int, _Link]) -> list[_Box]:
    boxes, left = [], 0.0
    for place, layer in enumerate(graph.layers):
        own = [_describe(graph, c) for c in graph.connections if c.left == c.right == layer.name]
        loops = [_arc_label(link) for link in own]
        lines = [layer.name, _count(layer.nodes, "node"), _count(layer.labels, "label")]
        if len(layer.sizes) > 1:
            lines.insert(1, "x".join(map(str, layer.sizes)))
        width = max(_text_width(lines, _FONT), *[_text_width([loop], _FONT - 1) for loop in loops], 0) + 2 * _PAD
        height = 4 * _LINE + 2 * _PAD + 0.2 * math.log10(layer.nodes)
        boxes.append(_Box(lines, loops, left, width, height))
        link = straight.get(place)
        left += width + (_text_width([link.title, *link.details], _FONT - 1) + 2 * _PAD if link else 4 * _PAD)
    return boxes


def _stack(links: list[_Link], boxes: list[_Box]) -> list[_Arc]:
    """Each link at the lowest level where it meets no other, shorter ones first."""
    arcs: list[_Arc] = []
    for link in sorted(links, key=lambda link: link.end - link.start):
        taken = {arc.level for arc in arcs if _overlap(_span(arc.link, boxes), _span(link, boxes))}
        arcs.append(_Arc(link, next(level for level in range(len(links)) if level not in taken)))
    return arcs


def _overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _span(link: _Link, boxes: list[_Box]) -> tuple[float, float]:
    """The interval of x that an arc and its label cover."""
    start, end = boxes[link.start].centre, boxes[link.end].centre
    label = _around((start + end) / 2, _text_width([_arc_label(link)], _FONT - 1))
    return min(start, label[0]), max(end, label[1])


def _around(centre: float, width: float) -> tuple[float, float]:
    return centre - width / 2, centre + width / 2


def _arc_label(link: _Link) -> str:
    return ", ".join([link.title, *link.details])


def _draw_box(axes: Axes, box: _Box) -> None:
    from matplotlib.patches import FancyBboxPatch

    corner = 0.06
    place = (box.left + corner, -box.height / 2 + corner)
    style = f"round,pad={corner}"
    size = (box.width - 2 * corner, box.height - 2 * corner)
    axes.add_patch(FancyBboxPatch(place, *size, boxstyle=style, facecolor=(0.5, 0.5, 0.5, 0.12), edgecolor=GREY))
    for number, line in enumerate(box.lines):
        height = _LINE * ((len(box.lines) - 1) / 2 - number)
        weight = "bold" if number == 0 else "normal"
        axes.text(box.centre, height, line, ha="center", va="center", fontsize=_FONT, fontweight=weight)


def _draw_loops(axes: Axes, box: _Box) -> None:
    for number, caption in enumerate(box.loops, 1):
        half, top = number * _LOOP, -box.height / 2
        _draw_round(axes, (box.centre - half, top), (box.centre + half, top), top - half)
        height = top - len(box.loops) * _LOOP - _PAD - (number - 0.5) * _LINE
        axes.text(box.centre, height, caption, ha="center", va="center", fontsize=_FONT - 1)


def _draw_line(axes: Axes, link: _Link, boxes: list[_Box]) -> None:
    start, end = boxes[link.start].right, boxes[link.end].left
    axes.plot([start, end], [0, 0], color=GREY, linewidth=1.8, solid_capstyle="butt")
    style = {"ha": "center", "fontsize": _FONT - 1}
    axes.text((start + end) / 2, 0.06, link.title, va="bottom", **style)
    axes.text((start + end) / 2, -0.06, "\n".join(link.details), va="top", **style)


def _draw_arc(axes: Axes, arc: _Arc, arcs: list[_Arc], boxes: list[_Box]) -> None:
    link = arc.link
    x0, x1 = _foot(arc, link.start, arcs, boxes), _foot(arc, link.end, arcs, boxes)
    y0, y1 = boxes[link.start].height / 2, boxes[link.end].height / 2
    top = _height(arc, boxes)
    _draw_round(axes, (x0, y0), (x1, y1), top)
    style = {"ha": "center", "va": "bottom", "fontsize": _FONT - 1}
    axes.text((x0 + x1) / 2, top + 0.05, _arc_label(link), **style)


def _draw_round(axes: Axes, start: tuple[float, float], end: tuple[float, float], level: float) -> None:
    """From `start` up or down to a level, across with round corners, and to `end`."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    (x0, y0), (x1, y1) = start, end
    across = min(_ROUND, (x1 - x0) / 2)
    along = min(_ROUND, abs(level - y0)) * (1 if level > y0 else -1)
    corners = [(x0, y0), (x0, level - along), (x0, level), (x0 + across, level)]
    corners += [(x1 - across, level), (x1, level), (x1, level - along), (x1, y1)]
    codes = [Path.MOVETO, Path.LINETO, Path.CURVE3, Path.CURVE3, Path.LINETO, Path.CURVE3, Path.CURVE3, Path.LINETO]
    axes.add_patch(PathPatch(Path(corners, codes), facecolor="none", edgecolor=GREY, linewidth=1.8))


def _foot(arc: _Arc, place: int, arcs: list[_Arc], boxes: list[_Box]) -> float:
    """Where on the box the arc ends: arcs from the left before those to the right, so that they do not cross."""
    from_left = sorted((a for a in arcs if a.link.end == place), key=lambda a: a.level)
    to_right = sorted((a for a in arcs if a.link.start == place), key=lambda a: -a.level)
    feet = from_left + to_right
    box = boxes[place]
    return box.left + box.width * (feet.index(arc) + 1) / (len(feet) + 1)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _text_width(lines: Sequence[str], size: float) -> float:
    return max(_line_width(line, size) for line in lines)


@cache
def _line_width(line: str, size: float) -> float:
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    return TextPath((0, 0), line, size=size, prop=FontProperties(weight="bold")).get_extents().width / 72
