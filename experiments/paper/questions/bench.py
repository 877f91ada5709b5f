"""Where questions have their models trained."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from torch import nn

from experiments.paper.cells import Experiment, make_model, make_objective, valid_batch
from experiments.paper.clock import Clock, Watch
from experiments.paper.jobs import Options
from experiments.paper.questions.asking import states_of
from experiments.paper.run import fit_experiment
from experiments.paper.sources import Sources
from experiments.paper.unfinished import mark
from torchlgm import data, learn, metrics
from torchlgm.errors import DivergedError

SEEDS = 3


def accuracy(model: nn.Module, e: Experiment, part: data.Data) -> float:
    probs = learn.predict_log_probs(model, make_objective(e), part.inputs, valid_batch(e))[:, 0].exp()
    return metrics.accuracy(probs, part.targets)


class _AfterEpoch(Watch):
    def __init__(self, clock: Clock, do: Callable[[], None]) -> None:
        super().__init__(clock)
        self.do = do

    def epoch(self, row: Mapping[str, Any]) -> None:
        self.do()
        super().epoch(row)


class Bench:
    """Trains experiments for a question as `options` say, and leaves when `clock` does; states of trainings are kept
    until the question is answered. The data is loaded once, when it is needed."""

    def __init__(self, options: Options, clock: Clock, question: str) -> None:
        self.options, self.clock = options, clock
        self.states = states_of(question, options)
        self.sources = Sources(options.data, options.where)
        self.seeds = range(options.seeds or SEEDS)
        self.lock = threading.Lock()

    def parts(self, e: Experiment) -> tuple[data.Data, data.Data, data.Data]:
        with self.lock:
            return self.sources.take(e, self.options.quick)

    def epochs(self, e: Experiment) -> int:
        return min(1 if self.options.quick else self.options.epochs or e.epochs, e.epochs)

    def effort(self, e: Experiment) -> dict[str, int]:
        return {"seeds": len(self.seeds), "epochs": self.epochs(e)}

    def trained(self, e: Experiment, seed: int, after_epoch: Callable[[nn.Module], None] = lambda _: None) -> nn.Module:
        folder = None if self.options.quick else self.states / self._name(e, seed)
        e = replace(e, epochs=self.epochs(e))
        parts = self.parts(e)
        model, objective = make_model(e, seed, parts[0]), make_objective(e)
        watch = _AfterEpoch(self.clock, lambda: after_epoch(model))
        fit_experiment(e, seed, model, objective, parts, folder, watch)
        return model

    def ends(self, e: Experiment, seed: int) -> tuple[float, float]:
        """Test accuracies of the best and of the last weights."""
        test, seen = self.parts(e)[2], list[float]()
        model = self.trained(e, seed, lambda model: seen.append(accuracy(model, e, test)))
        if seen:
            return accuracy(model, e, test), seen[-1]
        shutil.rmtree(self.states / self._name(e, seed))  # it was left at its end: the last weights are gone
        return self.ends(e, seed)

    def _name(self, e: Experiment, seed: int) -> str:
        return f"{mark(e, self.epochs(e), self.options.where.type)}.seed{seed}"

    def trained_well(self, e: Experiment) -> Iterator[nn.Module]:
        """A model for each seed, but for trainings that diverge."""
        for seed in self.seeds:
            with suppress(DivergedError):
                yield self.trained(e, seed)
