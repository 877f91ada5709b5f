"""Small images side by side: their colours, sizes and frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchlgm._utils.arrays import Array
from torchlgm.errors import DataError
from torchlgm.viz.canvas import AGAINST, MISSING, new_figure, numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

_TILE, GAP, HEAD = 1.1, 0.1, 0.3  # inches: an image, between images, above an image with a title


def pixels(what: str, images: Array) -> Tensor:
    """Images (N, C, H, W) in [0, 1] as colours (N, H, W, 3), missing pixels in the colour of the missing."""
    images = numbers(what, images, "(N, C, H, W)", missing=True)
    if images.shape[1] not in (1, 3):
        raise DataError(f"{what}: expected 1 or 3 channels (N, C, H, W), got shape {tuple(images.shape)}")
    if ((images < 0) | (images > 1)).any():
        values = images[~images.isnan()]
        raise DataError(f"{what}: expected values in [0, 1], got {values.min():g} to {values.max():g}")
    missing = images.isnan().any(1)
    colours = images.expand(-1, 3, -1, -1).permute(0, 2, 3, 1).clone()
    colours[missing] = torch.tensor(MISSING, dtype=colours.dtype)
    return colours


def cell(height: int, width: int) -> tuple[float, float]:
    """Width and height, in inches, of the picture of an image of this height and width in pixels."""
    scale = min(_TILE / height, 2 * _TILE / width)
    return max(scale * width, 0.3), max(scale * height, 0.3)


def sheet(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure with one plane for many small images; x goes right and y down, in inches.

    One axes for all of them is many times faster than one for each.
    """
    figure = new_figure(max(width + 1.2, 4.0), height + 0.5)
    axes = figure.subplots()
    axes.set(xlim=(0, width), ylim=(height, 0), aspect="equal")
    axes.set_axis_off()
    return figure, axes


def draw_tile(
    axes: Axes, picture: Tensor, place: tuple[float, float], head: str, wrong: bool = False, **colours: Any
) -> AxesImage:
    """Draw the picture (H, W) or (H, W, 3) with its left upper corner at `place`, framed, below its title."""
    from matplotlib.patches import Rectangle

    x, y = place
    width, height = cell(*picture.shape[:2])
    frame = {"edgecolor": AGAINST, "linewidth": 2.5} if wrong else {"edgecolor": "0.6", "linewidth": 1}
    axes.add_patch(Rectangle(place, width, height, facecolor="none", zorder=2 if wrong else 1, **frame))
    title = axes.text(x + width / 2, y - 0.05, head, ha="center", va="bottom", fontsize=10, parse_math=False)
    if wrong:
        title.set_color(AGAINST)
    extent = (x, x + width, y + height, y)
    return axes.imshow(picture.numpy(), extent=extent, aspect="equal", interpolation="nearest", **colours)
