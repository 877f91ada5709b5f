"""A network of named variables, and what is believed about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from torchlgm._utils.validate import is_int_at_least
from torchlgm.errors import DataError
from torchlgm.viz.canvas import BLUE, FAINT, ORANGE, new_figure, numbers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROUNDS = 8  # of sorting each level by the places of neighbours


def draw_network(network: Any, beliefs: Mapping[Any, Tensor] | None = None, row: int = 0) -> Figure:
    """Draw the arrows from parents to children of a Bayesian network, with the roots on top.

    Parameters
    ----------
    network : Network
        A Bayesian network.
    beliefs : mapping, optional
        Probabilities by variable, such as `network.posteriors(...)` gives. Each variable then shows its most probable
        state and a bar as long as that is probable; what is certain is orange.
    row : int
        Which row of the beliefs to show.

    Returns
    -------
    Figure
        Of matplotlib.
    """
    if not getattr(network, "is_bayesian", False):
        raise DataError("expected a Bayesian network, whose factors are conditional tables of one variable each")
    if beliefs is not None and not isinstance(beliefs, Mapping):
        raise DataError(f"beliefs={beliefs!r}; expected what network.posteriors(...) gives")
    beliefs = beliefs and {name: numbers(f"beliefs about {name!r}", p, "(rows, states)") for name, p in beliefs.items()}
    rows = min([len(probs) for probs in beliefs.values()], default=1) if beliefs else 1
    if not is_int_at_least(row, 0) or row >= rows:
        raise DataError(f"row={row!r} of {rows}; expected a whole number from 0 to {rows - 1}")
    names = list(network.variables)
    parents = {c: [v for v in scope if v != c] for (scope, _), c in zip(network.factors, network.children, strict=True)}
    places = _places(parents)
    levels = 1 + max(-y for _, y in places.values())
    widest = max(sum(y == -level for _, y in places.values()) for level in range(levels))
    figure = new_figure(1.25 * widest + 0.4, 0.95 * levels + 0.2)
    axes = figure.add_subplot()
    axes.set_axis_off()
    for child, above in parents.items():
        for v in above:
            (x, y), (u, w) = places[v], places[child]
            arrow = {"arrowstyle": "-|>", "color": FAINT, "linewidth": 0.8, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", (u, w + 0.3), (x, y - 0.3), arrowprops=arrow, zorder=1)
    for v, (x, y) in places.items():
        axes.add_patch(_box(x - 0.46, y - 0.3, 0.92, 0.6, facecolor="white", edgecolor=FAINT))
        axes.text(x, y + 0.1, _short(str(names[v])), ha="center", va="center", fontsize=7, zorder=4, parse_math=False)
        if beliefs is not None and names[v] in beliefs:
            probs = beliefs[names[v]][row]
            most = int(probs.argmax())
            share, state = float(probs[most]), network.variables[names[v]][most]
            colour = ORANGE if share > 1 - 1e-9 else BLUE
            axes.add_patch(_box(x - 0.46, y - 0.3, 0.92 * share, 0.26, facecolor=colour, alpha=0.35, edgecolor="none"))
            text = f"{_short(str(state))} {100 * share:.0f} %"
            axes.text(x, y - 0.17, text, ha="center", va="center", fontsize=6.5, zorder=4, parse_math=False)
    axes.set_xlim(min(x for x, _ in places.values()) - 0.55, max(x for x, _ in places.values()) + 0.55)
    axes.set_ylim(-levels + 0.6, 0.4)
    return figure


def _box(x: float, y: float, width: float, height: float, **style: Any) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), width, height, linewidth=0.8, zorder=2 if "alpha" not in style else 3, **style)


def _short(name: str) -> str:
    return name if len(name) <= 15 else name[:14] + "…"


def _places(parents: Mapping[int, Sequence[int]]) -> dict[int, tuple[float, int]]:
    """Each variable one level below its lowest parent, and near its neighbours."""
    level: dict[int, int] = {}
    while len(level) < len(parents):
        for v, above in parents.items():
            if v not in level and all(u in level for u in above):
                level[v] = 1 + max((level[u] for u in above), default=-1)
    near: dict[int, list[int]] = {v: list(above) for v, above in parents.items()}
    for v, above in parents.items():
        for u in above:
            near[u].append(v)
    rows = [[v for v in level if level[v] == number] for number in range(max(level.values()) + 1)]
    place = {v: i - (len(row) - 1) / 2 for row in rows for i, v in enumerate(row)}
    for _ in range(ROUNDS):
        for row in rows:
            row.sort(key=lambda v: sum(place[u] for u in near[v]) / len(near[v]) if near[v] else place[v])
            place |= {v: i - (len(row) - 1) / 2 for i, v in enumerate(row)}
    return {v: (place[v], -level[v]) for v in level}
