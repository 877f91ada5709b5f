"""What all pictures share: colours, checks, axes, and how a figure becomes a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchlgm._utils.arrays import Array, as_tensor
from torchlgm._utils.atomic import atomic_write
from torchlgm._utils.optional import import_optional
from torchlgm.errors import DataError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The palette of Okabe and Ito, distinguishable with any colour vision; yellow is left out as too pale on white.
BLUE, ORANGE, GREEN, PINK, AMBER, SKY, BLACK = COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
)
MARKERS = "osD^vPX"
FAINT = "0.75"

_FORMATS = ("png", "pdf", "svg")
_DOTS_PER_INCH = 150


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write the figure to `path` (.png, .pdf or .svg), atomically."""
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in _FORMATS:
        raise DataError(f"{path}: expected a name that ends in {', '.join(f'.{suffix}' for suffix in _FORMATS)}")
    content = BytesIO()
    figure.savefig(content, format=kind, dpi=_DOTS_PER_INCH, bbox_inches="tight", pad_inches=0.12)
    atomic_write(path, content.getvalue())


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches, free of any global state."""
    return import_optional("matplotlib.figure", "cli").Figure(figsize=(width, height), layout="constrained")


def numbers(what: str, value: Array, axes: str, missing: bool = False) -> Tensor:
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
    if len(given) != count:
        raise DataError(f"{what}: expected {count} names, got {len(given)}")
    return [str(name) for name in given]


def plain_axes(axes: Axes) -> None:
    """Only the two spines that carry numbers, and a faint grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)


def legend(place: Axes | Figure, handles: Sequence, labels: Sequence[str], **options: Any) -> None:
    """A legend that takes the labels as they are (matplotlib would read $ as mathematics)."""
    drawn = place.legend(handles, labels, frameon=False, **options)
    for text in drawn.get_texts():
        text.set_parse_math(False)
