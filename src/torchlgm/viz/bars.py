"""Bars: what entries add to an answer, what measurements are worth, and what came of asking for them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torchlgm._utils.arrays import Array
from torchlgm._utils.validate import check_int, is_int_at_least, is_number
from torchlgm.errors import DataError
from torchlgm.viz.canvas import (
    AGAINST,
    FOR,
    LGM,
    MARKERS,
    MODELS,
    legend,
    names,
    new_figure,
    numbers,
    plain_axes,
    require_mapping,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BAR = 0.3  # inches
_PROBABILITIES = (0.0001, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999)
_BETWEEN = (0.2, 0.3, 0.4, 0.6, 0.7, 0.8)  # where the scale is short
_CURVES = {"accuracy": "accuracy", "nll": "negative log-likelihood in nats", "cost": "mean cost"}
_AGAINST = {"questions": "questions asked", "cost": "mean cost"}


def evidence_shares(
    entries: Sequence[str], shares: Array, base: float, label: str, title: str | None = None, most: int = 12
) -> Figure:
    """Draw how the shares of entries add up, from the log-odds with nothing observed to the answer, in nats.

    Parameters
    ----------
    entries : sequence of str
        What the entries are called.
    shares : Tensor or array_like
        `(n,)`, those of `torchlgm.joint.shapley` for the label.
    base : float
        The `base` of the same.
    label : str
        What the label is called.
    title : str, optional
        The title.
    most : int
        How many entries get a bar; the others share one.

    Returns
    -------
    Figure
        Of matplotlib.
    """
    values = numbers("shares", shares, "(n)")
    labels = names("entries", entries, len(values))
    if not is_number(base) or not is_int_at_least(most):
        raise DataError(f"base={base}, most={most}; expected a finite number, and at least one entry to show")
    order = [i for i in values.abs().argsort(descending=True, stable=True).tolist() if values[i] != 0]
    shown = order if len(order) == most + 1 else order[:most]
    bars = [(labels[i], values[i].item()) for i in shown]
    if rest := order[len(shown) :]:
        bars.append((f"{len(rest)} other entries", values[rest].sum().item()))
    figure = new_figure(7, _BAR * (len(bars) + 2) + 1.5)
    axes = figure.subplots()
    _draw_steps(axes, base, bars)
    axes.set_yticks(range(len(bars) + 2), ["nothing seen", *[name for name, _ in bars], "answer"], parse_math=False)
    axes.invert_yaxis()
    axes.set_xlabel(f"log-odds of {label}, in nats", parse_math=False)
    _add_probabilities(axes)
    answer = base + values.sum().item()
    chance = 1 / (1 + math.exp(-max(-700.0, min(700.0, answer))))
    axes.set_title(title or f"{label}: {chance:.1%}", parse_math=False)
    return figure


def _draw_steps(axes: Axes, base: float, bars: Sequence[tuple[str, float]]) -> None:
    axes.barh(0, base, color="0.6", height=0.7)
    at = base
    for place, (_, share) in enumerate(bars, start=1):
        axes.barh(place, share, left=at, color=FOR if share > 0 else AGAINST, height=0.7)
        axes.plot([at, at], [place - 1.35, place + 0.35], color="0.5", linewidth=0.8)
        axes.text(max(at, at + share), place, f" {share:+.2f}", va="center", fontsize=8)
        at += share
    axes.barh(len(bars) + 1, at, color="0.3", height=0.7)
    for place, value in ((0, base), (len(bars) + 1, at)):
        axes.text(max(value, 0), place, f" {value:+.2f}", va="center", fontsize=8)
    axes.axvline(0, color="0.3", linewidth=0.8)
    axes.use_sticky_edges = False
    axes.margins(x=0.12, y=0.02)
    plain_axes(axes)
    axes.grid(axis="y", visible=False)


def _add_probabilities(axes: Axes) -> None:
    low, high = axes.get_xlim()
    ticks = [
        p for p in (*_PROBABILITIES, *(_BETWEEN if high - low < 5 else ())) if low <= math.log(p / (1 - p)) <= high
    ]
    upper = axes.secondary_xaxis("top")
    upper.set_xticks([math.log(p / (1 - p)) for p in ticks], [f"{100 * p:.4g}%" for p in ticks], fontsize=8)
    upper.set_xlabel("probability", fontsize=8)


def gain_bars(options: Sequence[str], gains: Array, unit: str = "nats", most: int = 12) -> Figure:
    """Draw what each measurement is worth, the best on top; those worth nothing are left out.

    Parameters
    ----------
    options : sequence of str
        What the measurements are called.
    gains : Tensor or array_like
        `(n,)`, as `torchlgm.acquire` gives them for a row.
    unit : str
        The unit of the gains, such as "nats per euro" with costs.
    most : int
        How many to draw.

    Returns
    -------
    Figure
        Of matplotlib.
    """
    values = numbers("gains", gains, "(n)")
    most = check_int("most", most, error=DataError)
    labels = names("options", options, len(values))
    shown = [i for i in values.argsort(descending=True, stable=True).tolist() if values[i] > 0][:most]
    if not shown:
        raise DataError("gains: nothing is worth anything, so there is nothing to draw")
    figure = new_figure(6.5, _BAR * len(shown) + 1.1)
    axes = figure.subplots()
    axes.barh(range(len(shown)), values[shown].numpy(), color=LGM, height=0.7)
    axes.set_yticks(range(len(shown)), [labels[i] for i in shown], parse_math=False)
    axes.invert_yaxis()
    for place, i in enumerate(shown):
        axes.text(values[i].item(), place, f" {values[i]:.3g}", va="center", fontsize=8)
    axes.margins(x=0.12)
    axes.set_xlabel(f"expected gain, in {unit}", parse_math=False)
    plain_axes(axes)
    axes.grid(axis="y", visible=False)
    return figure


def acquisition_curves(
    curves: Mapping[str, Mapping[str, Sequence[float]]], metric: str = "accuracy", against: str = "questions"
) -> Figure:
    """Draw what becomes of a metric as measurements are taken, one line for each policy.

    Parameters
    ----------
    curves : mapping
        By name, what `Acquisition.run(X, y).curve()` gives.
    metric : {"accuracy", "nll", "cost"}
        What to draw.
    against : {"questions", "cost"}
        Whether the axis is the number of questions or their mean cost.

    Returns
    -------
    Figure
        Of matplotlib.
    """
    require_mapping("curves", curves, "names to what Acquisition.run(X, y).curve() gives")
    if not curves:
        raise DataError("curves: expected at least one, as Acquisition.run(X, y).curve() gives it")
    if metric not in list(_CURVES) or against not in list(_AGAINST):
        raise DataError(
            f"metric={metric!r}, against={against!r}; expected {', '.join(_CURVES)}, against {', '.join(_AGAINST)}"
        )
    figure = new_figure(6, 4.2)
    axes = figure.subplots()
    handles = []
    for place, (name, curve) in enumerate(curves.items()):
        require_mapping(name, curve, "metrics to numbers")
        if not {metric, against} <= curve.keys():
            raise DataError(f"{name}: expected a curve with {metric} and {against}, got one with {', '.join(curve)}")
        x, y = (numbers(f"{key} of {name}", curve[key], "(n)").tolist() for key in (against, metric))
        style = {"color": MODELS[place % len(MODELS)], "marker": MARKERS[place % len(MARKERS)], "markersize": 5}
        handles += axes.plot(x, y, **style)
    plain_axes(axes)
    legend(axes, handles, list(curves))
    axes.set(xlabel=_AGAINST[against], ylabel=_CURVES[metric])
    return figure
