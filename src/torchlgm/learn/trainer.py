"""HOW tables move: minibatch training with validation, early stopping, logs and exact resumption."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import LRScheduler

from torchlgm.data import Data
from torchlgm.errors import TrainingError
from torchlgm.learn.distributed import Group
from torchlgm.learn.objectives import Objective, nll
from torchlgm.learn.reporting import CsvLog, Reporter, default_reporters
from torchlgm.learn.state import Progress, Training
from torchlgm.learn.steps import CapturedStep, PlainStep, Step

CHECK_EVERY = 100  # steps between looks at the loss and at the clock


@dataclass(frozen=True)
class Settings:
    """How to train. `patience` counts epochs without a lower validation loss; None trains all `epochs`.

    `visible` hides entries of every training batch at random: a share that stays visible, or a range from which each
    sample draws its own. `"auto"` does so (range 0.2 to 1) if the data has missing entries. `optimiser` makes one from
    parameters (default Adam), `scheduler` one from the optimiser, stepped every epoch. `capture` is "auto" (a captured
    step on CUDA), "always" or "never".
    """

    epochs: int = 20
    batch: int = 20
    learning_rate: float = 1e-3
    patience: int | None = 5
    seed: int = 0
    visible: float | tuple[float, float] | str | None = "auto"
    clip: float | None = None
    optimiser: Callable[[Iterable[nn.Parameter]], Optimizer] | None = None
    scheduler: Callable[[Optimizer], LRScheduler] | None = None
    capture: str = "auto"
    valid_batch: int = 1000

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "valid_batch"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise TrainingError(f"{name}={getattr(self, name)!r}; expected a whole number >= 1")
        if not self.learning_rate > 0:
            raise TrainingError(f"learning_rate={self.learning_rate!r}; expected a positive number")
        if self.capture not in ("auto", "always", "never"):
            raise TrainingError(f"capture={self.capture!r}; expected 'auto', 'always' or 'never'")
        if isinstance(self.visible, str) and self.visible != "auto":
            raise TrainingError(f"visible={self.visible!r}; expected a share, a range, None or 'auto'")
        low, high = self.visible_range or (1.0, 1.0)
        if not 0 < low <= high <= 1:
            raise TrainingError(f"visible={self.visible!r}; expected shares with 0 < low <= high <= 1")

    @property
    def visible_range(self) -> tuple[float, float] | None:
        if self.visible is None or isinstance(self.visible, str):
            return None
        return self.visible if isinstance(self.visible, tuple) else (self.visible, self.visible)


@dataclass(frozen=True)
class Result:
    """What came of a training; the model holds the weights of `best_epoch`."""

    history: list[dict[str, Any]]
    best_epoch: int
    best_loss: float
    seconds: float


def fit(
    model: nn.Module,
    objective: Objective,
    train: Data,
    valid: Data,
    settings: Settings | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    device: str | torch.device = "cpu",
    reporters: Sequence[Reporter] | None = None,
) -> Result:
    """Train `model` in place and leave it with the weights of the lowest validation loss.

    With `folder`, the state is written there after every epoch and on Ctrl-C; `resume=True` goes on from it, to the
    same weights as an uninterrupted training. Under `torchrun` each process takes its share of every batch.
    """
    settings = settings or Settings()
    train.require_trainable()
    device = torch.device(device)
    group = Group()
    model.to(device)
    training = _start(model, settings, device)
    path = None if folder is None else Path(folder)
    fingerprint = _fingerprint(settings, train, model)
    if path is not None and resume:
        training.restore(path, fingerprint)
    reporters = list(default_reporters() if reporters is None and group.leads else reporters or [])
    if path is not None and group.leads:
        path.mkdir(parents=True, exist_ok=True)
        reporters.append(CsvLog(path / "log.csv", keep_until=training.progress.epoch))
    try:
        _Loop(training, objective, train, valid, settings, device, group, reporters, path, fingerprint).run()
    finally:
        for reporter in reporters:
            reporter.close()
        group.close()
    progress = training.progress
    return Result(progress.history, progress.best_epoch, progress.best_loss, progress.seconds)


def _start(model: nn.Module, settings: Settings, device: torch.device) -> Training:
    if settings.optimiser is not None:
        optimiser = settings.optimiser(model.parameters())
    elif device.type == "cuda":
        rate = torch.tensor(settings.learning_rate, device=device)
        optimiser = Adam(model.parameters(), lr=rate, fused=True, capturable=True)
    else:
        optimiser = Adam(model.parameters(), lr=settings.learning_rate, fused=True)
    scheduler = settings.scheduler(optimiser) if settings.scheduler else None
    generator = torch.Generator(device).manual_seed(settings.seed)
    best = {name: t.detach().clone() for name, t in model.state_dict().items()}
    return Training(model, optimiser, scheduler, generator, Progress(), best)


def _fingerprint(settings: Settings, train: Data, model: nn.Module) -> dict[str, Any]:
    names = ("batch", "learning_rate", "seed", "visible", "clip")
    shapes = {name: list(t.shape) for name, t in model.state_dict().items()}
    sizes = {"samples": len(train), "shapes": shapes}
    values = {name: getattr(settings, name) for name in names}
    return {k: list(v) if isinstance(v, tuple) else v for k, v in {**values, **sizes}.items()}


class _Loop:
    """The epochs of one training."""

    def __init__(
        self,
        training: Training,
        objective: Objective,
        train: Data,
        valid: Data,
        settings: Settings,
        device: torch.device,
        group: Group,
        reporters: Sequence[Reporter],
        folder: Path | None,
        fingerprint: dict[str, Any],
    ) -> None:
        self.training, self.objective, self.settings = training, objective, settings
        self.device, self.group, self.reporters, self.folder = device, group, reporters, folder
        self.fingerprint = fingerprint
        self.samples = len(train)
        visible = settings.visible_range
        if settings.visible == "auto" and (train.has_missing or valid.has_missing):
            visible = (0.2, 1.0)
        self.visible = visible
        fits = _fits(train, device)
        self.train = train.to(device) if fits else train
        self.valid = self._hidden_once(valid)
        self.step = self._make_step(fits)

    def _make_step(self, fits: bool) -> Step:
        t = self.training
        data = (self.train.inputs, self.train.targets)
        mask = None if self.visible is None else _Mask(self.visible)
        plain = PlainStep(
            t.model, self.objective, t.optimiser, data, mask, self.settings.clip, self.group, t.generator, self.device
        )
        capture = self.settings.capture
        able = self.device.type == "cuda" and fits and not self.group.active
        if capture == "always" and not able:
            raise TrainingError("capture='always' needs one CUDA device that holds the data; use capture='auto'")
        if capture == "never" or not able:
            return plain
        return CapturedStep(plain, min(self.settings.batch, self.samples))

    def _hidden_once(self, valid: Data) -> Data:
        """Validation sees fixed masks of the same kind as training."""
        if self.visible is not None:
            generator = torch.Generator().manual_seed(self.settings.seed)
            inputs = _Mask(self.visible)(valid.inputs.cpu(), generator)
            valid = Data(inputs, valid.targets.cpu(), valid.classes, valid.name)
        return valid.to(self.device)

    def run(self) -> None:
        progress, settings = self.training.progress, self.settings
        with _Interruption() as interruption:
            while progress.epoch < settings.epochs and not self._out_of_patience():
                if not self._epoch(interruption):
                    self._save()
                    where = f"; resume from {self.folder}" if self.folder else ", nothing is saved without a folder"
                    raise KeyboardInterrupt(f"stopped in epoch {progress.epoch + 1}{where}")
        self.training.model.load_state_dict(self.training.best)

    def _out_of_patience(self) -> bool:
        p = self.training.progress
        return self.settings.patience is not None and p.epoch - p.best_epoch >= self.settings.patience > 0

    def _epoch(self, interruption: _Interruption) -> bool:
        """One epoch, or the rest of it; False if it was interrupted."""
        progress, batch = self.training.progress, self.settings.batch
        order = torch.randperm(self.samples, generator=_epoch_generator(self.settings.seed, progress.epoch))
        self.step.begin(order)
        began = time.monotonic()
        total = torch.tensor(progress.loss_sum, dtype=torch.float64, device=self.device)
        self.training.model.train()
        for number, at in enumerate(range(progress.at, self.samples, batch)):
            count = min(batch, self.samples - at)
            total += self.step(at, count) * count
            progress.at = at + count
            if (number + 1) % CHECK_EVERY == 0 or self.device.type == "cpu" or interruption.asked:
                self._check(total)
                for reporter in self.reporters:
                    reporter.step(progress.epoch + 1, self.settings.epochs, progress.at, self.samples)
                if interruption.asked:
                    progress.loss_sum = float(total)
                    return False
        self._check(total)
        self._finish_epoch(float(total) / self.samples, time.monotonic() - began)
        return True

    def _check(self, total: Tensor) -> None:
        if math.isfinite(float(total)):
            return
        self.training.model.load_state_dict(self.training.best)
        p = self.training.progress
        raise TrainingError(
            f"the loss became {float(total)} in epoch {p.epoch + 1}; the model has the weights of epoch {p.best_epoch} "
            "again. Try a lower learning rate, gradient clipping (clip=1.0) or a smaller initial scale"
        )

    def _finish_epoch(self, loss: float, seconds: float) -> None:
        p, t = self.training.progress, self.training
        p.epoch, p.at, p.loss_sum = p.epoch + 1, 0, 0.0
        p.seconds += seconds
        valid_loss, accuracy = evaluate_loss(t.model, self.objective, self.valid, self.settings.valid_batch)
        if not math.isfinite(valid_loss):
            self._check(torch.tensor(valid_loss))
        if t.scheduler is not None:
            t.scheduler.step()
        if valid_loss < p.best_loss:
            p.best_loss, p.best_epoch = valid_loss, p.epoch
            t.best = {name: v.detach().clone() for name, v in t.model.state_dict().items()}
        speed = self.samples / max(seconds, 1e-9)
        row = {"epoch": p.epoch, "train_loss": loss, "valid_loss": valid_loss, "valid_accuracy": accuracy}
        row |= {"seconds": seconds, "samples_per_second": speed}
        p.history.append(row)
        self._save()
        for reporter in self.reporters:
            reporter.epoch(row)
            reporter.step(p.epoch, self.settings.epochs, self.samples, self.samples)

    def _save(self) -> None:
        if self.folder is not None and self.group.leads:
            self.training.save(self.folder, self.fingerprint)


def evaluate_loss(model: nn.Module, objective: Objective, data: Data, batch: int = 1000) -> tuple[float, float]:
    """Negative log-likelihood and accuracy of the first target node, without smoothing."""
    log_probs = predict_log_probs(model, objective, data.inputs, batch)
    right = log_probs[:, 0].argmax(-1) == data.targets
    return float(nll(log_probs, data.targets)), float(right.double().mean())


def predict_log_probs(model: nn.Module, objective: Objective, inputs: Tensor, batch: int = 1000) -> Tensor:
    """log of the target's beliefs `(N, nodes, K)`, batch by batch on the model's device."""
    device = next(model.parameters()).device
    model.eval()
    with torch.no_grad():
        return torch.cat([objective.log_probs(model, x.to(device)) for x in inputs.split(batch)])


class _Mask:
    """Hides entries of a batch; each sample draws its visible share from a range. Looks at no value, to be captured."""

    def __init__(self, visible: tuple[float, float]) -> None:
        self.low, self.high = visible

    def __call__(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        shape = (len(x), 1, *x.shape[2:]) if x.dim() == 4 else x.shape  # channels of a pixel go together
        share = self.low + (self.high - self.low) * torch.rand(len(x), generator=generator, device=x.device)
        seen = torch.rand(shape, generator=generator, device=x.device) < share.reshape(-1, *[1] * (x.dim() - 1))
        return x.masked_fill(~seen, math.nan)


class _Interruption:
    """Turns Ctrl-C into a request that is met between two steps; a second one stops at once."""

    def __enter__(self) -> _Interruption:
        self.asked = False
        self.mine = threading.current_thread() is threading.main_thread()
        if self.mine:
            self.old = signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, number: int, frame: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __exit__(self, *error: object) -> None:
        if self.mine:
            signal.signal(signal.SIGINT, self.old)


def _epoch_generator(seed: int, epoch: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed * 1_000_003 + epoch)


def _fits(data: Data, device: torch.device) -> bool:
    """Whether the data may live on the device, leaving half of its memory free."""
    if device.type != "cuda":
        return True
    size = data.inputs.numel() * data.inputs.element_size()
    return size < torch.cuda.mem_get_info(device)[0] / 2
