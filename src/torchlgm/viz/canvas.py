"""What all pictures share: colours, checks, axes, and how a figure becomes a file."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchlgm._utils.arrays import Array, as_tensor
from torchlgm._utils.atomic import atomic_write
from torchlgm._utils.machine import as_path
from torchlgm._utils.optional import import_optional
from torchlgm.errors import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The palette of Okabe and Ito, distinguishable with any colour vision and on light and dark; yellow is too pale on
# white, and grey takes the place of black, which cannot be seen on dark.
BLUE, ORANGE, GREEN, PINK, AMBER, SKY, GREY = COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#7F7F7F",
)
MARKERS = "osD^vPX"
FAINT = "0.75"

# What colours mean, in all pictures.
LGM = BLUE
NETWORK = GREY  # and whatever else a model is compared with first
TRUTH = GREEN
FOR, AGAINST = "#8073AC", ORANGE  # the two ends of DIVERGING; orange frames what is wrong, too
MISSING = (0.40, 0.55, 0.80)  # of a pixel: a muted blue, far from all greys
DIVERGING = "PuOr"
MODELS = (LGM, NETWORK, AMBER, PINK, SKY, GREEN, ORANGE)
ON_IMAGE = "0.05"  # text on light cells: nearly black, and kept so when a picture is saved
_SOFT = "0.46"  # text and axes of saved pictures, legible on white and on dark pages

_FORMATS = ("png", "pdf", "svg")
DOTS_PER_INCH = 150


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Save a figure atomically, on a transparent background and with black text in grey, for light and dark pages.

    Parameters
    ----------
    figure : Figure
        Of matplotlib.
    path : str or Path
        A name that ends in .png, .pdf or .svg.
    """
    path = as_path(path, DataError)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in _FORMATS:
        raise DataError(f"{path}: expected a name that ends in {', '.join(f'.{suffix}' for suffix in _FORMATS)}")
    if not hasattr(figure, "savefig"):
        raise DataError(f"expected a figure of matplotlib, got an object of type {type(figure).__name__}")
    content = BytesIO()
    with _softened(figure):
        figure.savefig(content, format=kind, dpi=DOTS_PER_INCH, bbox_inches="tight", pad_inches=0.12, transparent=True)
    atomic_write(path, content.getvalue())


@contextmanager
def _softened(figure: Figure) -> Iterator[None]:
    """Black text, spines and ticks in grey meanwhile."""
    from matplotlib.axis import Axis
    from matplotlib.colors import to_hex
    from matplotlib.spines import Spine
    from matplotlib.text import Text

    ticks = [tick for axis in figure.findobj(Axis) for tick in (*axis.get_ticklines(), *axis.get_ticklines(minor=True))]
    inks = [(text.set_color, text.get_color()) for text in figure.findobj(Text)]
    inks += [(tick.set_markeredgecolor, tick.get_markeredgecolor()) for tick in ticks]
    inks += [(spine.set_edgecolor, spine.get_edgecolor()) for spine in figure.findobj(Spine)]
    black = [(dye, colour) for dye, colour in inks if to_hex(colour) == "#000000"]
    for dye, _ in black:
        dye(_SOFT)
    try:
        yield
    finally:
        for dye, colour in black:
            dye(colour)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches, free of any global state."""
    return import_optional("matplotlib.figure", "cli").Figure(figsize=(width, height), layout="constrained")


def numbers(what: str, value: Array | Sequence[float], axes: str, missing: bool = False) -> Tensor:
    """`value` as float64 on the CPU, after a check that it has these axes, is not empty and finite.

    `axes` names them, such as "(N, K)"; with `missing`, NaN may stand for what is missing.
    """
    tensor = as_tensor(what, value).detach().to("cpu", torch.float64)
    if tensor.ndim != axes.count(",") + 1 or tensor.numel() == 0:
        raise DataError(f"{what}: expected {axes}, not empty, got shape {tuple(tensor.shape)}")
    bad = tensor.isinf() if missing else ~tensor.isfinite()
    if bad.any():
        raise DataError(f"{what}: expected finite numbers, got {bad.sum()} others of {tensor.numel()}")
    return tensor


def names(what: str, given: Sequence[str], count: int) -> list[str]:
    """The names as strings, one for each of `count` things."""
    try:
        listed = [str(name) for name in given]
    except TypeError as error:
        raise DataError(f"{what}: expected {count} names, got an object of type {type(given).__name__}") from error
    if len(listed) != count:
        raise DataError(f"{what}: expected {count} names, got {len(listed)}")
    return listed


def require_mapping(what: str, given: object, of: str) -> None:
    """Raise DataError unless this is a mapping; `of` says from what to what."""
    if not isinstance(given, Mapping):
        raise DataError(f"{what}: expected a mapping from {of}, got an object of type {type(given).__name__}")


def plain_axes(axes: Axes) -> None:
    """Only the two spines that carry numbers, and a faint grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="0.5", alpha=0.2, linewidth=0.8)
    axes.set_axisbelow(True)


def legend(place: Axes | Figure, handles: Sequence, labels: Sequence[str], **options: Any) -> None:
    """A legend that takes the labels as they are (matplotlib would read $ as mathematics)."""
    drawn = place.legend(handles, labels, frameon=False, **options)
    for text in drawn.get_texts():
        text.set_parse_math(False)


def label_ends(axes: Axes, ends: Sequence[tuple[float, float]], labels: Sequence[str], colours: Sequence[str]) -> None:
    """Write each line's label to the right of its last point, moved up or down as far as labels need.

    To be called when the limits of the axes are set.
    """
    low, high = axes.get_ylim()
    gap = 15 * (high - low) / (axes.get_window_extent().height * 72 / axes.figure.dpi)  # a line of text
    order = sorted(range(len(ends)), key=lambda k: ends[k][1])
    heights: list[float] = []
    for k in order:
        heights.append(max(ends[k][1], heights[-1] + gap) if heights else ends[k][1])
    over = max(heights[-1] - max(high, ends[order[-1]][1]), 0) if heights else 0
    for k, height in zip(order, heights, strict=True):
        axes.annotate(
            labels[k],
            (ends[k][0], height - over),
            (8, 0),
            textcoords="offset points",
            va="center",
            color=colours[k],
            annotation_clip=False,
            parse_math=False,
        )


def line_style(place: int) -> dict:
    """Colour, marker and dashes of a line, by its place among others."""
    return {
        "color": MODELS[place % len(MODELS)],
        "marker": MARKERS[place % len(MARKERS)],
        "linestyle": ("-", "--", ":")[place // len(MODELS) % 3],
        "markersize": 5,
    }
