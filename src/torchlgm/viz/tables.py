"""Energy tables: which pairs of labels of two nodes go together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchlgm.errors import DataError
from torchlgm.viz.canvas import DIVERGING, ON_IMAGE, names, new_figure, numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST = 40
_MOST_WRITTEN = 6  # labels of a table whose entries are written out


def energy_tables(
    tables: Tensor,
    titles: Sequence[str] | None = None,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
) -> Figure:
    """Draw energies of edges as tables: positive ones (orange) keep two labels apart, negative ones (violet) draw them
    together.

    Parameters
    ----------
    tables : Tensor
        `(n, KL-1, KR-1)`, as a model stores them; they are shown with label 0 in front.
    titles : sequence of str, optional
        One for each edge.
    rows, columns : sequence of str, optional
        What the KL labels of the left node, and the KR labels of the right one, are called.

    Returns
    -------
    Figure
        Of matplotlib.
    """
    stored = numbers("tables", tables, "(n, KL-1, KR-1)")
    if len(stored) > _MOST:
        raise DataError(f"tables: expected at most {_MOST} to be readable, got {len(stored)}; choose some")
    full = torch.nn.functional.pad(stored, (1, 0, 1, 0))
    count, left, right = full.shape
    heads = [""] * count if titles is None else names("titles", titles, count)
    sides = [
        [str(label) for label in range(size)] if given is None else names(what, given, size)
        for what, given, size in (("rows", rows, left), ("columns", columns, right))
    ]
    across = min(count, math.ceil(math.sqrt(1.6 * count)))
    down = math.ceil(count / across)
    cell = 0.45 if max(left, right) <= _MOST_WRITTEN else 0.2
    size = across * (right * cell + 0.6) + 1.2, down * (left * cell + 0.7) + 0.5
    figure = new_figure(max(4.0, size[0]), max(2.0, size[1]))
    figure.set_layout_engine("constrained", wspace=0.06)
    grid = figure.subplots(down, across, squeeze=False)
    limit = full.abs().max().item() or 1.0
    colours = {"cmap": f"{DIVERGING}_r", "vmin": -limit, "vmax": limit}
    shown = None
    for place, axes in enumerate(grid.flat):
        if place >= count:
            axes.set_axis_off()
            continue
        shown = axes.imshow(full[place].numpy(), **colours)
        axes.set_title(heads[place], fontsize=10, parse_math=False)
        _name_labels(axes, *sides)
        if max(left, right) <= _MOST_WRITTEN:
            _write_energies(axes, full[place], limit)
    assert shown is not None
    figure.colorbar(shown, ax=grid, label="energy", shrink=0.8, aspect=25)
    figure.suptitle("Energies by left label (row) and right label (column)")
    return figure


def _name_labels(axes: Axes, rows: Sequence[str], columns: Sequence[str]) -> None:
    upright = max(map(len, columns)) > 3
    axes.set_xticks(range(len(columns)), columns, fontsize=8, rotation=90 if upright else 0, parse_math=False)
    axes.set_yticks(range(len(rows)), rows, fontsize=8, parse_math=False)
    axes.tick_params(length=0)
    axes.spines[:].set(color="0.7")


def _write_energies(axes: Axes, table: Tensor, limit: float) -> None:
    for row, energies in enumerate(table.tolist()):
        for column, energy in enumerate(energies):
            colour = "white" if abs(energy) > 0.6 * limit else ON_IMAGE
            axes.text(column, row, f"{energy:z.1f}", ha="center", va="center", color=colour, fontsize=8)
