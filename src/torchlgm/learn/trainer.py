"""HOW tables move: minibatch training with validation, early stopping, logs and exact resumption."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import NoReturn

import torch
from torch import Tensor, nn
from torch.optim import LBFGS
from torch.optim.lr_scheduler import ReduceLROnPlateau

from torchlgm._utils.machine import as_path
from torchlgm.errors import DivergedError, TrainingError
from torchlgm.learn.cuda.captured import CapturedMembers
from torchlgm.learn.cuda.captured_step import CapturedStep
from torchlgm.learn.distributed import Group, require_same
from torchlgm.learn.fingerprint import agreement, checksum, fingerprint
from torchlgm.learn.interruption import Interruption
from torchlgm.learn.learner import Learner
from torchlgm.learn.masking import RandomMask, mask_for
from torchlgm.learn.objectives import Likelihood, Objective
from torchlgm.learn.prediction import loss_and_accuracy
from torchlgm.learn.progress import Progress, Result
from torchlgm.learn.reachability import warn_unless_reached
from torchlgm.learn.reporting import CsvLog, Reporter, default_reporters
from torchlgm.learn.samples import Labelled, Stream, Trainable, as_labelled, as_trainable, check_fits
from torchlgm.learn.settings import Settings, settings_or_default
from torchlgm.learn.state import Training
from torchlgm.learn.step_choice import choose_step, fits_on
from torchlgm.learn.steps import StreamStep
from torchlgm.learn.temperature import reset_temperature
from torchlgm.learn.threads import few_threads
from torchlgm.model import LGM, require_finite_all, wrong_energies

CHECK_EVERY = 100  # steps on a GPU between looks at the loss and at the clock


def fit(
    predictor: nn.Module,
    train: Trainable,
    valid: Trainable,
    objective: Objective | None = None,
    settings: Settings | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    device: str | torch.device | None = None,
    reporters: Sequence[Reporter] | None = None,
) -> Result:
    """Train a predictor in place, and leave it with the weights of the lowest validation loss.

    Under `torchrun`, each process takes its share of every batch. Each member of an `Ensemble` stops on its own and
    keeps its own best weights.

    Parameters
    ----------
    predictor : Posterior, Ensemble or Module
        A module other than the first two maps inputs to logits.
    train, valid : Data, Samples, tuple, Dataset or DataLoader
        Inputs and targets. A `Dataset` of PyTorch is read once; a `DataLoader` or `IterableDataset` in `train` is read
        again in every epoch, with one batch in memory at a time.
    objective : Objective, optional
        What to minimise; `Likelihood()` unless another one is given.
    settings : Settings, optional
        How to train.
    folder : str or Path, optional
        Where to write the state after every epoch and on Ctrl-C; all processes must see it.
    resume : bool
        Continue from the state in `folder`, if there is one, to the weights of an uninterrupted training (except on a
        stream of batches, whose order is not ours). Otherwise, a state in the folder is replaced.
    device : str or torch.device, optional
        Where to train; by default where the predictor is.
    reporters : sequence of Reporter, optional
        What shows progress; None for a progress bar on a terminal, `[]` for none.

    Returns
    -------
    Result
        The history, the best epoch, and the time it took.

    Examples
    --------
    >>> import torchlgm as lgm
    >>> from torchlgm import learn
    >>> x = torch.rand(60, 4, generator=torch.Generator().manual_seed(0))
    >>> y = (x[:, 0] > 0.5).long()
    >>> posterior = lgm.Posterior(lgm.LGM(lgm.zoo.dense(inputs=4, hidden=[3], classes=2)), lgm.lbp(1))
    >>> result = learn.fit(posterior, (x[:50], y[:50]), (x[50:], y[50:]), settings=learn.Settings(epochs=2))
    >>> len(result.history)
    2
    """
    settings = settings_or_default(settings)
    learner = Learner(predictor, Likelihood() if objective is None else objective)
    reset_temperature(predictor)
    train, valid = as_trainable("train", train, settings.batch_size), as_labelled("valid", valid)
    if resume and folder is None:
        raise TrainingError("resume=True needs the folder that the training was saved to: pass folder=...")
    if not isinstance(train, Stream):
        train.require_trainable()
    if not any(p.requires_grad for p in predictor.parameters()):
        raise TrainingError("no parameter of the predictor is to be trained; call requires_grad_() first")
    models = [part for part in predictor.modules() if isinstance(part, LGM)]
    require_finite_all(models, "this model cannot be trained further", TrainingError)
    folder = None if folder is None else as_path(folder, TrainingError)
    group = Group(next(predictor.parameters()).device if device is None else device)
    started: list[Reporter] = []
    try:
        loop = _Loop(learner, (train, valid), settings, group, folder, models)
        loop.begin(resume)
        if group.leads:
            started += default_reporters() if reporters is None else reporters
            started += loop.logs()
        with few_threads(loop.edges) if loop.device.type == "cpu" else nullcontext():
            return loop.run(started)
    finally:
        for reporter in started:
            reporter.close()
        group.close()


class _Loop:
    """The epochs of one training."""

    def __init__(
        self,
        learner: Learner,
        data: tuple[Labelled | Stream, Labelled],
        settings: Settings,
        group: Group,
        folder: Path | None,
        models: Sequence[LGM],
    ) -> None:
        self.settings, self.group, self.folder, self.models = settings, group, folder, models
        self.device = group.device
        train, valid = data
        self.streamed = isinstance(train, Stream)
        in_memory = [part for part in data if not isinstance(part, Stream)]
        mask = mask_for(settings, *in_memory)
        predictor = learner.predictor.to(self.device)
        if group.active:
            require_same(group, agreement(learner, data, settings), "models, settings or kinds of data")
        group.copy_from_leader(predictor.state_dict().values())
        for part in in_memory:
            check_fits(learner, part, hides=mask is not None)
        for part in in_memory if group.active else ():
            require_same(group, int(checksum(part)), part.name)
        if group.leads:
            warn_unless_reached(learner, valid.inputs[:1].to(self.device))
        self.samples = train.samples if isinstance(train, Stream) else len(train)
        batch = train.batch_size if isinstance(train, Stream) else settings.batch_size
        self.edges = (batch or settings.batch_size) * learner.edges
        self.training = _start(learner, settings, self.device)
        self.fingerprint = {} if folder is None else fingerprint(self.training, learner, data, settings, self.device)
        complete = mask is None and not self.streamed and not any(part.has_missing for part in in_memory)
        self.learner = learner.for_complete_inputs() if complete else learner
        if mask is not None:
            valid = _masked_once(valid, mask, settings.seed)
        self.valid = valid.to(self.device) if fits_on(self.device, valid) else valid
        self.step = choose_step(self.learner, self.training, train, mask, settings, group)
        self.answers = self._make_answers()
        self.check_every = 1 if self.device.type == "cpu" else CHECK_EVERY
        self.reporters: Sequence[Reporter] = ()

    def _make_answers(self) -> CapturedMembers:
        """What validation asks; the members of an ensemble take up as much memory as one model."""
        batch = min(len(self.valid), -(-self.settings.valid_batch_size // max(1, self.learner.members)))
        return CapturedMembers(self.learner.predictor, batch, capture=isinstance(self.step, CapturedStep))

    def begin(self, resume: bool) -> None:
        """Take up a saved training, and write a state at once: if that fails, no time is lost."""
        p = self.training.progress
        if resume and self.folder is not None:
            self.training.restore(self.folder, self.fingerprint)
            p = self.training.progress
        if self.group.any(self.group.from_leader([p.epoch, p.at]) != [p.epoch, p.at]):
            raise TrainingError(f"the processes do not see the same training; {self.folder} must be a shared folder")
        self._save()

    def logs(self) -> list[Reporter]:
        return [] if self.folder is None else [CsvLog(self.folder / "log.csv", self.training.progress.history)]

    def run(self, reporters: Sequence[Reporter]) -> Result:
        self.reporters = reporters
        p, settings = self.training.progress, self.settings
        with Interruption() as interruption:
            while p.epoch < settings.epochs and not p.out_of(settings.patience):
                self._epoch(interruption)
                if self.group.any(interruption.asked):
                    self._stop(interruption)
        self.training.model.load_state_dict(self.training.best)
        return p.result()

    def _epoch(self, interruption: Interruption) -> None:
        """One epoch, or the rest of it; returns early if it was interrupted."""
        p = self.training.progress
        began = time.monotonic() - p.spent
        loss = p.loss_sum
        for module in (self.training.model, self.learner.predictor):
            module.train()
        for more, p.at in self._steps():
            loss += more
            if not p.members:  # of members, those that have stopped may do as they like
                self._check(loss)
            for reporter in self.reporters:
                reporter.step(p.epoch + 1, self.settings.epochs, p.at, max(p.at, self.samples))
            if self.group.any(interruption.asked) and (self.streamed or p.at < self.samples):
                p.loss_sum, p.spent = loss, time.monotonic() - began
                return
        if p.at == 0:
            raise TrainingError(
                f"train gave no batch in epoch {p.epoch + 1}; it is read once for every epoch, so pass a DataLoader or "
                "Dataset that can be"
            )
        self.samples = p.at
        self._finish_epoch(loss / self.samples, time.monotonic() - began)

    def _steps(self) -> Iterator[tuple[float, int]]:
        """The sum of the losses of some steps, and how many samples the epoch has had after them."""
        if isinstance(self.step, StreamStep):
            yield from self.step.epoch(self.training.progress.epoch, self.check_every)
            return
        p, batch = self.training.progress, self.settings.batch_size
        self.step.begin(self.learner.order(self.settings, p.epoch, self.samples))
        for first in range(p.at, self.samples, batch * self.check_every):
            last = min(first + batch * self.check_every, self.samples)
            yield float(self.step(first, [min(batch, last - at) for at in range(first, last, batch)])), last

    def _check(self, loss: float) -> None:
        if not math.isfinite(loss):
            self._diverged(f"the loss became {loss}")

    def _diverged(self, how: str) -> NoReturn:
        self.training.model.load_state_dict(self.training.best)
        p = self.training.progress
        raise DivergedError(
            f"{how} in epoch {p.epoch + 1}; the model has the weights of epoch {p.best_epoch} again. "
            "Try a lower learning rate, gradient clipping (clip=1.0) or a smaller initial scale"
        )

    def _finish_epoch(self, loss: float, seconds: float) -> None:
        p, t = self.training.progress, self.training
        active = [i for i, member in enumerate(p.members or [p]) if not member.out_of(self.settings.patience)]
        scores = self._validate()
        valid_loss, accuracy = (fmean(scores[i][k] for i in active) for k in (0, 1))
        self._check(valid_loss)
        if not p.members and any(map(wrong_energies, self.models)):
            self._diverged("energies became too large to compute with")
        p.seconds += seconds
        if isinstance(t.scheduler, ReduceLROnPlateau):
            t.scheduler.step(valid_loss)
        elif t.scheduler is not None:
            t.scheduler.step()
        row = {"epoch": p.epoch + 1, "train_loss": loss, "valid_loss": valid_loss, "valid_accuracy": accuracy}
        row |= {"seconds": seconds, "samples_per_second": self.samples / max(seconds, 1e-9)}
        better = p.record(row)
        if p.members:
            for i in active:
                p.members[i].seconds += seconds
                if p.members[i].record(row | {"valid_loss": scores[i][0], "valid_accuracy": scores[i][1]}):
                    t.keep_member(i)
        elif better:
            t.best = _weights(t.model)
        self._save()
        for reporter in self.reporters:
            reporter.epoch(row)

    def _validate(self) -> list[tuple[float, float]]:
        """Loss and accuracy, for an ensemble those of each member."""
        log_probs = self.answers(self.valid.inputs)
        scores = [loss_and_accuracy(member, self.valid.targets) for member in log_probs.unbind(1)]
        return [(loss, accuracy) for loss, accuracy in map(self.group.from_leader, scores)]

    def _stop(self, interruption: Interruption) -> None:
        p = self.training.progress
        if not p.members:
            for parameter in self.training.model.parameters():
                self._check(float(parameter.detach().sum()))
        state = "without a folder, nothing is saved"
        if self.folder is not None and self.streamed:
            state = f"the state after epoch {p.epoch} is saved in {self.folder}, resume=True continues from it"
        elif self.folder is not None:
            self._save()
            state = f"the state is saved in {self.folder}, resume=True continues from it"
        raise interruption.stop(f"stopped in epoch {p.epoch + 1}: {state}")

    def _save(self) -> None:
        if self.folder is not None and self.group.leads:
            self.training.save(self.folder, self.fingerprint)


def _start(learner: Learner, settings: Settings, device: torch.device) -> Training:
    model = learner.predictor
    optimizer = settings.make_optimizer(model.parameters(), device)
    if isinstance(optimizer, LBFGS):
        raise TrainingError("LBFGS asks for the loss several times in a step, which fit does not do; use another")
    scheduler = settings.make_scheduler(optimizer)
    generator = torch.Generator(device).manual_seed(settings.seed)
    members = [Progress() for _ in range(learner.members)]
    return Training(model, optimizer, scheduler, generator, Progress(members=members), _weights(model))


def _weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: t.detach().clone() for name, t in model.state_dict().items()}


def _masked_once(valid: Labelled, mask: RandomMask, seed: int) -> Labelled:
    """Validation sees fixed masks of the same kind as training."""
    return replace(valid, inputs=mask(valid.inputs.cpu(), torch.Generator().manual_seed(seed)))
