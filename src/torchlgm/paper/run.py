"""Training the cells: several at once on a GPU, one after the other elsewhere; what is done is never done again."""

from __future__ import annotations

import json
import platform
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from torchlgm import LGM, learn, metrics
from torchlgm.data import Data
from torchlgm.errors import CheckpointError, DataError, TrainingError
from torchlgm.paper.cells import Cell, Experiment, make_model, make_objective, make_settings, valid_batch
from torchlgm.paper.clock import GRACE, Clock, Left, Watch
from torchlgm.paper.results import Run, Store
from torchlgm.paper.sources import Sources, first
from torchlgm.whole import write_whole

STATES = Path("runs") / "paper"  # of trainings under way
FIRST_SEEDS = 3  # before more seeds are begun, all tables have these
TRAIN_SCORED = 10_000  # training images that are scored too
MOST_FAILURES = 3
WORKERS, STREAMS = 24, 32  # trainings at the same time on a GPU, and at most; PyTorch has no more streams


@dataclass(frozen=True)
class Options:
    """How to run cells. `minutes` is when to leave, `epochs` a cap; `quick` takes a few steps only."""

    out: Path
    data: str | None = None
    device: str = "auto"
    workers: int | None = None
    seeds: int | None = None
    epochs: int | None = None
    minutes: float | None = None
    quick: bool = False
    states: Path = STATES

    @property
    def where(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise DataError("--device cuda: no CUDA device is at hand; use --device cpu.")
        return torch.device(self.device)


@dataclass(frozen=True)
class Job:
    """One training: a cell and a seed."""

    cell: Cell
    seed: int

    @property
    def order(self) -> tuple[int, int, float]:
        """The core of the paper first, more seeds last; of equals the longest first, to end at the same time."""
        stage = 2 if self.seed >= FIRST_SEEDS else 0 if self.cell.table.core else 1
        return stage, self.seed, -_cost(self.cell.experiment)

    def __str__(self) -> str:
        return f"{self.cell.name}, {self.cell.way}, seed {self.seed}"


def _cost(e: Experiment) -> float:
    """Roughly, what a training costs."""
    size = {"network": 0.2, "cd": 0.5 * e.gibbs}.get(e.learner, e.iterations * (1 if e.model == "dense" else 3))
    return size * min(e.epochs, 40) * 20 / e.batch


def plan(cells: Iterable[Cell], options: Options) -> list[Job]:
    """The trainings, in the order in which they are begun; a cell has at most its own number of seeds."""
    jobs = [
        Job(_capped(cell, options), seed)
        for cell in cells
        for seed in range(min(options.seeds or cell.seeds, cell.seeds))
    ]
    return sorted(jobs, key=lambda job: job.order)


def _capped(cell: Cell, options: Options) -> Cell:
    cap = 1 if options.quick else options.epochs
    if cap is None:
        return cell
    return replace(cell, experiment=replace(cell.experiment, epochs=min(cap, cell.experiment.epochs)))


def train(job: Job, sources: Sources, options: Options, watch: learn.Reporter) -> tuple[nn.Module, Run]:
    """One training from start to test, or on from where it was left."""
    e = job.cell.experiment
    parts = sources.take(e, options.quick)
    model, objective = make_model(e, job.seed, parts[0]), make_objective(e)
    folder = None if options.quick else state_of(job, options)
    began = time.monotonic()
    result = fit_experiment(e, job.seed, model, objective, parts, folder, watch)
    spent = result.seconds if e.learner != "cd" else time.monotonic() - began
    run: Run = dict(_scores(model, objective, parts[2], valid_batch(e)))
    run["train_accuracy"] = _scores(model, objective, first(parts[0], TRAIN_SCORED), valid_batch(e))["accuracy"]
    run |= {"valid_loss": result.best_loss, "valid_accuracy": result.best["valid_accuracy"]}
    run |= {"best_epoch": result.best_epoch, "epochs": len(result.history), "cap": e.epochs}
    run["capped"] = e.patience is not None and len(result.history) == e.epochs
    return model, run | {"seconds": round(spent, 2)}


def fit_experiment(
    e: Experiment,
    seed: int,
    model: nn.Module,
    objective: learn.Objective,
    parts: Sequence[Data],
    folder: Path | None,
    watch: learn.Reporter,
) -> learn.Result:
    """Pretrain where that is asked for, then train; with `folder`, on from a state that lies there."""
    settings = make_settings(e, seed)
    if e.learner == "cd":
        folder = None  # pretraining cannot be resumed
        learn.pretrain(_lgm(model), parts[0].inputs, replace(settings, epochs=min(e.pretraining, e.epochs)), k=e.gibbs)

    def fit(resume: bool) -> learn.Result:
        device = parts[0].inputs.device
        return learn.fit(model, objective, parts[0], parts[1], settings, folder, resume, device, [watch])

    try:
        return fit(resume=folder is not None and folder.exists())
    except CheckpointError:  # the state is of other settings
        return fit(resume=False)


def _lgm(model: nn.Module) -> LGM:
    assert isinstance(model, LGM)
    return model


def _scores(model: nn.Module, objective: learn.Objective, part: Data, batch: int) -> dict[str, float]:
    probs = learn.predict_log_probs(model, objective, part.inputs, batch)[:, 0].exp()
    return {name: round(value, 5) for name, value in metrics.evaluate(probs, part.targets).items()}


def state_of(job: Job, options: Options) -> Path:
    return options.states / f"{job.cell.file.removesuffix('.json')}.seed{job.seed}"


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
        self.clock = Clock(options.minutes)
        self.lock = threading.Lock()
        self.times: list[float] = []  # own seconds of the trainings that were done here
        self.failures: list[Exception] = []

    def run(self, jobs: Sequence[Job]) -> None:
        """All of them that are not done yet, or as many as there is time for."""
        self.left = [job for job in jobs if job.seed not in self.store.runs(job.cell)]
        self.total = len(self.left)
        self.tell(f"{len(jobs)} trainings, {len(jobs) - self.total} of them done already; on {machine(self.device)}")
        for job in self.left:
            self.sources.load(job.cell.experiment)
        workers = min(self.options.workers or (WORKERS if self.device.type == "cuda" else 1), self.total)
        if self.device.type == "cuda" and workers > STREAMS:
            raise DataError(f"--workers {workers}: CUDA has streams for {STREAMS} trainings at the same time.")
        if workers > 1:
            self._work_together(workers)
        else:
            self._work()
        if self.failures:
            raise TrainingError(f"{len(self.failures)} trainings failed, see above") from self.failures[0]
        if self.left:
            self.tell(f"{len(self.left)} trainings are left; the same command goes on with them")

    def _work_together(self, workers: int) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # the data is there before other streams read it
        torch.optim.Adam([torch.zeros(1, requires_grad=True)])  # imports much of PyTorch, better not in all threads
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(workers)]
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

    def _work(self) -> None:
        """What one worker does: job after job, on a CUDA device on a stream of its own."""
        own = torch.cuda.stream(torch.cuda.Stream(self.device)) if self.device.type == "cuda" else nullcontext()
        with own:
            while (job := self._next()) is not None:
                self._do(job)

    def _next(self) -> Job | None:
        with self.lock:
            enough = self.clock.over or self.clock.stopped or len(self.failures) >= MOST_FAILURES
            return None if enough or not self.left else self.left.pop(0)

    def _do(self, job: Job) -> None:
        self.clock.enter(id(job))
        try:
            self._train(job)
        except (Left, KeyboardInterrupt) as reason:
            _keep(state_of(job, self.options), self.clock.leave(id(job)))
            with self.lock:
                self.left.append(job)
            if isinstance(reason, KeyboardInterrupt):
                raise
        except Exception as error:
            self.clock.leave(id(job))
            with self.lock:
                self.failures.append(error)
                self.tell(f"{job} failed, {type(error).__name__}: {error}")

    def _train(self, job: Job) -> None:
        try:
            model, run = train(job, self.sources, self.options, Watch(self.clock))
        except TrainingError as error:  # of this training, such as a loss that is not finite
            model, run = None, {"error": str(error)}
        state, own = state_of(job, self.options), self.clock.leave(id(job))
        run |= {"own_seconds": round(own + _kept(state), 2), "machine": machine(self.device)}
        self.store.add(job.cell, job.seed, run)
        if model is not None and job.seed == 0 and keeps_model(job.cell):
            save_model(model, job.cell, run, self.options.out)
        shutil.rmtree(state, ignore_errors=True)
        with self.lock:
            self.times.append(own)
            self._tell_done(job, run)

    def _tell_done(self, job: Job, run: Run) -> None:
        paper = job.cell.number.accuracy
        beside = "" if paper is None else f" (paper {paper:.3f})"
        said = f"{run['accuracy']:.4f}{beside}, {run['epochs']} epochs" if "accuracy" in run else run["error"]
        expected = sum(self.times) / len(self.times) * (self.total - len(self.times))
        self.tell(
            f"[{len(self.times)}/{self.total}] {job}: {said}; "
            f"{_minutes(self.clock.spent)} gone, about {_minutes(expected)} left"
        )


def _minutes(seconds: float) -> str:
    return f"{int(seconds // 60)}:{int(seconds % 60):02d}"


def _keep(state: Path, seconds: float) -> None:
    """Remember how much of the machine a training that was left has had."""
    if state.is_dir():
        write_whole(state / "own.json", json.dumps(_kept(state) + seconds).encode())


def _kept(state: Path) -> float:
    path = state / "own.json"
    return json.loads(path.read_text()) if path.exists() else 0.0


def keeps_model(cell: Cell) -> bool:
    """Whether the pictures need the model: Local, inputs partly visible, our column."""
    e = cell.experiment
    return (
        cell.way == "ours" and e.learner == "lgm" and e.model == "local" and e.visible is not None and e.smoothing > 0
    )


def model_folder(cell: Cell, out: Path) -> Path:
    return out / "models" / cell.file.removesuffix(".json").replace("/", "-")


def save_model(model: nn.Module, cell: Cell, run: Run, out: Path) -> None:
    folder = model_folder(cell, out)
    folder.parent.mkdir(parents=True, exist_ok=True)
    card = {"cell": cell.name, "column": cell.way, "seed": 0, "accuracy": run["accuracy"], "machine": run["machine"]}
    learn.save(_lgm(model), folder, card)
