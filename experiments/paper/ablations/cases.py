"""What an ablation is made of: cases that can be left and continued, and made again with more seeds or epochs."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import partial
from typing import Any

from torch import nn

from experiments.paper import runner
from experiments.paper.ablations.history import Epoch
from experiments.paper.cells import Experiment
from experiments.paper.options import Options
from experiments.paper.significance import Score
from experiments.paper.sources import Parts, Sources
from experiments.paper.store import State, Store, digest
from experiments.pool import Budget, TimeUp, Watch
from torchlgm import learn
from torchlgm._utils.atomic import atomic_write
from torchlgm.errors import DivergedError

SEEDS = 3
HISTORY = "epochs.json"

Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Case:
    """A row of an ablation, or several that are made together.

    `name` is what distinguishes its rows from others, `effort` the least seeds and epochs that they have.
    """

    name: Row
    make: Callable[[], Sequence[Row]]  # the figures of each row
    effort: Mapping[str, int] = field(default_factory=dict)

    def own(self, rows: Iterable[Row]) -> list[Row]:
        return [row for row in rows if all(row.get(key) == value for key, value in self.name.items())]

    def fits(self, pattern: str) -> bool:
        """Whether it trains a cell whose name fits; one that names no cell fits every pattern."""
        return "cell" not in self.name or fnmatch(self.name["cell"], f"*{pattern}*")

    def is_done(self, rows: Iterable[Row]) -> bool:
        """A row that does not state its effort had enough."""
        own = self.own(rows)
        return bool(own) and all(row.get(key, least) >= least for row in own for key, least in self.effort.items())

    def surplus(self, rows: Iterable[Row]) -> dict[str, int]:
        """What its rows have more of than it would give them."""
        own = self.own(rows)
        return {key: row[key] for row in own for key, least in self.effort.items() if row.get(key, least) > least}

    def rows(self) -> list[Row]:
        return [
            self.name | dict(self.effort) | {key: _rounded(value) for key, value in row.items()} for row in self.make()
        ]


class Bench:
    """Trains experiments for an ablation; the states of its trainings are kept until it is done."""

    def __init__(self, ablation: str, options: Options, budget: Budget, sources: Sources) -> None:
        self.ablation, self.options, self.budget, self.sources = ablation, options, budget, sources
        self.store = Store(options.out)
        self.seeds = range(options.seeds or SEEDS)

    def parts(self, e: Experiment) -> Parts:
        return self.sources.take(e, self.options.quick)

    def effort(self, e: Experiment, epochs: str = "epochs", seeds: bool = True) -> dict[str, int]:
        """The seeds and the epochs allowed, by the name that they have in its rows."""
        return ({"seeds": len(self.seeds)} if seeds else {}) | {epochs: self.options.cap(e).epochs}

    def rows(self) -> list[Row]:
        """Those of the ablation that are known."""
        return self.store.ablation(self.ablation)["rows"]

    def fitted(
        self, e: Experiment, seed: int, after_epoch: Callable[[nn.Module, Mapping[str, Any]], None] = lambda *_: None
    ) -> tuple[nn.Module, learn.Result]:
        (model,), result = self._fit(self.options.cap(e), [seed], after_epoch)
        return model, result

    def _fit(
        self, e: Experiment, seeds: Sequence[int], after_epoch: Callable[[nn.Module, Mapping[str, Any]], None]
    ) -> tuple[list[nn.Module], learn.Result]:
        parts = self.parts(e)
        models = [runner.make_model(e, seed, parts[0]) for seed in seeds]
        watch = Watch(self.budget, partial(after_epoch, models[0]))
        return runner.fit(e, seeds[0], models, parts, self._state(e, *seeds).folder, watch)

    def trained(self, e: Experiment, seed: int) -> nn.Module:
        return self.fitted(e, seed)[0]

    def history(self, e: Experiment, seed: int) -> tuple[list[Epoch], bool]:
        """The epochs of a training, kept beside its state, and whether it is at its end."""
        test, folder = self.parts(e)[2], self._state(e, seed).folder
        path = None if folder is None else folder / HISTORY
        known: dict[str, list[float]] = json.loads(path.read_text()) if path and path.exists() else {}
        test_accuracy = runner.Tester(e, test)

        def note(model: nn.Module, row: Mapping[str, Any]) -> None:
            known[str(row["epoch"])] = [row["valid_loss"], test_accuracy(model)]
            if path:
                atomic_write(path, json.dumps(known).encode())

        try:
            epochs, ended = [row["epoch"] for row in self.fitted(e, seed, note)[1].history], True
        except TimeUp:
            epochs, ended = range(1, len(known) + 1), False
        try:
            return [Epoch(*known[str(epoch)]) for epoch in epochs], ended
        except KeyError:  # it was killed after an epoch and before its figures were kept
            self._state(e, seed).remove()
            return self.history(e, seed)

    def whole_history(self, e: Experiment, seed: int) -> list[Epoch]:
        history, ended = self.history(e, seed)
        if not ended:
            raise TimeUp
        return history

    def score(self, e: Experiment) -> list[Row]:
        """The test accuracy over seeds, but for trainings that diverge."""
        test = self.parts(e)[2]
        accuracies = [runner.accuracy(model, e, test) for model in self._of_all_seeds(e)]
        score, diverged = Score.of(accuracies or [0.0]), len(self.seeds) - len(accuracies)
        row = {"accuracy": score.mean, "std": score.std, "worst": min(accuracies, default=0.0), "diverged": diverged}
        return [row]

    def _of_all_seeds(self, e: Experiment) -> Iterator[nn.Module]:
        """Models of all seeds, but for those that diverge: on a GPU in one step."""
        if self.options.torch_device.type == "cuda":
            with suppress(DivergedError):
                yield from self._fit(self.options.cap(e), self.seeds, lambda *_: None)[0]
                return
        for seed in self.seeds:
            with suppress(DivergedError):
                yield self.trained(e, seed)

    def _state(self, e: Experiment, *seeds: int) -> State:
        if self.options.quick:
            return State(None)
        settings = digest(self.options.cap(e), self.options.torch_device.type)
        return self.store.state("ablations", self.ablation, f"{settings}.seed{'-'.join(map(str, seeds))}")


@dataclass(frozen=True)
class Ablation:
    """`cases` make the rows, of which the report has the table `shown` and the sentences of `summary`.

    `heavy` ones train models of full size and want a GPU.
    """

    name: str
    cases: Callable[[Bench], Iterator[Case]]
    summary: Callable[[Sequence[Row]], str]
    shown: Callable[[Sequence[Row]], Sequence[Row]] = lambda rows: rows
    heavy: bool = False


def over_seeds(rows: Sequence[Row]) -> str:
    """How many seeds figures have, in words."""
    least, most = (pick(row["seeds"] for row in rows) for pick in (min, max))
    if most == 1:
        return "one seed"
    return f"mean over {most} seeds" if least == most else f"mean over {least} to {most} seeds"


def _rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value
