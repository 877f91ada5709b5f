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
from experiments.paper.store import Run, State, Store, digest, plural
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
        self.total = self.done = 0  # trainings that were not done before, and that are now
        self.lock = threading.Lock()
        self.failures: list[Exception] = []

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
        """How many trainings are not done."""
        return sum(self._undone(job) for job in self.jobs)

    def _what_is_left(self) -> str:
        verb = "is" if self.missing == 1 else "are"
        return f"{plural(self.missing, 'training')} {verb} left; {self.options.to_continue}"

    def _undone(self, job: Job) -> bool:
        lacks = SEED in job.seeds and lacks_model(job.cell, self.store)
        return lacks or not set(job.seeds) <= self.store.runs(job.cell).keys()

    def state(self, job: Job) -> State:
        """Its name distinguishes all settings: a training with others, such as fewer epochs, leaves it alone."""
        if self.options.quick:
            return State(None)
        settings = digest(job.cell.experiment, self.device.type)
        seeds = "-".join(map(str, job.seeds))
        return self.store.state(f"{job.cell.table.label}-{job.cell.slug}.seed{seeds}.{settings}")

    def _do(self, job: Job) -> None:
        """Train a job; if one of its seeds diverges, one by one."""
        try:
            self._train(job)
        except DivergedError as error:
            self.state(job).remove()
            if len(job.seeds) > 1:
                self.log(f"{job}: {error}; now one by one")
                for seed in job.seeds:
                    self._do(Job(job.cell, (seed,)))
            else:
                self._keep(job.cell, job.seeds[0], {"error": str(error)})
        except TimeUp:
            pass
        except Exception as error:
            self.failures.append(error)
            self.log(f"{job} failed, {type(error).__name__}: {error}")
            self.budget.stopped |= len(self.failures) >= MOST_FAILURES and not self.done

    def _train(self, job: Job) -> None:
        e, state = job.cell.experiment, self.state(job)
        parts = self.sources.take(e, self.options.quick)
        trained = runner.train(e, job.seeds, parts, state.folder, Watch(self.budget))
        for seed, (model, run) in zip(job.seeds, trained, strict=True):
            self._keep(job.cell, seed, run)
            if seed == SEED and keeps_model(job.cell):
                save_model(model, job.cell, run, self.store)
        state.remove()

    def _keep(self, cell: Cell, seed: int, run: Run) -> None:
        run["machine"] = machine(self.device)
        self.store.add(cell, seed, run)
        paper = "" if cell.paper.accuracy is None else f" (paper {cell.paper.accuracy:.3f})"
        result = run.get("error") or f"{run['accuracy']:.4f}{paper}, {plural(run['epochs'], 'epoch')}"
        with self.lock:
            self.done += 1
            spent = f"{self.budget.spent // 60:.0f}:{self.budget.spent % 60:02.0f}"
            self.log(f"[{self.done}/{self.total}] {Job(cell, (seed,))}: {result}; {spent} gone")
