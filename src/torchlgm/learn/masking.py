"""Entries hidden at random during training, so that a model learns to do without them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchlgm.errors import TrainingError
from torchlgm.learn.samples import Labelled
from torchlgm.learn.settings import Settings

AUTO = (0.2, 1.0)  # visible shares when the data itself has missing entries


class RandomMask:
    """Hides entries of a batch; each sample draws its visible share from a range. Looks at no value, to be captured.

    A share `blocks` of the samples hide one rectangle instead of scattered entries. Half of the rectangles reach from
    side to side, and half of the others' places are at a side, so that halves and bands are among them.
    """

    def __init__(self, visible: tuple[float, float], blocks: float = 0.0) -> None:
        self.low, self.high = visible
        self.blocks = blocks

    def __call__(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        shape = (len(x), 1, *x.shape[2:]) if x.dim() == 4 else x.shape  # channels of a pixel go together
        share = self.low + (self.high - self.low) * torch.rand(len(x), generator=generator, device=x.device)
        seen = torch.rand(shape, generator=generator, device=x.device) < share.reshape(-1, *[1] * (x.dim() - 1))
        if self.blocks:
            seen = self._with_blocks(seen, 1 - share, generator)
        return x.masked_fill(~seen, math.nan)

    def _with_blocks(self, seen: Tensor, hidden: Tensor, generator: torch.Generator | None) -> Tensor:
        if seen.dim() != 4:
            raise TrainingError(
                f"blocks={self.blocks} hides rectangles of images (channels, height, width), but a sample is shaped "
                f"{tuple(seen.shape[1:])}; use blocks=0"
            )
        chosen, *drawn = torch.rand(4, len(hidden), generator=generator, device=hidden.device)
        slant, top, left = ((2 * u - 0.5).clamp(0, 1) for u in drawn)  # half of them at 0 or 1
        height, width = hidden**slant, hidden ** (1 - slant)
        rows = _inside(seen.shape[2], top * (1 - height), height)
        columns = _inside(seen.shape[3], left * (1 - width), width)
        block = rows[:, None, :, None] & columns[:, None, None, :]
        return torch.where((chosen < self.blocks)[:, None, None, None], ~block, seen)


def _inside(count: int, start: Tensor, length: Tensor) -> Tensor:
    """Which of `count` positions along a side of length 1 lie in an interval of each sample: `(B, count)`."""
    middle = (torch.arange(count, device=start.device) + 0.5) / count
    return (middle >= start[:, None]) & (middle < (start + length)[:, None])


def mask_for(settings: Settings, *data: Labelled) -> RandomMask | None:
    """What the settings ask for; "auto" hides only if entries are missing anyway."""
    visible = settings.visible_range
    if settings.visible == "auto" and any(part.has_missing for part in data):
        visible = AUTO
    if visible is None and settings.blocks:
        raise TrainingError(
            f"blocks={settings.blocks}, but visible={settings.visible!r} hides nothing; give the shares that stay "
            "visible, such as visible=(0.2, 1.0)"
        )
    return None if visible is None else RandomMask(visible, settings.blocks)
