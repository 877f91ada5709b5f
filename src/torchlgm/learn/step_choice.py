"""Which kind of step a training takes: captured, plain, or of batches from a stream."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim import Optimizer

from torchlgm.errors import TrainingError
from torchlgm.learn.cuda.captured_step import CapturedStep
from torchlgm.learn.distributed import Group
from torchlgm.learn.learner import Learner
from torchlgm.learn.masking import RandomMask
from torchlgm.learn.samples import Labelled, Stream
from torchlgm.learn.settings import Settings
from torchlgm.learn.state import Training
from torchlgm.learn.steps import OptimizerStep, PlainStep, Step, StreamStep


def choose_step(
    learner: Learner,
    training: Training,
    train: Labelled | Stream,
    mask: RandomMask | None,
    settings: Settings,
    group: Group,
) -> Step | StreamStep:
    """Captured where that can be done, unless the settings say otherwise; TrainingError if it must be and cannot."""
    optimizer, device = training.optimizer, group.device
    fits = not isinstance(train, Stream) and fits_on(device, train)
    obstacle = capture_obstacle(learner, optimizer)
    if device.type != "cuda" or not fits or group.active:
        obstacle = "it needs one CUDA device that holds the data"
    if settings.capture == "always" and obstacle:
        raise TrainingError(f"a step cannot be captured: {obstacle}; use capture='auto'")
    update = OptimizerStep(learner, optimizer, group, mask, settings.clip, training.generator)
    if isinstance(train, Stream):
        _check_stream(learner)
        return StreamStep(update, train, settings.seed)
    train = train.to(device) if fits else train
    plain = PlainStep(update, train.inputs, train.targets)
    if settings.capture == "never" or obstacle:
        return plain
    return CapturedStep(plain, min(settings.batch_size, len(train)))


def capture_obstacle(learner: Learner, optimizer: Optimizer) -> str | None:
    """Why a step cannot be captured, if it cannot: a captured step looks at no value and knows only tensors."""
    if not learner.capturable:
        return "exact inference, one with a tolerance, or the objective depends on values"
    if not all(group.get("capturable") and isinstance(group["lr"], Tensor) for group in optimizer.param_groups):
        return "the optimizer must have capturable=True and a tensor as its learning rate"
    return None


def fits_on(device: torch.device, data: Labelled) -> bool:
    """Whether the data may live on the device, leaving half of its memory free."""
    if device.type != "cuda":
        return True
    size = data.inputs.numel() * data.inputs.element_size()
    return size < torch.cuda.mem_get_info(device)[0] / 2


def _check_stream(learner: Learner) -> None:
    if learner.own_batches:
        raise TrainingError(
            "a stream gives all members of an ensemble the same batches; pass the data in memory, or make the "
            "Ensemble with own_batches=False"
        )
