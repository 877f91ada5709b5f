"""Images: what was observed, what the model believes, and which pixels are evidence for which class."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from torchlgm._utils.arrays import Array, as_tensor
from torchlgm.errors import DataError
from torchlgm.metrics import accuracy
from torchlgm.viz.canvas import (
    AGAINST,
    DIVERGING,
    LGM,
    TRUTH,
    names,
    new_figure,
    numbers,
    plain_axes,
    require_mapping,
)
from torchlgm.viz.tiles import GAP, HEAD, cell, draw_tile, pixels, sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_BARS = 10
_COLUMNS = 5
_TYPICAL = 0.99  # the share of a map's values that its colours reach; the rest have the strongest ones


def filled_images(
    truth: Tensor, seen: Tensor, filled: Tensor, titles: Sequence[str] | None = None, right: Array | None = None
) -> Figure:
    """Draw the truth, what was observed of it and what the model believes, one below the other for each sample.

    Parameters
    ----------
    truth, seen, filled : Tensor
        Images `(N, C, H, W)` in [0, 1] with 1 or 3 channels; NaN in `truth` and `seen` is missing and drawn in blue.
    titles : sequence of str, optional
        One for each sample.
    right : Tensor or array_like, optional
        `(N,)`; samples where it is false get an orange frame.

    Returns
    -------
    Figure
        Of matplotlib.
    """
    truth, seen = (numbers(what, x, "(N, C, H, W)", missing=True) for what, x in (("truth", truth), ("seen", seen)))
    filled = numbers("filled", filled, "(N, C, H, W)")
    for what, images in (("seen", seen), ("filled", filled)):
        if images.shape != truth.shape:
            raise DataError(f"{what}: expected the truth's shape {tuple(truth.shape)}, got {tuple(images.shape)}")
    good = None if right is None else as_tensor("right", right).bool().flatten().tolist()
    if good is not None and len(good) != len(truth):
        raise DataError(f"right: expected {len(truth)} values, one for each sample, got {len(good)}")
    figure = _rows({"truth": truth, "seen": seen, "believed": filled}, titles, good)
    hidden = seen.isnan().any(1).double().mean().item()
    score = "" if good is None else f", {sum(good)} of {len(good)} classes right"
    figure.suptitle(f"{hidden:.0%} of the pixels missing (blue){score}")
    return figure


def image_rows(rows: Mapping[str, Tensor], titles: Sequence[str] | None = None) -> Figure:
    """Draw rows of images, one column for each sample, five side by side.

    Parameters
    ----------
    rows : mapping
        By name, images `(N, C, H, W)` in [0, 1]; NaN is missing and drawn in blue.
    titles : sequence of str, optional
        One for each sample.

    Returns
    -------
    Figure
        Of matplotlib.
    """
    require_mapping("rows", rows, "names to images (N, C, H, W)")
    return _rows({name: numbers(name, images, "(N, C, H, W)", missing=True) for name, images in rows.items()}, titles)


def _rows(rows: Mapping[str, Tensor], titles: Sequence[str] | None, right: Sequence[bool] | None = None) -> Figure:
    shapes = {name: tuple(images.shape) for name, images in rows.items()}
    if len(set(shapes.values())) != 1:
        raise DataError(f"rows: expected at least one, all of one shape (N, C, H, W), got {shapes}")
    pictures = {name: pixels(name, images) for name, images in rows.items()}
    count, _, *size = next(iter(shapes.values()))
    heads = _heads(titles, count)
    columns, blocks = min(count, _COLUMNS), math.ceil(count / _COLUMNS)
    width, height = cell(*size)
    above = HEAD if any(heads) else GAP
    tall = len(rows) * (height + GAP) + above
    figure, axes = sheet(columns * (width + GAP), blocks * tall)
    for sample, head in enumerate(heads):
        block, column = divmod(sample, columns)
        for row, (label, images) in enumerate(pictures.items()):
            place = column * (width + GAP), block * tall + above + row * (height + GAP)
            wrong = right is not None and not right[sample]
            draw_tile(axes, images[sample], place, head if row == 0 else "", wrong)
            if column == 0:
                axes.text(-GAP, place[1] + height / 2, label, ha="right", va="center", parse_math=False)
    return figure


def uncertain_samples(images: Array, probs: Array, targets: Array, classes: Sequence[str]) -> Figure:
    """Draw images with bars of their class probabilities; the true class is marked.

    With many classes, only the most probable ones and the true one are shown.

    Parameters
    ----------
    images : Tensor or array_like
        `(N, C, H, W)` in [0, 1].
    probs : Tensor or array_like
        Class probabilities `(N, K)`.
    targets : Tensor or array_like
        True classes `(N,)`.
    classes : sequence of str
        What the classes are called.

    Returns
    -------
    Figure
        Of matplotlib.
    """
    pictures = pixels("images", images)
    believed = numbers("probs", probs, "(N, K)")
    count, size = believed.shape
    labels = names("classes", classes, size)
    if len(pictures) != count:
        raise DataError(f"images: expected {count}, as many as probabilities, got {len(pictures)}")
    right = round(count * accuracy(probs, targets))
    columns = min(count, 2)
    rows = math.ceil(count / columns)
    tall = max(1.5, 0.24 * min(size, _MOST_BARS) + 0.8)
    figure = new_figure(3 * columns, tall * rows + 0.4)
    figure.suptitle(f"What the model believes ({right} of {count} right)")
    parts = figure.subfigures(rows, columns, squeeze=False).flat
    for part, picture, beliefs, target in zip(
        parts, pictures, believed, as_tensor("targets", targets).tolist(), strict=False
    ):
        best = int(beliefs.argmax())
        verdict = "right" if best == target else f"truly {labels[target]}"
        title = f"{labels[best]} ({beliefs[best]:.0%}), {verdict}"
        style = {} if best == target else {"color": AGAINST}
        part.suptitle(title, fontsize=10, parse_math=False, **style)
        image, bars = part.subplots(1, 2, width_ratios=[1, 1.1])
        image.imshow(picture.numpy(), interpolation="nearest")
        image.set(xticks=[], yticks=[])
        _draw_beliefs(bars, beliefs, target, labels)
        bars.set_xlim(0, 1)
    return figure


def hidden_responses(fields: Tensor, titles: Sequence[str] | None = None) -> Figure:
    """Draw signed maps of what hidden nodes respond to, all on one scale centred on 0.

    The scale ends where 99 % of all values are reached, so that a few large ones do not make all others pale.

    Parameters
    ----------
    fields : Tensor
        `(n, H, W)`.
    titles : sequence of str, optional
        One for each map.

    Returns
    -------
    Figure
        Of matplotlib.
    """
    maps = numbers("fields", fields, "(n, H, W)")
    heads = _heads(titles, len(maps))
    columns = min(len(maps), max(4, math.ceil(math.sqrt(len(maps)))))
    width, height = cell(*maps.shape[-2:])
    step = width + GAP, height + (HEAD if any(heads) else GAP)
    figure, axes = sheet(columns * step[0], math.ceil(len(maps) / columns) * step[1])
    places = [(place % columns * step[0], place // columns * step[1] + step[1] - height) for place in range(len(maps))]
    _draw_maps(axes, maps, places, heads, "response")
    figure.suptitle("What hidden nodes respond to")
    return figure


def class_evidence(image: Tensor, evidence: Tensor, classes: Sequence[str], answer: Tensor | None = None) -> Figure:
    """Draw an image, and for each class the evidence of each pixel for and against it.

    Parameters
    ----------
    image : Tensor
        `(C, H, W)` in [0, 1]; NaN is missing.
    evidence : Tensor
        `(K, H, W)` in nats, summed over channels: of `torchlgm.joint.shapley`, or of `torchlgm.explain.influence`,
        which does not add up.
    classes : sequence of str
        What the classes are called.
    answer : Tensor, optional
        `(K,)`, the log-odds that Shapley values add up to, written beside the names.

    Returns
    -------
    Figure
        Of matplotlib.
    """
    picture = pixels("image", numbers("image", image, "(C, H, W)", missing=True)[None])[0]
    maps = numbers("evidence", evidence, "(K, H, W)")
    labels = names("classes", classes, len(maps))
    if maps.shape[1:] != image.shape[1:]:
        raise DataError(
            f"evidence: expected the image's {tuple(image.shape[1:])} pixels for each class, got {tuple(maps.shape)}"
        )
    columns = min(len(maps), _COLUMNS - 1)
    width, height = cell(*maps.shape[-2:])
    step = width + GAP, height + HEAD
    figure, axes = sheet((columns + 1) * step[0] + GAP, math.ceil(len(maps) / columns) * step[1])
    draw_tile(axes, picture, (0, HEAD), "image")
    right = step[0] + GAP
    places = [(right + k % columns * step[0], k // columns * step[1] + HEAD) for k in range(len(maps))]
    totals = [None] * len(maps) if answer is None else numbers("answer", answer, "(K)").tolist()
    if len(totals) != len(maps):
        raise DataError(f"answer: expected log-odds of {len(maps)} classes, got {len(totals)}")
    heads = [label if total is None else f"{label} ({total:+.1f})" for label, total in zip(labels, totals, strict=True)]
    _draw_maps(axes, maps, places, heads, "nats against \N{LEFTWARDS ARROW} 0 \N{RIGHTWARDS ARROW} for")
    figure.suptitle("Evidence of each pixel" + ("" if answer is None else ", log-odds of the class"), fontsize=11)
    return figure


def _heads(titles: Sequence[str] | None, count: int) -> list[str]:
    return [""] * count if titles is None else names("titles", titles, count)


def _draw_maps(axes: Axes, maps: Tensor, places: list[tuple[float, float]], heads: list[str], label: str) -> None:
    """Draw signed maps (n, H, W) on one scale centred on 0, and the scale."""
    limit = maps.abs().flatten().quantile(_TYPICAL).item() or maps.abs().max().item() or 1.0
    colours = {"cmap": DIVERGING, "vmin": -limit, "vmax": limit}
    tiles = [draw_tile(axes, *tile, **colours) for tile in zip(maps, places, heads, strict=True)]
    axes.figure.colorbar(tiles[0], ax=axes, label=label, shrink=0.8, aspect=25, extend="both")


def _draw_beliefs(axes: Axes, beliefs: Tensor, target: int, labels: Sequence[str]) -> None:
    shown = list(range(len(beliefs)))
    if len(shown) > _MOST_BARS:
        others = [label for label in beliefs.argsort(descending=True).tolist() if label != target]
        shown = sorted([target, *others[: _MOST_BARS - 1]])
    places = range(len(shown))
    axes.barh(places, beliefs[shown].tolist(), color=[TRUTH if label == target else LGM for label in shown])
    axes.set_yticks(places, [labels[label] for label in shown], fontsize=9, parse_math=False)
    marked = shown.index(target)
    axes.get_yticklabels()[marked].set(color=TRUTH, fontweight="bold")
    axes.annotate(
        "true", (beliefs[target].item(), marked), (4, 0), textcoords="offset points", color=TRUTH, va="center"
    )
    plain_axes(axes)
    axes.grid(visible=False, axis="y")
    axes.set_xticks([0, 0.5, 1], ["0", "50%", "100%"], fontsize=8)
    axes.invert_yaxis()
