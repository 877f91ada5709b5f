"""Curves and matrices of how well a model does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from torchlgm._utils.arrays import Array, as_tensor
from torchlgm.errors import DataError
from torchlgm.metrics import calibration_error
from torchlgm.viz.canvas import BLUE, COLOURS, FAINT, MARKERS, ORANGE, legend, names, new_figure, numbers, plain_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FEW_POINTS = 40
_MOST_COUNTED_CLASSES = 30
_IN_A_BIN, _LEAST_BINS, _MOST_BINS = 20, 3, 15  # samples on average, and how many bins that may make
_METRICS = {
    "accuracy": "accuracy (higher is better)",
    "nll": "negative log-likelihood in nats (lower is better)",
    "brier": "Brier score (lower is better)",
    "calibration_error": "calibration error (lower is better)",
}


def learning_curves(history: Sequence[Mapping[str, float]]) -> Figure:
    """Losses and accuracy by epoch.

    `history` has rows with any of the keys epoch, train_loss, valid_loss, valid_accuracy; a row without an epoch is
    numbered by its place, counted from 1.
    """
    rows = [{"epoch": place} | dict(row) for place, row in enumerate(history, start=1)]
    series = {key: _points(rows, key) for key in ("train_loss", "valid_loss", "valid_accuracy")}
    losses = {key: series[key] for key in ("train_loss", "valid_loss") if series[key]}
    accuracy = series["valid_accuracy"]
    if not losses and not accuracy:
        raise DataError("history: expected rows with train_loss, valid_loss or valid_accuracy, got none")
    panels = bool(losses) + bool(accuracy)
    figure = new_figure(5.2 * panels, 3.8)
    axes = figure.subplots(1, panels, squeeze=False)[0]
    if losses:
        _draw_losses(axes[0], losses)
    if accuracy:
        _draw_accuracy(axes[-1], accuracy)
    return figure


def beliefs_by_iteration(probs: Tensor, labels: Sequence[str], truth: Tensor | None = None) -> Figure:
    """Probabilities (T, K) of a node's labels after each of T iterations, as `torchlgm.explain.trace` gives them.

    `truth` (K,) are the exact probabilities, drawn as dashed lines.
    """
    steps = numbers("probs", probs, "(T, K)")
    shown = names("labels", labels, steps.shape[1])
    exact = None if truth is None else numbers("truth", truth, "(K)")
    if exact is not None and len(exact) != len(shown):
        raise DataError(f"truth: expected {len(shown)} probabilities, one for each label, got {len(exact)}")
    figure = new_figure(6, 4.2)
    axes = figure.subplots()
    handles = []
    for label, values in enumerate(steps.T.tolist()):
        style = _line_style(label)
        handles += axes.plot(range(1, len(steps) + 1), values, **style)
        if exact is not None:
            axes.axhline(exact[label].item(), color=style["color"], linestyle="--", linewidth=1, alpha=0.7)
    if exact is not None:
        handles += axes.plot([], [], color="0.4", linestyle="--", linewidth=1)
        shown = [*shown, "exact"]
    plain_axes(axes)
    _count_whole(axes)
    outside = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
    legend(axes, handles, shown, **outside)
    axes.set(xlabel="iteration", ylabel="probability", title="Beliefs by iteration")
    axes.set_ylim(0, None)
    return figure


def confusion_matrix(matrix: Tensor, classes: Sequence[str]) -> Figure:
    """Counts (K, K) by true class (row) and predicted class (column), coloured by their share of the row."""
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


def reliability_diagram(curves: Mapping[str, tuple[Array, Array]], bins: int | None = None) -> Figure:
    """Accuracy against confidence of the most probable class, above how often each confidence occurs.

    `curves` has probabilities (N, K) and targets (N,) for each name; the accuracy of a calibrated
    model equals its confidence, so its points lie on the diagonal. `bins=None` chooses 3 to 15 bins, with 20 samples on
    average; the ECE is `metrics.calibration_error`.
    """
    if not curves:
        raise DataError("curves: expected at least one name with probabilities (N, K) and targets (N,), got none")
    errors = {name: calibration_error(*pair, _MOST_BINS if bins is None else bins) for name, pair in curves.items()}
    if bins is None:
        bins = min(max(min(len(targets) for _, targets in curves.values()) // _IN_A_BIN, _LEAST_BINS), _MOST_BINS)
    figure = new_figure(5.5, 6.2 + 0.2 * len(curves))
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    handles = upper.plot([0, 1], [0, 1], color=FAINT, linestyle="--")
    for place, (probs, targets) in enumerate(curves.values()):
        reliability = _reliability(numbers("probs", probs, "(N, K)"), as_tensor("targets", targets).cpu(), bins)
        style = _line_style(place)
        handles += upper.plot(reliability.confidence.numpy(), reliability.accuracy.numpy(), **style)
        lower.stairs(
            reliability.share.numpy(), torch.linspace(0, 1, bins + 1).numpy(), color=style["color"], linewidth=1.6
        )
    labels = ["perfectly calibrated", *[f"{name} (ECE {error:.3f})" for name, error in errors.items()]]
    legend(figure, handles, labels, loc="outside lower center")
    for axes in (upper, lower):
        plain_axes(axes)
    upper.set(ylabel="accuracy", xlim=(0, 1.01), ylim=(0, 1.02), title="How often the most probable class is right")
    lower.set(xlabel="confidence: probability of the most probable class", ylabel="share of\nsamples", ylim=(0, None))
    return figure


def visible_share(
    rows_by_model: Mapping[str, Sequence[Mapping[str, float]]], metric: str = "accuracy", inputs: str = "inputs"
) -> Figure:
    """`metric` against the share of visible pixels, or whatever the `inputs` are, one line for each model.

    The rows are those of `metrics.by_visible_share`: "visible" and the metrics by name.
    """
    if not rows_by_model or not all(rows_by_model.values()):
        raise DataError("rows_by_model: expected at least one model, and at least one row for each, got fewer")
    figure = new_figure(6, 4.2)
    axes = figure.subplots()
    handles = []
    for place, (model, rows) in enumerate(rows_by_model.items()):
        for row in rows:
            if not {"visible", metric} <= row.keys():
                raise DataError(f"{model}: expected rows with visible and {metric}, got one with {', '.join(row)}")
        points = sorted((100 * float(row["visible"]), float(row[metric])) for row in rows)
        handles += axes.plot(*zip(*points, strict=True), **_line_style(place))
    plain_axes(axes)
    legend(axes, handles, list(rows_by_model))
    axes.set(xlabel=f"visible {inputs}", ylabel=_METRICS.get(metric, metric))
    axes.set_title(f"Prediction from part of the {inputs}")
    axes.xaxis.set_major_formatter("{x:.0f}%")
    return figure


def _points(rows: Sequence[Mapping[str, float]], key: str) -> list[tuple[float, float]]:
    return [(float(row["epoch"]), float(row[key])) for row in rows if row.get(key) is not None]


def _draw_losses(axes: Axes, losses: Mapping[str, list[tuple[float, float]]]) -> None:
    looks = {"train_loss": ("training", BLUE), "valid_loss": ("validation", ORANGE)}
    handles = []
    for key, points in losses.items():
        handles += _draw_by_epoch(axes, points, looks[key][1])
    legend(axes, handles, [looks[key][0] for key in losses])
    axes.set(title="Loss by epoch", ylabel="loss")


def _draw_accuracy(axes: Axes, points: list[tuple[float, float]]) -> None:
    _draw_by_epoch(axes, points, ORANGE)
    scored = [point for point in points if not math.isnan(point[1])]
    best = max(scored, key=lambda point: point[1], default=None)
    suffix = f" (best {best[1]:.4f}, epoch {best[0]:g})" if best else ""
    axes.set(title=f"Validation accuracy{suffix}", ylabel="accuracy")


def _draw_by_epoch(axes: Axes, points: list[tuple[float, float]], colour: str) -> list:
    marker = "o" if len(points) <= _FEW_POINTS else ""
    handles = axes.plot(*zip(*points, strict=True), color=colour, marker=marker, markersize=4)
    plain_axes(axes)
    axes.set_xlabel("epoch")
    _count_whole(axes)
    return handles


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
        colour = FAINT if count == 0 else "white" if share > 0.5 else "black"
        axes.text(column, row, f"{count:.0f}", ha="center", va="center", color=colour, fontsize=9)


class _Reliability(NamedTuple):
    """Mean confidence and accuracy of each bin that has samples; the share of samples in every bin."""

    confidence: Tensor
    accuracy: Tensor
    share: Tensor


def _reliability(probs: Tensor, targets: Tensor, bins: int) -> _Reliability:
    confidence, predicted = probs.max(1)
    place = (confidence * bins).long().clamp(max=bins - 1)
    count = place.bincount(minlength=bins)
    right = place.bincount((predicted == targets).double(), minlength=bins)
    total = place.bincount(confidence, minlength=bins)
    used = count > 0
    return _Reliability((total / count)[used], (right / count)[used], count / len(probs))


def _line_style(place: int) -> dict:
    return {
        "color": COLOURS[place % len(COLOURS)],
        "marker": MARKERS[place % len(MARKERS)],
        "linestyle": ("-", "--", ":")[place // len(COLOURS) % 3],
        "markersize": 5,
    }
