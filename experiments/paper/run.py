"""Training the cells: several at once on a GPU, one after the other elsewhere; what is done is never done again."""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

import torchlgm as lgm
from experiments.paper import words
from experiments.paper.cards import SEED, keeps_model, lacks_its_model, save_model
from experiments.paper.cells import Experiment, make_model, make_objective, make_settings, valid_batch
from experiments.paper.clock import GRACE, Clock, Left, Watch
from experiments.paper.jobs import Job, Options, joined
from experiments.paper.results import Run, Store, cut_short
from experiments.paper.sources import Sources, first
from experiments.paper.unfinished import Unfinished
from experiments.paper.words import number_of
from torchlgm import LGM, learn, metrics
from torchlgm.data import Data
from torchlgm.errors import CheckpointError, DivergedError, TrainingError
from torchlgm.learn.cuda.streams import before_threads, take_stream

TRAIN_SCORED = 10_000  # training images that are scored too
MOST_FAILURES = 3  # before anything succeeded
WORKERS = 24  # trainings at the same time on a GPU


def train(
    job: Job, sources: Sources, options: Options, folder: Path | None, watch: Watch
) -> list[tuple[nn.Module, Run]]:
    """For each seed, a training from start to test, or on from a state in `folder`."""
    e = job.cell.experiment
    parts = sources.take(e, options.quick)
    models = [make_model(e, seed, parts[0]) for seed in job.seeds]
    model, objective = models[0], make_objective(e)
    if len(models) > 1:
        model, objective = learn.Ensemble(models), learn.Together(objective)
    result = fit_experiment(e, job.seeds[0], model, objective, parts, folder, watch)
    trained = model.members() if isinstance(model, learn.Ensemble) else [model]
    answers = learn.Served(model, learn.EachMember(objective), -(-valid_batch(e) // len(models)))
    tested, trained_on = _scores(answers, parts[2]), _scores(answers, first(parts[0], TRAIN_SCORED))
    runs = []
    for own, scores, train_scores in zip(result.members or (result,), tested, trained_on, strict=True):
        run: Run = {**scores, "train_accuracy": train_scores["accuracy"]}
        run |= {"valid_loss": own.best_loss, "valid_accuracy": own.best["valid_accuracy"]}
        run |= {"best_epoch": own.best_epoch, "epochs": len(own.history), "cap": e.epochs}
        runs.append(run | {"seconds": round(result.seconds, 2), "together": len(models)})
    return list(zip(trained, runs, strict=True))


def fit_experiment(
    e: Experiment,
    seed: int,
    model: nn.Module,
    objective: learn.Objective,
    parts: Sequence[Data],
    folder: Path | None,
    watch: Watch,
) -> learn.Result:
    """Pretrain where that is asked for, then train; with `folder`, on from a state that lies there."""
    settings, device = make_settings(e, seed), parts[0].inputs.device
    try:
        before = _pretrain(e, _lgm(model), parts[0], settings, folder, watch) if e.learner == "cd" else 0.0
        result = learn.fit(
            model, objective, parts[0], parts[1], settings, folder, folder is not None, device, reporters=[watch]
        )
    except CheckpointError as error:
        if isinstance(error.__cause__, OSError):  # a full disk, which has nothing to do with the state
            raise
        what = str(error).partition(";")[0]
        raise CheckpointError(f"{what}; delete {folder} to train it anew, or name another --out") from error
    return replace(result, seconds=before + result.seconds)


def _pretrain(
    e: Experiment, model: LGM, train: Data, settings: learn.Settings, folder: Path | None, watch: Watch
) -> float:
    """The seconds that it took, now or, if the pretrained model lies in `folder`, before."""
    kept = None if folder is None else folder / "pretrained"
    if kept is not None and kept.exists():
        pretrained, card = lgm.load_with_card(kept)
        model.load_state_dict(pretrained.state_dict())
        return card["seconds"]
    began = time.monotonic()
    settings = replace(settings, epochs=min(e.pretraining, e.epochs))
    learn.pretrain(model, train.inputs, settings, k=e.gibbs, after_step=watch.look)
    seconds = time.monotonic() - began
    if kept is not None:
        lgm.save(model, kept, {"seconds": seconds})
    return seconds


def _lgm(model: nn.Module) -> LGM:
    assert isinstance(model, LGM)
    return model


def _scores(answers: learn.Served, part: Data) -> list[dict[str, float]]:
    """The metrics of each model."""
    probs = answers(part.inputs)[:, :, 0].exp()
    return [
        {name: round(value, 5) for name, value in metrics.evaluate(one, part.targets).items()}
        for one in probs.unbind(1)
    ]


def machine(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads, torch {torch.__version__}"


class Runner:
    """Trains jobs and keeps their results; `tell` gets a line for each."""

    def __init__(self, options: Options, tell: Callable[[str], None]) -> None:
        self.options, self.tell = options, tell
        self.device = options.where
        self.store = Store(options.out)
        self.sources = Sources(options.data, self.device)
        self.clock = Clock(options.minutes, options.began)
        self.jobs: Sequence[Job] = ()
        self.left: list[Job] = []
        self.total = 0  # of the trainings that were not done before
        self.lock = threading.Lock()
        self.times: list[float] = []  # own seconds of the trainings that were done here
        self.failures: list[Exception] = []
        self.elsewhere: list[Job] = []  # which other runs train

    def run(self, jobs: Sequence[Job]) -> None:
        """All of them that are not done yet, or as many as there is time for."""
        workers = self.options.workers_or(WORKERS)
        self.jobs, self.left = jobs, [job for job in jobs if self._undone(job)]
        self.total = len(self.left)
        for job in self.left:
            self.sources.load(job.cell.experiment)
        self.tell(
            f"{number_of(len(jobs), 'training')}, {len(jobs) - self.total} done already; on {machine(self.device)}"
        )
        if self.device.type == "cuda" if self.options.joined is None else self.options.joined:
            self.left = joined(self.left)
        workers = min(workers, len(self.left))
        try:
            if workers > 1:
                self._work_together(workers)
            else:
                self._work()
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt(f"stopped; {self._what_is_left()}") from error
        if self.failures:
            raise TrainingError(f"{number_of(len(self.failures), 'training')} failed, see above") from self.failures[0]
        self.left += [job for job in self.elsewhere if self._undone(job)]
        if self.missing:
            self.tell(self._what_is_left())

    @property
    def missing(self) -> int:
        """How many trainings are not done, here or by another run."""
        return sum(len(self._undone(job)) for job in self.jobs)

    def _what_is_left(self) -> str:
        others = sum(len(self._undone(job)) for job in self.elsewhere)
        said = words.left(self.missing, "training") + (f", {others} of them to other runs" if others else "")
        return f"{said}; {self.options.goes_on}"

    def _undone(self, job: Job) -> list[Job]:
        """What is to be trained of it, seed by seed."""
        runs, cell = self.store.runs(job.cell), job.cell
        undone = [seed for seed in job.seeds if seed not in runs or cut_short(runs[seed], cell)]
        if SEED in job.seeds and SEED not in undone and lacks_its_model(cell, self.store):
            undone.insert(0, SEED)
        return [Job(cell, (seed,)) for seed in undone]

    def _work_together(self, workers: int) -> None:
        before_threads(self.device)
        threads = [threading.Thread(target=self._work_apart, daemon=True) for _ in range(workers)]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                time.sleep(0.2)
        except KeyboardInterrupt:
            self.clock.stopped = True
            for thread in threads:
                thread.join(GRACE)
            raise

    def _work_apart(self) -> None:
        take_stream(self.device)
        self._work()

    def _work(self) -> None:
        """What one worker does: job after job."""
        while (job := self._next()) is not None:
            self._do(job)

    def _next(self) -> Job | None:
        with self.lock:
            hopeless = len(self.failures) >= MOST_FAILURES and not self.times
            return None if self.clock.over or self.clock.stopped or hopeless or not self.left else self.left.pop(0)

    def _do(self, job: Job) -> None:
        unfinished = Unfinished(job, self.options)
        try:
            with unfinished.claimed() as ours:
                if not ours:
                    self._leave_to_others(job)
                elif len(undone := self._undone(job)) < len(job.seeds):
                    self._do_only(undone, job)
                else:
                    self.clock.enter(id(job))
                    self._train(job, unfinished)
        except (Left, KeyboardInterrupt) as reason:
            unfinished.keep(self.clock.leave(id(job)))
            with self.lock:
                self.left.append(job)
            if isinstance(reason, KeyboardInterrupt):
                raise
        except Exception as error:
            self.clock.leave(id(job))
            with self.lock:
                self.failures.append(error)
                self.tell(f"{job} failed, {type(error).__name__}: {error}")

    def _leave_to_others(self, job: Job) -> None:
        with self.lock:
            self.elsewhere.append(job)
            self.tell(f"{job}: another run is training it")

    def _do_only(self, undone: list[Job], job: Job) -> None:
        with self.lock:
            self.total -= len(job.seeds) - len(undone)
            self.left[:0] = joined(undone)
            self.tell(f"{job}: another run has done {'some of it' if undone else 'it'}")

    def _train(self, job: Job, unfinished: Unfinished) -> None:
        try:
            trained = train(job, self.sources, self.options, unfinished.folder, Watch(self.clock))
        except DivergedError as error:
            if len(job.seeds) > 1:
                unfinished.end()
                self._take_apart(job, error)
                return
            trained = [(None, {"error": str(error)})]
        own = round((self.clock.leave(id(job)) + unfinished.seconds) / len(job.seeds), 2)
        for seed, (model, run) in zip(job.seeds, trained, strict=True):
            run |= {"own_seconds": own, "machine": machine(self.device)}
            self.store.add(job.cell, seed, run)
            if model is not None and seed == SEED and keeps_model(job.cell):
                save_model(model, job.cell, run, self.options.out)
            with self.lock:
                self.times.append(own)
                self._tell_done(Job(job.cell, (seed,)), run)
        unfinished.end()

    def _take_apart(self, job: Job, error: DivergedError) -> None:
        """One of several seeds failed: train each for itself."""
        self.clock.leave(id(job))
        with self.lock:
            self.tell(f"{job}: {error}; now one by one")
            self.left[:0] = [Job(job.cell, (seed,)) for seed in job.seeds]

    def _tell_done(self, job: Job, run: Run) -> None:
        paper = job.cell.number.accuracy
        beside = "" if paper is None else f" (paper {paper:.3f})"
        said = (
            f"{run['accuracy']:.4f}{beside}, {number_of(run['epochs'], 'epoch')}" if "accuracy" in run else run["error"]
        )
        expected = sum(self.times) / len(self.times) * (self.total - len(self.times))
        self.tell(
            f"[{len(self.times)}/{self.total}] {job}: {said}; "
            f"{_minutes(self.clock.spent)} gone, about {_minutes(expected)} left"
        )


def _minutes(seconds: float) -> str:
    return f"{int(seconds // 60)}:{int(seconds % 60):02d}"
