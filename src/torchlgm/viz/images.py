"""Images: what was seen, what is believed about it, and which pixels speak for what."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchlgm.errors import DataError
from torchlgm.viz.canvas import BLUE, ORANGE, names, new_figure, numbers, plain_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

MISSING = (0.40, 0.55, 0.80)  # the muted blue of missing pixels
_DIVERGING = "PuOr"
_COLUMNS = 10
_MOST_BARS = 10


def filled_images(truth: Tensor, seen: Tensor, filled: Tensor, titles: Sequence[str] | None = None) -> Figure:
    """The truth, what was seen of it and what the model believes, one below the other for each sample.

    All are images (N, C, H, W) in [0, 1] with C = 1 or 3; NaN in `truth` and `seen` is missing and drawn in blue.
    """
    for what, images in (("seen", seen), ("filled", filled)):
        if images.shape != truth.shape:
            raise DataError(f"{what}: expected the truth's shape {tuple(truth.shape)}, got {tuple(images.shape)}.")
    numbers("filled", filled, "(N, C, H, W)")
    rows = {"truth": _pixels("truth", truth), "seen": _pixels("seen", seen), "believed": _pixels("filled", filled)}
    heads = names("titles", titles, len(truth)) if titles is not None else [""] * len(truth)
    columns, blocks = min(len(truth), _COLUMNS), math.ceil(len(truth) / _COLUMNS)
    width, height = _cell(truth)
    figure = new_figure(max(columns * width + 0.9, 3.6), blocks * (3 * height + 0.3) + 0.4)
    grid = figure.add_gridspec(3 * blocks, columns)
    for sample in range(len(truth)):
        block, column = divmod(sample, columns)
        for row, (label, images) in enumerate(rows.items()):
            axes = figure.add_subplot(grid[3 * block + row, column])
            _show(axes, images[sample])
            if row == 0:
                axes.set_title(heads[sample], fontsize=10, parse_math=False)
            if column == 0:
                axes.set_ylabel(label, rotation=0, ha="right", va="center")
    hidden = seen.isnan().any(1).double().mean().item()
    figure.suptitle(f"What the model believes about missing pixels ({hidden:.0%}, blue)", fontsize=11)
    return figure


def uncertain_samples(images: Tensor, probs: Tensor, targets: Tensor, classes: Sequence[str]) -> Figure:
    """Each image (N, C, H, W) with bars of its class probabilities (N, K); the true class (N,) is marked.

    Of many classes only the most probable ones and the true one are shown.
    """
    pictures = _pixels("images", images)
    believed = numbers("probs", probs, "(N, K)")
    count, size = believed.shape
    labels = names("classes", classes, size)
    if len(pictures) != count or targets.shape != (count,):
        raise DataError(
            f"Expected as many images and targets (N,) as probabilities, {count}, got shapes {tuple(images.shape)} and "
            f"{tuple(targets.shape)}."
        )
    if not all(0 <= target < size for target in targets.tolist()):
        raise DataError(f"targets: expected classes 0..{size - 1}, got others.")
    columns = min(count, 3)
    rows = math.ceil(count / columns)
    tall = max(1.5, 0.24 * min(size, _MOST_BARS) + 0.8)
    figure = new_figure(4.2 * columns, tall * rows + 0.4)
    figure.suptitle("What the model believes, sample by sample")
    parts = figure.subfigures(rows, columns, squeeze=False).flat
    for part, picture, beliefs, target in zip(parts, pictures, believed, targets.tolist(), strict=False):
        best = int(beliefs.argmax())
        verdict = "right" if best == target else f"truly {labels[target]}"
        title = f"believes {labels[best]} ({beliefs[best]:.0%}), {verdict}"
        part.suptitle(title, fontsize=10, parse_math=False)
        left, right = part.subplots(1, 2, width_ratios=[1, 1.2])
        _show(left, picture)
        _draw_beliefs(right, beliefs, target, labels)
    return figure


def hidden_responses(fields: Tensor, titles: Sequence[str] | None = None) -> Figure:
    """Signed maps (n, H, W) of what hidden nodes respond to, all on one scale centred on 0."""
    maps = numbers("fields", fields, "(n, H, W)")
    heads = names("titles", titles, len(maps)) if titles is not None else None
    columns = min(len(maps), math.ceil(math.sqrt(1.6 * len(maps))))
    rows = math.ceil(len(maps) / columns)
    width, height = _cell(maps)
    figure = new_figure(max(columns * width + 1.2, 4), rows * (height + (0.25 if heads else 0)) + 0.5)
    grid = figure.add_gridspec(rows, columns)
    panels = [figure.add_subplot(grid[divmod(place, columns)]) for place in range(len(maps))]
    _draw_maps(figure, panels, maps, "response")
    for axes, head in zip(panels, heads or [], strict=False):
        axes.set_title(head, fontsize=10, parse_math=False)
    figure.suptitle("What hidden nodes respond to", fontsize=11)
    return figure


def class_evidence(image: Tensor, evidence: Tensor, classes: Sequence[str]) -> Figure:
    """One image (C, H, W), and for each class what each pixel says for it and against it (K, H, W)."""
    numbers("image", image, "(C, H, W)", missing=True)
    maps = numbers("evidence", evidence, "(K, H, W)")
    labels = names("classes", classes, len(maps))
    if maps.shape[1:] != image.shape[1:]:
        raise DataError(
            f"evidence: expected the image's {tuple(image.shape[1:])} pixels for each class, got {tuple(maps.shape)}."
        )
    columns = min(len(maps) + 1, 6)
    rows = math.ceil((len(maps) + 1) / columns)
    width, height = _cell(maps)
    figure = new_figure(max(columns * width + 1.2, 4.5), rows * (height + 0.25) + 0.5)
    grid = figure.add_gridspec(rows, columns)
    first, *panels = [figure.add_subplot(grid[divmod(place, columns)]) for place in range(len(maps) + 1)]
    _show(first, _pixels("image", image[None])[0])
    first.set_title("image", fontsize=10)
    _draw_maps(figure, panels, maps, "evidence: against < 0 < for")
    for axes, label, total in zip(panels, labels, maps.sum((1, 2)).tolist(), strict=True):
        axes.set_title(f"{label} ({total:+.1f})", fontsize=10, parse_math=False)
    figure.suptitle("What each pixel says for and against each class (in all)", fontsize=11)
    return figure


def _pixels(what: str, images: Tensor) -> Tensor:
    """Images (N, C, H, W) in [0, 1] as colours (N, H, W, 3), missing pixels in the colour of the missing."""
    images = numbers(what, images, "(N, C, H, W)", missing=True)
    if images.shape[1] not in (1, 3):
        raise DataError(f"{what}: expected 1 or 3 channels (N, C, H, W), got shape {tuple(images.shape)}.")
    if ((images < 0) | (images > 1)).any():
        known = images[~images.isnan()]
        raise DataError(f"{what}: expected values in [0, 1], got {known.min():g} to {known.max():g}.")
    missing = images.isnan().any(1)
    colours = images.expand(-1, 3, -1, -1).permute(0, 2, 3, 1).clone()
    colours[missing] = torch.tensor(MISSING, dtype=colours.dtype)
    return colours


def _cell(images: Tensor) -> tuple[float, float]:
    """Width and height, in inches, of the place for one of the images (..., H, W)."""
    height, width = images.shape[-2:]
    return min(max(1.1 * width / height, 0.6), 3.0), min(max(1.1 * height / width, 0.6), 1.1)


def _show(axes: Axes, picture: Tensor, **colours: object) -> AxesImage:
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(color="0.7", linewidth=0.6)
    return axes.imshow(picture.numpy(), interpolation="nearest", **colours)


def _draw_maps(figure: Figure, panels: Sequence[Axes], maps: Tensor, label: str) -> None:
    limit = maps.abs().max().item() or 1.0
    drawn = [
        _show(axes, each, cmap=_DIVERGING, vmin=-limit, vmax=limit) for axes, each in zip(panels, maps, strict=True)
    ]
    figure.colorbar(drawn[0], ax=figure.axes, label=label, shrink=0.8)


def _draw_beliefs(axes: Axes, beliefs: Tensor, target: int, labels: Sequence[str]) -> None:
    shown = list(range(len(beliefs)))
    if len(shown) > _MOST_BARS:
        others = [label for label in beliefs.argsort(descending=True).tolist() if label != target]
        shown = sorted([target, *others[: _MOST_BARS - 1]])
    places = range(len(shown))
    axes.barh(places, beliefs[shown].tolist(), color=[ORANGE if label == target else BLUE for label in shown])
    axes.set_yticks(places, [labels[label] for label in shown], fontsize=9, parse_math=False)
    marked = shown.index(target)
    axes.get_yticklabels()[marked].set(color=ORANGE, fontweight="bold")
    axes.annotate(
        "true", (beliefs[target].item(), marked), (4, 0), textcoords="offset points", color=ORANGE, va="center"
    )
    plain_axes(axes)
    axes.set(xlim=(0, 1.15), xticks=[0, 0.5, 1])
    axes.invert_yaxis()
