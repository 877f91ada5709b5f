"""Pictures that a phone can show: one panel each, every line with its name and last value beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from sklearn.isotonic import isotonic_regression

from holes.methods import FAMILIES, OURS
from torchlgm.viz.canvas import AMBER, BLUE, GREEN, ORANGE, PINK, new_figure, plain_axes, save

COLOURS = dict(zip((OURS, *FAMILIES), (BLUE, ORANGE, GREEN, PINK, AMBER), strict=True))
SIZE = 3.6, 2.4  # inches: two side by side on a page, one below another on a phone
HIGHEST = 1.25  # times what is known without any column
GAP = 0.085  # between two names, as a share of the height


def panel(lines: pd.DataFrame, title: str, value: str, nothing_known: float, file: Path) -> None:
    """`value` of each family over the share missing; lines leave the picture where they are worse than ignorance."""
    figure = new_figure(*SIZE)
    axes = figure.subplots()
    top = HIGHEST * nothing_known
    axes.axhline(nothing_known, color="0.5", linewidth=1, linestyle=(0, (4, 3)))
    axes.text(0, nothing_known, "class shares only", va="bottom", fontsize=8, color="0.4")
    ends = {}
    for family, colour in COLOURS.items():
        points = lines[lines["family"] == family].sort_values("share")
        if len(points):
            mine = family == OURS
            axes.plot(
                points["share"], points[value], color=colour, linewidth=3 if mine else 1.6, zorder=3 if mine else 2
            )
            ends[family] = float(points[value].iloc[-1])
    plain_axes(axes)
    shares = sorted(set(lines["share"]))
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel("% of entries missing", fontsize=9)
    axes.set(xlim=(min(shares), max(shares) or 1), ylim=(0, top), xticks=shares)
    axes.tick_params(labelsize=9)
    write_ends(axes, ends, top)
    save(figure, file)


def write_ends(axes: Axes, ends: Mapping[str, float], top: float) -> None:
    """Names and last values at the right, moved apart where they would overlap; an arrow where a line has left."""
    order = sorted(ends, key=lambda family: ends[family])
    heights = apart([min(ends[family] / top, 1 - GAP / 2) for family in order], GAP)
    for family, height in zip(order, heights, strict=True):
        gone = " ↑" if ends[family] > top else ""
        axes.annotate(
            f"{family} {ends[family]:.2f}{gone}",
            (1.02, height),
            xycoords="axes fraction",
            va="center",
            fontsize=9,
            color=COLOURS[family],
            fontweight="bold" if family == OURS else "normal",
            annotation_clip=False,
        )


def apart(heights: list[float], gap: float) -> list[float]:
    """Rising heights moved as little as needed to be `gap` apart and between 0 and 1."""
    steps = gap * np.arange(len(heights))
    return list(isotonic_regression(np.asarray(heights) - steps, y_min=0, y_max=max(0, 1 - steps[-1])) + steps)
