"""Training the cells: several at once on a GPU, one after the other elsewhere; what is done is never done again."""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from experiments.paper import runner
from experiments.paper.cells import Cell, Experiment
from experiments.paper.model_cards import SEED, keeps_model, lacks_model, save_model
from experiments.paper.options import Options
from experiments.paper.runner import machine
from experiments.paper.sources import Sources
from experiments.paper.store import Run, State, Store, cut_short, digest, plural
from experiments.pool import Budget, TimeUp, Watch, run_all
from torchlgm.errors import DivergedError, TrainingError

MOST_FAILURES = 3  # before anything succeeded
FIRST_SEEDS = 3  # before more seeds begin, all tables have these


@dataclass(frozen=True)
class Job:
    """The training of a cell with one seed, or with several consecutive ones in one step."""

    cell: Cell
    seeds: tuple[int, ...]

    @property
    def order(self) -> tuple[int, int, float]:
        """The core of the paper first, more seeds and what is worth one seed only last; of equals the longest first,
        to end at the same time."""
        last = self.seeds[0] >= FIRST_SEEDS or self.cell.seeds == 1
        stage = 2 if last else 0 if self.cell.table.core else 1
        return stage, self.seeds[0], -_cost(self.cell.experiment)

    def __str__(self) -> str:
        return f"{self.cell.name}, {self.cell.way}, seed {', '.join(map(str, self.seeds))}"


def _cost(e: Experiment) -> float:
    """Roughly, what a training costs."""
    size = {"network": 0.2, "cd": 0.5 * e.gibbs}.get(e.learner, e.iterations * (1 if e.model == "dense" else 3))
    return size * min(e.epochs, 40) * 20 / e.batch


def plan(cells: Iterable[Cell], options: Options) -> list[Job]:
    """The trainings, in the order in which they begin; a cell has at most its own number of seeds."""
    jobs = [
        Job(cell, (seed,))
        for cell in (replace(cell, experiment=options.cap(cell.experiment)) for cell in cells)
        for seed in range(min(options.seeds or cell.seeds, cell.seeds))
    ]
    return sorted(jobs, key=lambda job: job.order)


def joined(jobs: Sequence[Job]) -> list[Job]:
    """The same trainings with consecutive seeds of a cell as one job, as early as the first of them."""
    result: list[Job] = []
    for job in jobs:
        for i, other in enumerate(result):
            follows = job.cell is other.cell and job.seeds[0] == other.seeds[-1] + 1 and job.order[0] == other.order[0]
            if follows and job.cell.experiment.learner != "cd":  # its pretraining takes single models
                result[i] = Job(job.cell, other.seeds + job.seeds)
                break
        else:
            result.append(job)
    return result


