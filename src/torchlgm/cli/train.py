"""From data to a run folder with a trained model, its figures and its pictures."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any

import torch
from torch import Tensor, nn

from torchlgm._utils.signals import Terminated
from torchlgm.cli import samples
from torchlgm.cli.classifier import Classifier
from torchlgm.cli.config import Config, ImageConfig
from torchlgm.cli.console import is_quiet, print_line
from torchlgm.cli.evaluate import CURVE, SHARES, ShareRows, averaged, by_chance, by_share, filling
from torchlgm.cli.html import write_report
from torchlgm.cli.io import as_csv, as_json, write_text
from torchlgm.cli.models import make_classifier, make_network
from torchlgm.cli.pictures import is_image, write_pictures
from torchlgm.cli.runs import (
    CONFIG,
    LOG,
    METRICS,
    MODEL,
    TRAINING,
    Run,
    alone_in,
    make_run_folder,
    read_unfinished,
    save_network,
)
from torchlgm.cli.words import MODELS
from torchlgm.data import Data, Dataset, load, names, random_split
from torchlgm.errors import DataError, LGMError, TrainingError
from torchlgm.learn import (
    JointLikelihood,
    Likelihood,
    Objective,
    Result,
    SeedRun,
    Settings,
    fit_seeds,
    fit_temperature,
    predict_proba,
)
from torchlgm.learn.distributed import Group, processes
from torchlgm.learn.fingerprint import checksum
from torchlgm.learn.reporting import COLUMNS, ProgressLines, Reporter, default_reporters
from torchlgm.learn.threads import few_threads
from torchlgm.posterior import Posterior

TRAIN_SHARE = 0.85  # the rest of the training part validates


@dataclass(frozen=True)
class Job:
    """A configuration with its data at hand, and a classifier that has learned nothing yet."""

    config: ImageConfig
    dataset: Dataset
    train: Data
    valid: Data
    device: torch.device
    template: Classifier

    @staticmethod
    def prepare(config: ImageConfig) -> Job:
        """Everything that can go wrong before a training starts goes wrong here."""
        device = choose_device(config.device)
        dataset = load(config.data, config.data_folder, missing_value=config.missing_value)
        total = len(dataset.train) + len(dataset.test)
        dataset.train.require_trainable(total)
        train, valid = random_split(dataset.train, TRAIN_SHARE, seed=0)
        train.require_trainable(total)
        if config.compare:
            make_network(config, tuple(train.inputs.shape[1:]), len(train.classes), config.seed)
        job = Job(config, dataset, train, valid, device, make_classifier(config, train, config.seed))
        _ = job.settings, job.objective
        return job

    @property
    def settings(self) -> Settings:
        c = self.config
        return Settings(
            epochs=c.epochs_for(len(self.train)),
            batch_size=c.batch_size,
            learning_rate=c.learning_rate,
            patience=c.patience_for(len(self.train)),
            visible=c.visible if c.hides else "auto",
            valid_batch_size=self.template.batch,
        )

    @property
    def objective(self) -> Objective:
        """What the LGM minimises: it learns to fill in inputs if some are missing."""
        filling = self.config.fill and (self.config.hides or self.train.has_missing)
        smoothing = self.config.smoothing
        return JointLikelihood(self.config.fill, smoothing) if filling else Likelihood(smoothing)

    def make_posterior(self, seed: int) -> Posterior:
        return make_classifier(self.config, self.train, seed).posterior

    def make_network(self, seed: int) -> nn.Module:
        return make_network(self.config, tuple(self.train.inputs.shape[1:]), len(self.train.classes), seed)


@dataclass(frozen=True)
class Trained:
    """A predictor that was trained from one seed."""

    seed: int
    predictor: nn.Module
    result: Result
    predict: Callable[[Tensor], Tensor]
    rows: ShareRows

    @property
    def figures(self) -> dict[str, Any]:
        r = self.result
        figures = {"seed": self.seed, "epochs": len(r.history), "seconds": r.seconds, "best": r.best, "test": self.rows}
        calibrated = isinstance(self.predictor, Posterior) and self.predictor.temperature != 1
        return figures | ({"temperature": self.predictor.temperature} if calibrated else {})


def train(config: Config, out: Path | None = None, report: Callable[[str], None] = print) -> Run | None:
    """Train as configured into the folder `out`, or into a new one below runs/.

    Under torchrun the processes train together, an unfinished run in `out` goes on, and only the first gives a Run.
    """
    if Path(config.data).exists() and config.data not in names():
        config = replace(config, data=str(Path(config.data).absolute()))
    if config.data_folder is not None:
        config = replace(config, data_folder=str(Path(config.data_folder).absolute()))
    job = Job.prepare(config.for_images())
    config = job.config
    stem = f"{Path(config.data).stem}-{config.model}"
    with processes(job.device) as group:
        goes_on = group.active and group.decided(lambda: _is_unfinished(out, config))
        folder = Path(out) if goes_on and out else group.decided(lambda: make_run_folder(out, stem))
        try:
            if group.leads:
                write_text(folder / CONFIG, config.to_json())
            return _alone(job, folder, goes_on, report, group)
        finally:
            if group.leads and not _has_state(folder) and not (folder / METRICS).exists():
                shutil.rmtree(folder, ignore_errors=True)


def resume(folder: Path, report: Callable[[str], None] = print) -> Run | None:
    """Go on with a training that was stopped, to the same end as if it had not been."""
    config = read_unfinished(folder)
    if (folder / METRICS).is_file():  # it was stopped when there was only its state left to delete
        with alone_in(folder):
            shutil.rmtree(folder / TRAINING, ignore_errors=True)
        return Run.load(folder)
    job = Job.prepare(config.for_images())
    with processes(job.device) as group:
        return _alone(job, folder, True, report, group)


def _is_unfinished(out: Path | None, config: Config) -> bool:
    """Whether the same training was begun in this folder."""
    return (
        out is not None and (out / CONFIG).is_file() and _has_state(out) and read_unfinished(out).for_images() == config
    )


def _alone(job: Job, folder: Path, resumed: bool, report: Callable[[str], None], group: Group) -> Run | None:
    """Train while no other training writes to the folder: it is locked by the first process."""
    with ExitStack() as stack:
        group.decided(lambda: stack.enter_context(alone_in(folder)))
        return _complete(job, folder, resumed, report if group.leads else lambda line: None, group)


def choose_device(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise DataError("--device cuda: no CUDA device is available here; use --device cpu or auto")
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)


def _has_state(folder: Path) -> bool:
    return any(folder.glob(f"{TRAINING}/*/*/state-*"))


def _complete(job: Job, folder: Path, resumed: bool, report: Callable[[str], None], group: Group) -> Run | None:
    """Train and report; if it fails when something has been trained, say how to go on or where that is."""
    try:
        return _train_and_report(job, folder, resumed, report, group)
    except (KeyboardInterrupt, Terminated, LGMError, OSError) as error:
        if not _has_state(folder):
            raise
        advice = f"go on with `torchlgm train --resume {quote(str(folder))}`"
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(f"stopped; {advice}") from error
        if isinstance(error, Terminated):
            raise Terminated(error.number, f"{Terminated(error.number)}; {advice}") from error
        if isinstance(error, OSError) or isinstance(error.__cause__, OSError):
            advice = f"make room, then {advice}"
        elif resumed:
            raise
        else:
            advice = f"it is in {folder}"
        raise TrainingError(f"{str(error).rstrip('.')}. What was trained is kept: {advice}") from error


def _train_and_report(job: Job, folder: Path, resumed: bool, report: Callable[[str], None], group: Group) -> Run | None:
    config, test = job.config, job.dataset.test
    report(f"Training an LGM on {job.train.name}: {len(job.train):,} samples, {job.template.inference} ...")
    runs = {"lgm": _fit(job, folder, "lgm", job.make_posterior, job.objective, resumed)}
    if config.compare:
        report("Training the neural network of the same shape, missing inputs filled with 0.5 ...")
        objective = Likelihood(config.smoothing)
        runs["network"] = _fit(job, folder, "network", job.make_network, objective, resumed)
    if not group.leads:
        return None
    models = {name: [_judged(run, job) for run in seeds] for name, seeds in runs.items()}
    chosen = {name: min(trained, key=lambda t: t.result.best_loss) for name, trained in models.items()}
    posterior = chosen["lgm"].predictor
    assert isinstance(posterior, Posterior)
    classifier = replace(job.template, model=posterior.model, temperature=posterior.temperature)
    classifier.save(folder / MODEL)
    if config.compare:
        save_network(chosen["network"].predictor, folder)
    write_text(folder / LOG, _log(models))
    if config.pictures:
        report("Drawing ...")
        predictors = {MODELS[name]: t.predict for name, t in chosen.items()}
        curves = {MODELS[name]: t.rows for name, t in chosen.items()}
        write_pictures(folder, classifier, chosen["lgm"].result.history, test, predictors, curves)
    if is_image(classifier.shape):
        samples.write_images(folder, test)
    metrics = {
        "samples": {"train": len(job.train), "valid": len(job.valid), "test": len(test)},
        "test_checksum": checksum(test),
        "most_frequent": float((test.targets == job.train.targets.mode().values).float().mean()),
        "chosen_seed": chosen["lgm"].seed,
        "filling": filling(classifier, job.train, test),
        "by_chance": by_chance(chosen["lgm"].predict, test, SHARES),
        **({"brightness": float(job.train.inputs.nanmean())} if is_image(classifier.shape) else {}),
        "test": {name: averaged([t.rows for t in trained]) for name, trained in models.items()},
        "seeds": {name: [t.figures for t in trained] for name, trained in models.items()},
    }
    run = Run(folder, config, metrics)
    write_report(run)
    write_text(folder / METRICS, as_json(metrics))  # with this, it is finished
    shutil.rmtree(folder / TRAINING, ignore_errors=True)
    return run


def _fit(
    job: Job, folder: Path, name: str, make: Callable[[int], nn.Module], objective: Objective, resumed: bool
) -> list[SeedRun]:
    config = job.config
    with few_threads(config.batch_size * job.template.model.graph.edges):
        return fit_seeds(
            make,
            job.train,
            job.valid,
            objective,
            job.settings,
            range(config.seed, config.seed + config.seeds),
            folder / TRAINING / name,
            resumed,
            job.device,
            lambda seed: _reporters(MODELS[name] + (f", seed {seed}" if config.seeds > 1 else "")),
            together=job.device.type == "cuda" and config.seeds > 1,
        )


def _reporters(title: str) -> Sequence[Reporter]:
    """A bar on a terminal, a line now and then elsewhere."""
    return [] if is_quiet() else default_reporters(title) or [ProgressLines(title, print_line)]


def _judged(run: SeedRun, job: Job) -> Trained:
    batch = job.settings.valid_batch_size
    if job.config.calibrate and isinstance(run.predictor, Posterior):
        fit_temperature(run.predictor, job.valid, batch_size=batch)

    def predict(x: Tensor) -> Tensor:
        return predict_proba(run.predictor, x, batch).cpu()

    return Trained(run.seed, run.predictor, run.result, predict, by_share(predict, job.dataset.test, CURVE))


def _log(models: dict[str, list[Trained]]) -> str:
    rows: list[Sequence[object]] = [
        [name, t.seed, *[row[column] for column in COLUMNS]]
        for name, trained in models.items()
        for t in trained
        for row in t.result.history
    ]
    return as_csv(["model", "seed", *COLUMNS], rows)
