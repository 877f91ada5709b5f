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
from torchlgm.viz.canvas import (
    FAINT,
    LGM,
    MARKERS,
    MODELS,
    ON_IMAGE,
    label_ends,
    legend,
    names,
    new_figure,
    numbers,
    plain_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_COUNTED_CLASSES = 30
_IN_A_BIN, _LEAST_BINS, _MOST_BINS = 25, 3, 10  # samples, and how many bins that may make
_FEW = 10  # samples of a bin that say little
_QUANTILE = 1.645  # of the normal distribution, for 90 % in the middle
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
    """What was measured after each epoch, one quantity below the other; dots mark the best epoch.

    `history` has rows with any of the keys epoch, train_loss, valid_loss, valid_accuracy; a row without an epoch is
    numbered by its place, counted from 1. The training objective may have terms that the validation loss has not, so
    they never share an axis. The best epoch has the lowest validation loss, as in `learn.fit`.
    """
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
    """Probabilities (T, K) of a node's labels after each of T iterations, as `torchlgm.explain.trace` gives them.

    `truth` (K,) are the exact probabilities, drawn as dashed lines.
    """
    steps = numbers("probs", probs, "(T, K)")
    shown = names("labels", labels, steps.shape[1])
    exact = None if truth is None else numbers("truth", truth, "(K)")
    if exact is not None and len(exact) != len(shown):
        raise DataError(f"truth: expected {len(shown)} probabilities, one for each label, got {len(exact)}")
    figure = new_figure(5.5, 4)
    axes = figure.subplots()
    for label, values in enumerate(steps.T.tolist()):
        style = _line_style(label)
        axes.plot(range(1, len(steps) + 1), values, **style)
        if exact is not None:
            axes.axhline(exact[label].item(), color=style["color"], linestyle="--", linewidth=1, alpha=0.7)
    plain_axes(axes)
    _count_whole(axes)
    axes.set(xlabel="iteration", ylabel="probability")
    axes.set_title("Beliefs by iteration" + ("; dashed: exact" if exact is not None else ""))
    axes.set_ylim(0, None)
    colours = [_line_style(label)["color"] for label in range(len(shown))]
    label_ends(axes, [(len(steps), height) for height in steps[-1].tolist()], shown, colours)
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
    """Accuracy against confidence of the most probable class, with what chance alone explains.

    `curves` has probabilities (N, K) and targets (N,) for each name; the accuracy of a calibrated model equals its
    confidence, so its points lie on the diagonal. Bins hold equally many samples; `bins=None` makes 3 to 10 of them, of
    25 samples or more if that can be. Bands are 90 % intervals of the accuracy (Wilson's), and hollow points have
    fewer than 10 samples. The ECE is `metrics.calibration_error`.
    """
    if not curves:
        raise DataError("curves: expected at least one name with probabilities (N, K) and targets (N,), got none")
    errors = {name: calibration_error(*pair) for name, pair in curves.items()}
    figure = new_figure(5.5, 5.2 + 0.25 * len(curves))
    axes = figure.subplots()
    handles = axes.plot([0, 1], [0, 1], color=FAINT, linestyle="--")
    verdicts = []
    for place, (name, (given, targets)) in enumerate(curves.items()):
        confidence, predicted = numbers("probs", given, "(N, K)").max(1)
        right = (predicted == as_tensor("targets", targets).cpu()).double()
        points = _reliability(confidence, right, bins)
        style = _line_style(place)
        x = points.confidence.tolist()
        axes.fill_between(x, points.low.tolist(), points.high.tolist(), color=style["color"], alpha=0.18, linewidth=0)
        handles += axes.plot(x, points.accuracy.tolist(), **style)
        few = points.samples < _FEW
        hollow = {**style, "linestyle": "", "markerfacecolor": "white"}
        axes.plot(points.confidence[few].tolist(), points.accuracy[few].tolist(), **hollow)
        verdicts.append(_verdict(name, confidence, right))
    labels = ["perfectly calibrated", *[f"{name} (ECE {error:.3f})" for name, error in errors.items()]]
    legend(figure, handles, labels, loc="outside lower center")
    plain_axes(axes)
    axes.set(xlabel="how sure it is of its answer", ylabel="how often it is right", xlim=(0, 1.02), ylim=(0, 1.02))
    axes.set_aspect("equal")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_title("\n".join(verdicts[:2]), fontsize=10, parse_math=False)
    return figure


def _verdict(name: str, confidence: Tensor, right: Tensor) -> str:
    """One line: more or less sure than right, beyond what chance explains of so many samples."""
    sure, often = confidence.mean().item(), right.mean().item()
    spread = _QUANTILE * math.sqrt((confidence * (1 - confidence)).sum().item()) / len(confidence)
    if abs(sure - often) <= spread:
        return f"{name}: {sure:.0%} sure on average, right in {often:.0%}"
    return f"{name}: too {'sure' if sure > often else 'modest'}, {sure:.0%} sure but right in {often:.0%}"


def visible_share(
    rows_by_model: Mapping[str, Sequence[Mapping[str, float]]],
    metric: str = "accuracy",
    inputs: str = "inputs",
    chance: float | None = None,
) -> Figure:
    """`metric` against the share of visible pixels, or whatever the `inputs` are, one line for each model.

    The rows are those of `metrics.by_visible_share`: "visible" and the metrics by name; where they have a metric's
    standard deviation, as in "accuracy_std", it is drawn as a band. `chance` is what one gets who sees nothing.
    """
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
        style = _line_style(place)
        axes.plot(x, y, **style)
        if all(f"{metric}_std" in row for row in ordered):
            spread = [float(row[f"{metric}_std"]) for row in ordered]
            low, high = ([v + sign * d for v, d in zip(y, spread, strict=True)] for sign in (-1, 1))
            axes.fill_between(x, low, high, color=style["color"], alpha=0.18, linewidth=0)
        ends.append((x[0], y[0]))
        halves.append((model, min(zip(x, y, strict=True), key=lambda point: abs(point[0] - 50))))
    colours = [_line_style(place)["color"] for place in range(len(ends))]
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


class _Reliability(NamedTuple):
    """Mean confidence and accuracy of each bin, the interval of the latter, and how many samples it has."""

    confidence: Tensor
    accuracy: Tensor
    low: Tensor
    high: Tensor
    samples: Tensor


def _reliability(confidence: Tensor, right: Tensor, bins: int | None) -> _Reliability:
    """Bins of equally many samples, but equal confidences are never parted."""
    size = len(confidence)
    wanted = min(bins or max(_LEAST_BINS, min(size // _IN_A_BIN, _MOST_BINS)), size)
    ordered = confidence.sort().values
    starts = ordered[[part * size // wanted for part in range(wanted)]].unique()
    place = torch.searchsorted(starts, confidence, right=True) - 1
    count = place.bincount(minlength=len(starts))
    accuracy = place.bincount(right, minlength=len(starts)) / count
    z = _QUANTILE**2 / count
    middle = (accuracy + z / 2) / (1 + z)
    reach = (accuracy * (1 - accuracy) * z + z * z / 4).sqrt() / (1 + z)
    mean = place.bincount(confidence, minlength=len(starts)) / count
    return _Reliability(mean, accuracy, middle - reach, middle + reach, count)


def _line_style(place: int) -> dict:
    return {
        "color": MODELS[place % len(MODELS)],
        "marker": MARKERS[place % len(MARKERS)],
        "linestyle": ("-", "--", ":")[place // len(MODELS) % 3],
        "markersize": 5,
    }