class Trainer:
    """Trains jobs and keeps their results; `log` gets a line for each."""

    def __init__(self, options: Options, log: Callable[[str], None]) -> None:
        self.options, self.log = options, log
        self.device = options.torch_device
        self.store = Store(options.out)
        self.sources = Sources(options.data, self.device)
        self.budget = Budget(options.minutes, options.began)
        self.jobs: Sequence[Job] = ()
        self.total = 0  # trainings that were not done before
        self.lock = threading.Lock()
        self.times: list[float] = []  # own seconds of the trainings that were done by this run
        self.failures: list[Exception] = []
        self.elsewhere: list[Job] = []  # which other runs train

    def run(self, jobs: Sequence[Job]) -> None:
        """All of them that are not done yet, or as many as there is time for."""
        workers, self.jobs = self.options.most_workers, jobs
        todo = [job for job in jobs if self._undone(job)]
        self.total = len(todo)
        for job in todo:
            self.sources.load(job.cell.experiment)
        self.log(f"{plural(len(jobs), 'training')}, {len(jobs) - self.total} done already; on {machine(self.device)}")
        in_one_step = self.device.type == "cuda" if self.options.joined is None else self.options.joined
        try:
            run_all(self._do, joined(todo) if in_one_step else todo, workers, self.device, self.budget)
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt(f"stopped; {self._what_is_left()}") from error
        if self.failures:
            raise TrainingError(f"{plural(len(self.failures), 'training')} failed, see above") from self.failures[0]
        if self.missing:
            self.log(self._what_is_left())

    @property
    def missing(self) -> int:
        """How many trainings are not done, by this run or by another."""
        return sum(len(self._undone(job)) for job in self.jobs)

    def _what_is_left(self) -> str:
        others = sum(len(self._undone(job)) for job in self.elsewhere)
        other_runs = f", {others} of them to other runs" if others else ""
        verb = "is" if self.missing == 1 else "are"
        return f"{plural(self.missing, 'training')} {verb} left{other_runs}; {self.options.to_continue}"

    def _undone(self, job: Job) -> list[Job]:
        """What is to be trained of it, seed by seed."""
        runs, cell = self.store.runs(job.cell), job.cell
        undone = [seed for seed in job.seeds if seed not in runs or cut_short(runs[seed], cell)]
        if SEED in job.seeds and SEED not in undone and lacks_model(cell, self.store):
            undone.insert(0, SEED)
        return [Job(cell, (seed,)) for seed in undone]

    def state(self, job: Job) -> State:
        """Its name distinguishes all settings: a training with others, such as fewer epochs, leaves it alone."""
        if self.options.quick:
            return State(None)
        settings = digest(job.cell.experiment, self.device.type)
        seeds = "-".join(map(str, job.seeds))
        return self.store.state(f"{job.cell.table.label}-{job.cell.slug}.seed{seeds}.{settings}")

    def _do(self, job: Job) -> None:
        for part in self._attempt(job):
            self._do(part)

    def _attempt(self, job: Job) -> list[Job]:
        """Train a job; what is to be trained instead, if parts of it are done already or one of its seeds diverges."""
        state = self.state(job)
        try:
            with state.claimed() as ours:
                if not ours:
                    self.elsewhere.append(job)
                    self.log(f"{job}: another run is training it")
                    return []
                undone = self._undone(job)
                if len(undone) < len(job.seeds):
                    self.total -= len(job.seeds) - len(undone)
                    self.log(f"{job}: another run has done {'some of it' if undone else 'it'}")
                    return joined(undone)
                self.budget.enter(id(job))
                return self._train(job, state)
        except (TimeUp, KeyboardInterrupt) as reason:
            state.keep(self.budget.leave(id(job)))
            if isinstance(reason, KeyboardInterrupt):
                raise
        except Exception as error:
            self.budget.leave(id(job))
            self.failures.append(error)
            self.log(f"{job} failed, {type(error).__name__}: {error}")
            self.budget.stopped |= len(self.failures) >= MOST_FAILURES and not self.times
        return []

    def _train(self, job: Job, state: State) -> list[Job]:
        try:
            parts = self.sources.take(job.cell.experiment, self.options.quick)
            trained = runner.train(job.cell.experiment, job.seeds, parts, state.folder, Watch(self.budget))
        except DivergedError as error:
            if len(job.seeds) > 1:
                state.remove()
                self.budget.leave(id(job))
                self.log(f"{job}: {error}; now one by one")
                return [Job(job.cell, (seed,)) for seed in job.seeds]
            trained = [(None, {"error": str(error)})]
        own = round((self.budget.leave(id(job)) + state.seconds) / len(job.seeds), 2)
        for seed, (model, run) in zip(job.seeds, trained, strict=True):
            run |= {"own_seconds": own, "machine": machine(self.device)}
            self.store.add(job.cell, seed, run)
            if model is not None and seed == SEED and keeps_model(job.cell):
                save_model(model, job.cell, run, self.store)
            with self.lock:
                self.times.append(own)
                self._log_run(Job(job.cell, (seed,)), run)
        state.remove()
        return []

    def _log_run(self, job: Job, run: Run) -> None:
        paper = "" if job.cell.paper.accuracy is None else f" (paper {job.cell.paper.accuracy:.3f})"
        result = run.get("error") or f"{run['accuracy']:.4f}{paper}, {plural(run['epochs'], 'epoch')}"
        expected = sum(self.times) / len(self.times) * (self.total - len(self.times))
        self.log(
            f"[{len(self.times)}/{self.total}] {job}: {result}; "
            f"{_minutes(self.budget.spent)} gone, about {_minutes(expected)} left"
        )


def _minutes(seconds: float) -> str:
    return f"{int(seconds // 60)}:{int(seconds % 60):02d}"
