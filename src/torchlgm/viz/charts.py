"""Curves and matrices of how well a model does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchlgm._utils.validate import is_number
from torchlgm.errors import DataError
from torchlgm.viz.canvas import (
    FAINT,
    LGM,
    ON_IMAGE,
    label_ends,
    line_style,
    names,
    new_figure,
    numbers,
    plain_axes,
    require_mapping,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_COUNTED_CLASSES = 30
_HISTORY = {
    "train_loss": "training objective",
    "valid_loss": "validation loss",
    "valid_accuracy": "validation accuracy",
}
_METRICS = {
    "accuracy": "accuracy (higher is better)",
    "nll": "negative log-likelihood in nats (lower is better)",
    "brier": "Brier score (lower is better)",
    "calibration_error": "calibration error (lower is better)",
}


def learning_curves(history: Sequence[Mapping[str, float]]) -> Figure:
    """Draw what was measured after each epoch, one quantity below the other; dots mark the best epoch.

    The training objective may have terms that the validation loss does not have, so they never share an axis. The best
    epoch has the lowest validation loss, as in `learn.fit`.

    Parameters
    ----------
    history : sequence of mapping
        Rows with any of the keys epoch, train_loss, valid_loss and valid_accuracy; rows without an epoch are numbered
        from 1.

    Returns
    -------
    Figure
        Of matplotlib.
    """
    if not isinstance(history, Sequence) or not all(isinstance(row, Mapping) for row in history):
        raise DataError("history: expected a list of mappings, such as the history of what learn.fit returns")
    rows = [{"epoch": place} | dict(row) for place, row in enumerate(history, start=1)]
    series = {key: points for key in _HISTORY if (points := _points(rows, key))}
    if not series:
        raise DataError("history: expected rows with train_loss, valid_loss or valid_accuracy, got none")
    finite = {key: [point for point in points if math.isfinite(point[1])] for key, points in series.items()}
    by_loss = min(finite.get("valid_loss", ()), key=lambda point: point[1], default=None)
    by_accuracy = max(finite.get("valid_accuracy", ()), key=lambda point: point[1], default=None)
    best = by_loss or by_accuracy
    figure = new_figure(5.5, 1.6 * len(series) + 0.6)
    panels = figure.subplots(len(series), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (key, points) in zip(panels, series.items(), strict=True):
        training = key == "train_loss"
        axes.plot(*zip(*points, strict=True), color=LGM, linestyle="--" if training else "-")
        plain_axes(axes)
        axes.set_ylabel(_HISTORY[key].replace(" ", "\n"))
        if best and (height := dict(points).get(best[0])) is not None and not training:
            axes.plot(best[0], height, "o", color=LGM, markersize=8)
            axes.annotate(f"{height:.3f}", (best[0], height), (0, 9), textcoords="offset points", ha="center")
            axes.margins(y=0.25)
    _count_whole(panels[-1])
    panels[-1].set_xlabel("epoch")
    panels[0].set_title(f"Best after epoch {best[0]:g} of {rows[-1]['epoch']:g}" if best else "By epoch")
    return figure


def beliefs_by_iteration(probs: Tensor, labels: Sequence[str], truth: Tensor | None = None) -> Figure:
    """Draw the probabilities of a node's labels after each iteration of inference.

    Parameters
    ----------
    probs : Tensor
        `(T, K)`, as `torchlgm.explain.trace` gives them.
    labels : sequence of str
        What the labels are called.
    truth : Tensor, optional
        The exact probabilities `(K,)`, drawn as dashed lines.

    Returns
    -------
    Figure
        Of matplotlib.
    """
    steps = numbers("probs", probs, "(T, K)")
    shown = names("labels", labels, steps.shape[1])
    exact = None if truth is None else numbers("truth", truth, "(K)")
    if exact is not None and len(exact) != len(shown):
        raise DataError(f"truth: expected {len(shown)} probabilities, one for each label, got {len(exact)}")
    figure = new_figure(5.5, 4)
    axes = figure.subplots()
    for label, values in enumerate(steps.T.tolist()):
        style = line_style(label)
        axes.plot(range(1, len(steps) + 1), values, **style)
        if exact is not None:
            axes.axhline(exact[label].item(), color=style["color"], linestyle="--", linewidth=1, alpha=0.7)
    plain_axes(axes)
    _count_whole(axes)
    axes.set(xlabel="iteration", ylabel="probability")
    axes.set_title("Beliefs by iteration" + ("; dashed: exact" if exact is not None else ""))
    axes.set_ylim(0, None)
    colours = [line_style(label)["color"] for label in range(len(shown))]
    label_ends(axes, [(len(steps), height) for height in steps[-1].tolist()], shown, colours)
    return figure


def confusion_matrix(matrix: Tensor, classes: Sequence[str]) -> Figure:
    """Draw counts by true and predicted class, coloured by their share of the row.

    Parameters
    ----------
    matrix : Tensor
        Counts `(K, K)`; rows are true classes, columns are predicted ones.
    classes : sequence of str
        What the classes are called.

    Returns
    -------
    Figure
        Of matplotlib.
    """
    counts = numbers("matrix", matrix, "(K, K)")
    size = len(counts)
    if counts.shape != (size, size) or (counts < 0).any():
        raise DataError(f"matrix: expected counts (K, K), none negative, got shape {tuple(counts.shape)}")
    labels = names("classes", classes, size)
    shares = counts / counts.sum(1, keepdim=True).clamp(min=1)
    counted = size <= _MOST_COUNTED_CLASSES
    side = max(2.0, size * max(0.45, 0.1 * len(f"{counts.max():.0f}") + 0.08)) if counted else 9.0
    figure = new_figure(side + 2.2, side + 1.4)
    axes = figure.subplots()
    picture = axes.imshow(shares.numpy(), cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(picture, ax=axes, label="share of the true class", shrink=0.8, aspect=25)
    _name_cells(axes, labels, side / size)
    if counted:
        _write_counts(axes, counts, shares)
    total, right = counts.sum().item(), counts.trace().item()
    axes.set_title(f"{right:,.0f} of {total:,.0f} samples right" + (f" ({right / total:.1%})" if total else ""))
    return figure


def visible_share(
    rows_by_model: Mapping[str, Sequence[Mapping[str, float]]],
    metric: str = "accuracy",
    inputs: str = "inputs",
    chance: float | None = None,
) -> Figure:
    """Draw a metric against the share of visible inputs, one line for each model.

    Parameters
    ----------
    rows_by_model : mapping
        By name, the rows of `metrics.by_visible_share`: "visible" and the metrics. If a row has the standard deviation
        of a metric, as in "accuracy_std", it is drawn as a band.
    metric : {"accuracy", "nll", "brier", "calibration_error"}
        What to draw.
    inputs : str
        What the inputs are called, such as "pixels".
    chance : float, optional
        The value of a model that sees nothing, drawn as a line.

    Returns
    -------
    Figure
        Of matplotlib.
    """
    require_mapping("rows_by_model", rows_by_model, "names to rows of metrics.by_visible_share")
    if not all(
        isinstance(rows, Sequence) and all(isinstance(r, Mapping) for r in rows) for rows in rows_by_model.values()
    ):
        raise DataError("rows_by_model: expected for each model a list of rows, as metrics.by_visible_share gives it")
    if not (isinstance(metric, str) and (chance is None or is_number(chance))):
        raise DataError(f"metric={metric!r}, chance={chance!r}; expected the name of a metric, and a number or None")
    if not rows_by_model or not all(rows_by_model.values()):
        raise DataError("rows_by_model: expected at least one model, and at least one row for each, got fewer")
    figure = new_figure(5.5, 4)
    axes = figure.subplots()
    ends, halves = [], []
    for place, (model, rows) in enumerate(rows_by_model.items()):
        for row in rows:
            if not {"visible", metric} <= row.keys():
                raise DataError(f"{model}: expected rows with visible and {metric}, got one with {', '.join(row)}")
        ordered = sorted(rows, key=lambda row: float(row["visible"]))
        x, y = [100 * float(row["visible"]) for row in ordered], [float(row[metric]) for row in ordered]
        style = line_style(place)
        axes.plot(x, y, **style)
        if all(f"{metric}_std" in row for row in ordered):
            spread = [float(row[f"{metric}_std"]) for row in ordered]
            low, high = ([v + sign * d for v, d in zip(y, spread, strict=True)] for sign in (-1, 1))
            axes.fill_between(x, low, high, color=style["color"], alpha=0.18, linewidth=0)
        ends.append((x[0], y[0]))
        halves.append((model, min(zip(x, y, strict=True), key=lambda point: abs(point[0] - 50))))
    colours = [line_style(place)["color"] for place in range(len(ends))]
    labels = list(rows_by_model)
    if chance is not None:
        axes.axhline(chance, color=FAINT, linestyle=":")
        ends, labels, colours = [*ends, (min(x for x, _ in ends), chance)], [*labels, "chance"], [*colours, FAINT]
    plain_axes(axes)
    axes.invert_xaxis()  # the less is seen, the further right, where lines are far apart and have their names
    axes.set(xlabel=f"visible {inputs}", ylabel=_METRICS.get(metric, metric))
    share = halves[0][1][0]
    figures = ", ".join(f"{name} {_in_words(metric, y)}" for name, (x, y) in halves[:2] if x == share)
    axes.set_title(f"With {share:.0f}% of the {inputs}: {figures}", fontsize=11, parse_math=False)
    axes.xaxis.set_major_formatter("{x:.0f}%")
    label_ends(axes, ends, labels, colours)
    return figure


def _in_words(metric: str, value: float) -> str:
    return f"{value:.0%}" if metric == "accuracy" else f"{value:.2f}"


def _points(rows: Sequence[Mapping[str, float]], key: str) -> list[tuple[float, float]]:
    return [(float(row["epoch"]), float(row[key])) for row in rows if row.get(key) is not None]


def _count_whole(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))


def _name_cells(axes: Axes, labels: Sequence[str], cell: float) -> None:
    """Class names on both sides, cells being `cell` inches wide; every n-th name where there are many."""
    shown = range(0, len(labels), math.ceil(len(labels) / _MOST_COUNTED_CLASSES))
    ticks = [labels[i] for i in shown]
    upright = 0.1 * max(map(len, ticks)) > cell * shown.step
    axes.set_xticks(shown, ticks, rotation=90 if upright else 0, parse_math=False)
    axes.set_yticks(shown, ticks, parse_math=False)
    axes.set(xlabel="predicted class", ylabel="true class")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _write_counts(axes: Axes, counts: Tensor, shares: Tensor) -> None:
    for row, column in torch.cartesian_prod(torch.arange(len(counts)), torch.arange(len(counts))).tolist():
        count, share = counts[row, column].item(), shares[row, column].item()
        colour = FAINT if count == 0 else "white" if share > 0.5 else ON_IMAGE
        axes.text(column, row, f"{count:.0f}", ha="center", va="center", color=colour, fontsize=9)
