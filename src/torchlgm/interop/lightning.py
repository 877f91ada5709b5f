"""A model for `lightning.Trainer`: `from torchlgm.interop.lightning import LightningLGM`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from torchlgm._utils.optional import import_optional
from torchlgm.errors import TrainingError
from torchlgm.learn import Likelihood, Objective, Samples, Settings
from torchlgm.learn.ensemble import answer_of, log_probs_of
from torchlgm.learn.learner import Learner, evaluation
from torchlgm.learn.masking import RandomMask
from torchlgm.learn.prediction import loss_and_accuracy
from torchlgm.learn.samples import check_fits, has_target
from torchlgm.learn.settings import settings_or_default

import_optional("lightning.pytorch", "lightning")

from lightning.pytorch import LightningModule  # noqa: E402


class LightningLGM(LightningModule):
    """A predictor and what it is trained for. Batches are `(inputs, targets)`, NaN = missing.

    Of `settings`, optimizer, learning rate, scheduler, clipping, seed and `visible` count here; epochs, early stopping,
    devices and batches are for the trainer and its loaders to choose. A share or range in `visible` hides entries of
    every batch at random, in validation the same ones each time; "auto" hides none, since the data is not known.
    Whether inputs are in [0, 1], or labels, and targets suit the model is checked in the first batch of every epoch.
    Logs `train_loss`, and `valid_` (or `test_`) `loss` and `accuracy`, by epoch.
    """

    def __init__(
        self, predictor: nn.Module, objective: Objective | None = None, settings: Settings | None = None
    ) -> None:
        super().__init__()
        self.predictor = predictor
        self.learner = Learner(predictor, objective or Likelihood())
        self.settings = settings_or_default(settings)
        visible = self.settings.visible_range
        self.mask = None if visible is None else RandomMask(visible, self.settings.blocks)

    def on_fit_start(self) -> None:
        if self.learner.own_batches:
            raise TrainingError("the members of an ensemble get the batches of one loader here: pass own_batches=False")

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        x, y = self._checked(batch, batch_idx, hides=self.mask is not None)
        complete = None if self.mask is None else x
        x = self._hide(x, self.current_epoch + 1, batch_idx)
        loss = self.learner.loss(x, y, complete)
        self.log("train_loss", loss, on_step=False, on_epoch=True, prog_bar=True, batch_size=len(x))
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self._evaluate("valid", batch, batch_idx)

    def test_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        self._evaluate("test", batch, batch_idx)

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Probabilities, shaped as the predictor answers; a batch is inputs, or a tuple that begins with them."""
        x = batch[0] if isinstance(batch, list | tuple) else batch
        if batch_idx == 0:
            self.learner.check_inputs(x)
        return answer_of(self.predictor, x).exp()

    def configure_optimizers(self) -> Any:
        epochs = self.trainer.max_epochs
        settings = self.settings if not epochs or epochs < 1 else replace(self.settings, epochs=epochs)
        optimizer = settings.make_optimizer(self.predictor.parameters(), self.device)
        scheduler = settings.make_scheduler(optimizer)
        if scheduler is None:
            return optimizer
        timing = {"scheduler": scheduler, "interval": "epoch"}
        if isinstance(scheduler, ReduceLROnPlateau):
            timing["monitor"] = "valid_loss"
        return {"optimizer": optimizer, "lr_scheduler": timing}

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        self.clip_gradients(optimizer, gradient_clip_val or self.settings.clip, gradient_clip_algorithm or "norm")

    def _evaluate(self, part: str, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        hides = part == "valid" and self.mask is not None
        x, y = self._checked(batch, batch_idx, hides)
        x = self._hide(x, 0, batch_idx) if hides else x
        samples = Samples(x, y)
        self.learner.check_inputs(samples.inputs)
        with evaluation(self.predictor):
            log_probs = log_probs_of(self.predictor, samples.inputs)
        loss, accuracy = loss_and_accuracy(log_probs, samples.targets)
        self.log(f"{part}_loss", loss, prog_bar=True, batch_size=len(x))
        scored = int(has_target(samples.targets, log_probs.shape[1]).sum())
        if scored:
            self.log(f"{part}_accuracy", accuracy, prog_bar=True, batch_size=scored)

    def _checked(self, batch: Any, number: int, hides: bool) -> tuple[Tensor, Tensor]:
        """Inputs and targets; of the first batch of an epoch also whether they suit the model."""
        if not (isinstance(batch, list | tuple) and len(batch) == 2 and all(isinstance(t, Tensor) for t in batch)):
            raise TrainingError(f"a batch of type {type(batch).__name__}; expected tensors (inputs, targets)")
        x, y = batch
        if number == 0:
            samples = Samples(x, y, "the first batch")
            check_fits(self.learner, samples, hides, unknown=True)
        return x, y

    def _hide(self, x: Tensor, epoch: int, batch: int) -> Tensor:
        """By a generator of its own for each batch, so that an interrupted training goes on as it would have."""
        if self.mask is None:
            return x
        place = ((self.settings.seed * 10_007 + epoch) * 1_000_003 + batch) * self.trainer.world_size + self.global_rank
        return self.mask(x, torch.Generator(x.device).manual_seed(place % 2**63))
