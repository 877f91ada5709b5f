"""How to train, as a frozen record."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from torchlgm._utils.validate import check_choice, check_int, check_positive
from torchlgm.errors import TrainingError
from torchlgm.learn.cuda.adam import SplitAdam

MOST_SEED = 2**32 - 1  # seeds of epochs are made of it, and have to fit into 64 bits


@dataclass(frozen=True)
class Settings:
    """How to train, as a frozen record.

    Parameters
    ----------
    epochs : int
        The most passes over the data.
    batch_size : int
        Samples in a step, over all processes.
    learning_rate : float
        The default suits tables at the balanced scale; for neural networks, use about 0.001.
    patience : int or None
        Stop after this many epochs without a lower validation loss; None trains all `epochs`.
    seed : int
        The seed of the order of samples and of what is hidden.
    visible : float, tuple of float, "auto" or None
        The share of entries that stays visible in training, or a range from which each sample draws its own; None hides
        nothing. `"auto"` is 0.2 to 1 if the data has missing entries, and otherwise None.
    clip : float, optional
        The largest gradient norm.
    optimizer : callable, optional
        Makes an optimizer from parameters; None for Adam.
    scheduler : callable, "cosine" or None
        Makes a scheduler from the optimizer, stepped every epoch. `"cosine"` lets the learning rate fall to 0 along a
        half cosine over `epochs`, None keeps it constant.
    capture : {"auto", "always", "never"}
        Whether to capture the step as a CUDA graph; `"auto"` does so where it can.
    valid_batch_size : int
        Samples at a time in validation.
    blocks : float
        The share of images that hide a rectangle, a half or a band instead of scattered pixels.
    """

    epochs: int = 20
    batch_size: int = 20
    learning_rate: float = 1e-2
    patience: int | None = 5
    seed: int = 0
    visible: float | tuple[float, float] | str | None = "auto"
    clip: float | None = None
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] | None = None
    scheduler: Callable[[Optimizer], LRScheduler] | str | None = "cosine"
    capture: str = "auto"
    valid_batch_size: int = 1000
    blocks: float = 0.0

    def __post_init__(self) -> None:
        for name, low in (("epochs", 1), ("batch_size", 1), ("valid_batch_size", 1), ("patience", 1), ("seed", 0)):
            value = getattr(self, name)
            if (name, value) == ("patience", None):
                continue
            object.__setattr__(self, name, check_int(name, value, low, error=TrainingError))
        if self.seed > MOST_SEED:
            raise TrainingError(f"seed={self.seed}; expected at most {MOST_SEED}")
        for name in ("learning_rate", "clip"):
            value = getattr(self, name)
            if (name, value) == ("clip", None):
                continue
            object.__setattr__(self, name, check_positive(name, value, error=TrainingError))
        if self.optimizer is not None and not callable(self.optimizer):
            raise TrainingError(
                f"optimizer={self.optimizer!r}; expected a function of the parameters, such as "
                "lambda p: torch.optim.SGD(p, lr=0.1), or None for Adam"
            )
        if self.scheduler not in ("cosine", None) and not callable(self.scheduler):
            raise TrainingError(f"scheduler={self.scheduler!r}; expected 'cosine', a function of the optimizer or None")
        check_choice("capture", self.capture, ("auto", "always", "never"), error=TrainingError)
        if self.visible not in (None, "auto"):
            object.__setattr__(self, "visible", _shares(self.visible))
        if not (isinstance(self.blocks, Real) and 0 <= self.blocks <= 1):
            raise TrainingError(f"blocks={self.blocks!r}; expected the share of samples that hide a block, 0 to 1")

    @property
    def visible_range(self) -> tuple[float, float] | None:
        if self.visible is None or isinstance(self.visible, str):
            return None
        return self.visible if isinstance(self.visible, tuple) else (self.visible, self.visible)

    def order(self, epoch: int, samples: int, member: int = 0) -> Tensor:
        """The order of the samples in an epoch (counted from 0), for a member of an ensemble by a seed of its own."""
        generator = torch.Generator().manual_seed((self.seed + member) * 1_000_003 + epoch)
        return torch.randperm(samples, generator=generator)

    def make_optimizer(self, parameters: Iterable[nn.Parameter], device: torch.device) -> Optimizer:
        """The chosen optimizer, or Adam in the form that is fastest on the device."""
        if self.optimizer is not None:
            return _checked(self.optimizer(parameters))
        if device.type == "cuda":
            rate = torch.tensor(self.learning_rate, device=device)
            return SplitAdam(parameters, lr=rate, capturable=True)
        return Adam(parameters, lr=self.learning_rate, fused=True)

    def make_scheduler(self, optimizer: Optimizer) -> LRScheduler | None:
        if self.scheduler is None:
            return None
        if not isinstance(self.scheduler, str):
            scheduler = self.scheduler(optimizer)
            if not hasattr(scheduler, "step"):
                raise TrainingError(
                    f"scheduler= returned {scheduler!r}; expected a scheduler, such as StepLR(optimizer, 5)"
                )
            return scheduler
        return LambdaLR(optimizer, lambda epoch: 0.5 * (1 + math.cos(math.pi * min(epoch / self.epochs, 1))))


def _shares(visible: Any) -> float | tuple[float, float]:
    shares = visible if isinstance(visible, tuple | list) else (visible, visible)
    if len(shares) != 2 or not all(isinstance(share, Real) for share in shares):
        raise TrainingError(f"visible={visible!r}; expected a share, a range (low, high), None or 'auto'")
    low, high = map(float, shares)
    if not 0 < low <= high <= 1:
        raise TrainingError(f"visible={visible!r}; expected shares with 0 < low <= high <= 1")
    return (low, high) if isinstance(visible, tuple | list) else low


def _checked(optimizer: object) -> Optimizer:
    if not isinstance(optimizer, Optimizer):
        raise TrainingError(f"optimizer= returned {optimizer!r}; expected a function that returns an optimizer")
    return optimizer


def settings_or_default(settings: Settings | None) -> Settings:
    if settings is None:
        return Settings()
    if not isinstance(settings, Settings):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TrainingError(f"settings={settings!r}; expected learn.Settings(...), such as learn.Settings(epochs=10)")
    return settings
