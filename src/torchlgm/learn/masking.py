"""Entries hidden at random during training, so that a model learns to do without them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchlgm.learn.samples import Labelled
from torchlgm.learn.settings import Settings

AUTO = (0.2, 1.0)  # visible shares when the data itself has missing entries


class RandomMask:
    """Hides entries of a batch; each sample draws its visible share from a range. Looks at no value, to be captured."""

    def __init__(self, visible: tuple[float, float]) -> None:
        self.low, self.high = visible

    def __call__(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        shape = (len(x), 1, *x.shape[2:]) if x.dim() == 4 else x.shape  # channels of a pixel go together
        share = self.low + (self.high - self.low) * torch.rand(len(x), generator=generator, device=x.device)
        seen = torch.rand(shape, generator=generator, device=x.device) < share.reshape(-1, *[1] * (x.dim() - 1))
        return x.masked_fill(~seen, math.nan)


def mask_for(settings: Settings, *data: Labelled) -> RandomMask | None:
    """What the settings ask for; "auto" hides only if entries are missing anyway."""
    visible = settings.visible_range
    if settings.visible == "auto" and any(part.has_missing for part in data):
        visible = AUTO
    return None if visible is None else RandomMask(visible)
