"""All cells in one picture: our accuracies against the paper's, and signed differences by table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.paper.cells import Cell, all_cells
from experiments.paper.report.summary import COLUMN_NAMES, NEAR, ROUNDING, Summaries, summaries
from experiments.paper.store import Store
from experiments.paper.tables import TABLES, WAYS
from torchlgm.errors import DataError
from torchlgm.viz.canvas import BLUE, FAINT, GREEN, ORANGE, new_figure, plain_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = {"LGM": (BLUE, "o"), "network": (ORANGE, "s"), "contrastive divergence": (GREEN, "D")}
SHOWN = (0.65, 0.99)  # accuracies
TICKS = (0.7, 0.8, 0.9, 0.95, 0.98)


def overview(store: Store) -> Figure:
    means = {
        cell: s for cell, s in summaries(all_cells(), store).items() if "difference" in s and not cell.paper.failed
    }
    if not means:
        raise DataError("needs results; train some tables first")
    figure = new_figure(8, 7.4)
    grid = figure.subplots(2, 2, height_ratios=[1, 1.1], sharex="row", sharey="row")
    for k, way in enumerate(WAYS):
        own = {cell: s for cell, s in means.items() if cell.way == way}
        _scatter(grid[0, k], own, COLUMN_NAMES[way])
        _strips(grid[1, k], own)
    handles = [grid[0, 0].plot([], [], ls="", color=colour, marker=marker)[0] for colour, marker in KINDS.values()]
    figure.legend(handles, list(KINDS), loc="outside lower center", ncols=len(KINDS), frameon=False)
    return figure


def _kind(cell: Cell) -> str:
    return "LGM" if cell.is_lgm else "network" if cell.is_network else "contrastive divergence"


def _scatter(axes: Axes, means: Summaries, name: str) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    axes.set(xscale="logit", yscale="logit", xlim=SHOWN, ylim=SHOWN)
    axes.set(xlabel="accuracy in the paper", ylabel=f"accuracy, {name}")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(FixedLocator(TICKS))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(lambda x, _: f"{x:g}")
    axes.plot(SHOWN, SHOWN, color=FAINT, zorder=0)
    for kind, (colour, marker) in KINDS.items():
        points = [(cell.paper.accuracy, s["mean"]) for cell, s in means.items() if _kind(cell) == kind]
        if points:
            axes.scatter(*zip(*points, strict=True), s=16, color=colour, marker=marker, alpha=0.7, linewidths=0)
    gaps = [s["difference"] for cell, s in means.items() if cell.is_lgm]
    if name == COLUMN_NAMES["ours"]:
        what = f"{sum(gap >= -ROUNDING for gap in gaps)} of {len(gaps)} LGMs at least as good"
    else:
        what = f"{sum(abs(gap) <= NEAR for gap in gaps)} of {len(gaps)} LGMs within {NEAR}"
    axes.set_title(f"{name[0].upper()}{name[1:]}: {what}", fontsize=11)
    plain_axes(axes)


def _strips(axes: Axes, means: Summaries) -> None:
    axes.axvspan(-NEAR, NEAR, color=FAINT, alpha=0.4, linewidth=0, zorder=0)
    axes.axvline(0, color=FAINT, linewidth=0.8)
    for cell, s in means.items():
        colour, marker = KINDS[_kind(cell)]
        offset = {"LGM": 0.0, "network": 0.22, "contrastive divergence": -0.22}[_kind(cell)]
        axes.scatter(
            s["difference"], cell.table.number + offset, s=14, color=colour, marker=marker, alpha=0.7, linewidths=0
        )
    axes.set_yticks([table.number for table in TABLES], [f"table {table.number}" for table in TABLES])
    axes.set(ylim=(len(TABLES) + 0.6, 0.4), xlabel="difference to the paper")
    plain_axes(axes)
    axes.grid(visible=False, axis="y")
