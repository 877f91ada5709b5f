"""How often a model is right, by how sure it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from torchlgm._utils.arrays import Array, as_tensor
from torchlgm._utils.validate import check_int
from torchlgm.errors import DataError
from torchlgm.metrics import calibration_error
from torchlgm.viz.canvas import FAINT, legend, line_style, new_figure, numbers, plain_axes, require_mapping

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_IN_A_BIN, _LEAST_BINS, _MOST_BINS = 25, 3, 10  # samples, and how many bins that may make
_FEW = 10  # samples of a bin that say little
_QUANTILE = 1.645  # of the normal distribution, for 90 % in the middle


def reliability_diagram(curves: Mapping[str, tuple[Array, Array]], bins: int | None = None) -> Figure:
    """Draw accuracy against confidence in the most probable class, with what chance alone explains.

    The accuracy of a calibrated model equals its confidence, so its points lie on the diagonal. Bins hold equally many
    samples, bands are 90 % intervals of the accuracy (Wilson's), and hollow points have fewer than 10 samples. The ECE
    is `metrics.calibration_error`.

    Parameters
    ----------
    curves : mapping
        Probabilities `(N, K)` and targets `(N,)` by the name of the model.
    bins : int, optional
        How many; None for 3 to 10 bins of at least 25 samples, if there are enough.

    Returns
    -------
    Figure
        Of matplotlib.
    """
    require_mapping("curves", curves, "names to probabilities (N, K) and targets (N,)")
    if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in curves.values()):
        raise DataError("curves: expected a pair (probabilities, targets) for each name")
    bins = None if bins is None else check_int("bins", bins, error=DataError)
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
        style = line_style(place)
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
