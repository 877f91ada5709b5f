"""What has to be the same for a training to be resumed."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import Any

import torch
from torch.optim import Optimizer

from torchlgm.learn.learner import Learner
from torchlgm.learn.samples import Labelled, Stream
from torchlgm.learn.settings import Settings
from torchlgm.learn.state import Training, plain
from torchlgm.model import LGM
from torchlgm.model.init import balanced_scales
from torchlgm.posterior import Predictor


def fingerprint(
    training: Training, learner: Learner, data: Sequence[Labelled | Stream], settings: Settings, device: torch.device
) -> dict[str, Any]:
    """What has to be the same for a training to be resumed, as JSON would give it back."""
    graphical = [(name, part) for name, part in training.model.named_modules() if isinstance(part, LGM)]
    visible = list(settings.visible) if isinstance(settings.visible, tuple) else settings.visible
    return {
        **{name: getattr(settings, name) for name in ("batch_size", "learning_rate", "seed", "clip")},
        "visible": visible,
        **({"blocks": settings.blocks} if settings.blocks else {}),
        "device": device.type,
        "objective": as_text(learner.objective),
        "predictor": _predictor(learner),
        "optimizer": _optimizer(training.optimizer, settings),
        "scheduler": _scheduler(training, settings),
        "graphs": {name: zlib.crc32(part.graph.to_json().encode()) for name, part in graphical},
        "scales": {
            name: balanced_scales(part.graph) if part.scale == "balanced" else part.scale for name, part in graphical
        },
        "model": {name: [*t.shape, str(t.dtype)] for name, t in training.model.state_dict().items()},
        "train_data": checksum(data[0]),
        "valid_data": checksum(data[1]),
    }


def _predictor(learner: Learner) -> list[str]:
    """The options of the predictors; shapes and graphs have entries of their own."""
    predictors = [part.extra_repr() for part in learner.predictor.modules() if isinstance(part, Predictor)]
    return [*map(as_text, predictors), *(["own batches"] if learner.own_batches else [])]


def _optimizer(optimizer: Optimizer, settings: Settings) -> str:
    """Its name and, if it is not the default, its options."""
    if settings.optimizer is None:
        return type(optimizer).__name__
    groups = [{k: v for k, v in group.items() if k not in ("params", "initial_lr")} for group in optimizer.param_groups]
    return f"{type(optimizer).__name__} {as_text(plain(groups))}"


def _scheduler(training: Training, settings: Settings) -> str:
    """A scheduler in words; a half cosine ends with the last epoch, so there `epochs` may not change."""
    if settings.scheduler == "cosine":
        return f"cosine over {settings.epochs} epochs"
    if training.scheduler is None:
        return "None"
    return f"{type(training.scheduler).__name__} {as_text(plain(training.scheduler.state_dict()))}"


def as_text(value: object) -> str:
    """The `repr` of a value without addresses in memory, so that it is the same in the next process."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def agreement(learner: Learner, data: Sequence[Labelled | Stream], settings: Settings) -> int:
    """A number that is the same in processes that can train together: of all but the values of weights and samples."""
    graphs = [part.graph.to_json() for part in learner.predictor.modules() if isinstance(part, LGM)]
    model = [(name, *t.shape, t.dtype) for name, t in learner.predictor.state_dict().items()]
    parts = [settings, learner.objective, type(learner.predictor), _predictor(learner), graphs, model, *map(type, data)]
    return zlib.crc32(as_text(parts).encode())


def checksum(data: Labelled | Stream) -> int | str:
    """A checksum of inputs and targets; a stream has none."""
    if isinstance(data, Stream):
        return "stream"
    inputs, targets = (t.detach().cpu().flatten().view(torch.uint8).numpy() for t in (data.inputs, data.targets))
    return zlib.crc32(targets.data, zlib.crc32(inputs.data))
