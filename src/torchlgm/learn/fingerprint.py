"""What has to be the same for a training to be resumed."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import Any

import torch

from torchlgm.learn.objectives import Objective
from torchlgm.learn.samples import Labelled
from torchlgm.learn.settings import Settings
from torchlgm.learn.state import Training
from torchlgm.model import LGM
from torchlgm.model.init import balanced_scales


def fingerprint(
    training: Training, objective: Objective, data: Sequence[Labelled], settings: Settings, device: torch.device
) -> dict[str, Any]:
    """What has to be the same for a training to be resumed, as JSON would give it back."""
    visible = list(settings.visible) if isinstance(settings.visible, tuple) else settings.visible
    return {
        **{name: getattr(settings, name) for name in ("batch", "learning_rate", "seed", "clip")},
        "visible": visible,
        "device": device.type,
        "objective": re.sub(r" at 0x[0-9a-fA-F]+", "", repr(objective)),
        "optimiser": type(training.optimiser).__name__,
        "scheduler": _scheduler(training, settings),
        "scales": {
            name: balanced_scales(part.graph)
            for name, part in training.model.named_modules()
            if isinstance(part, LGM) and part.scale == "balanced"
        },
        "model": {name: [*t.shape, str(t.dtype)] for name, t in training.model.state_dict().items()},
        "train_data": checksum(data[0]),
        "valid_data": checksum(data[1]),
    }


def _scheduler(training: Training, settings: Settings) -> str:
    """By name; a half cosine ends with the last epoch, so there `epochs` may not change."""
    if settings.scheduler == "cosine":
        return f"cosine over {settings.epochs} epochs"
    return type(training.scheduler).__name__


def checksum(data: Labelled) -> int:
    """Of inputs and targets."""
    inputs, targets = (t.detach().cpu().contiguous().numpy() for t in (data.inputs, data.targets))
    return zlib.crc32(targets.data, zlib.crc32(inputs.data))
