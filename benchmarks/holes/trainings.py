"""What is to be measured: one training at a time, tested with every pattern and share of missing entries."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from holes import methods
from holes.patterns import PATTERNS, with_holes
from holes.tables import read
from torchlgm.metrics import accuracy, calibration_error, nll

FIGURES = ("nll", "auc", "accuracy", "calibration error")
WHERE = ("test", "both")


@dataclass(frozen=True)
class Training:
    """One method on one split of one table; `holes` are those of the training rows, if they get any."""

    table: str
    seed: int
    method: str
    holes: tuple[str, float] | None = None

    @property
    def key(self) -> str:
        return " | ".join((self.table, str(self.seed), self.method, cell(*self.holes) if self.holes else "complete"))


def cell(pattern: str, share: float) -> str:
    """The name of a test, such as "random 40"; without holes all patterns are the same."""
    return f"{pattern} {100 * share:.0f}" if share else "0"


@dataclass(frozen=True)
class Plan:
    """Which cells there are; `most_rows` bounds the rows of a table."""

    names: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: int = 3
    shares: tuple[float, ...] = (0.0, 0.2, 0.4, 0.6, 0.8)
    patterns: tuple[str, ...] = tuple(PATTERNS)
    where: tuple[str, ...] = WHERE
    most_rows: int | None = None

    def trainings(self) -> Iterator[Training]:
        """Holes in test rows alone first, and all tables before the next seed."""
        with_holes = [(pattern, share) for pattern in self.patterns for share in self.shares if share]
        for where in self.where:
            for seed in range(self.seeds):
                for name in self.names:
                    for method in self.methods:
                        for holes in [None] if where == "test" else with_holes:
                            yield Training(name, seed, method, holes)

    def tests(self, holes: tuple[str, float] | None) -> Iterable[tuple[str, float]]:
        """Patterns and shares that a training is tested with: its own, or all of them."""
        if holes is not None:
            return [holes]
        first = self.patterns[:1] if 0 in self.shares else ()
        return [(p, 0.0) for p in first] + [(p, share) for p in self.patterns for share in self.shares if share]


def measure(plan: Plan, folder: Path | None, training: Training) -> dict[str, Any]:
    """The record of a training: CPU seconds, and the figures of each test by its name."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    train, test = read(folder, training.table).at_most(plan.most_rows).split(training.seed)
    X = train.X if training.holes is None else with_holes(train.X, *training.holes, _rng(training.seed, "train"))
    known = X.columns[X.notna().any()]  # some methods fail on columns without any value
    X = X[known]
    start = time.process_time()
    predict = methods.METHODS[training.method](X, train.y, training.seed)
    fitted = time.process_time()
    tests = {}
    for pattern, share in plan.tests(training.holes):
        given = with_holes(test.X, pattern, share, _rng(training.seed, pattern))[known]
        tests[cell(pattern, share)] = figures(predict(given), test.y)
    answered = time.process_time() - fitted
    each = 1000 * answered / len(tests) / len(test.y)
    return {"fit s": fitted - start, "row ms": each, "tests": tests}


def figures(probs: np.ndarray, y: np.ndarray) -> list[float]:
    """FIGURES, in their order; the area under the curve is the mean over classes, each against the others."""
    probs = np.clip(np.asarray(probs, dtype=float), 1e-12, 1)
    probs /= probs.sum(1, keepdims=True)
    found = [k for k in range(probs.shape[1]) if 0 < (y == k).sum() < len(y)]
    auc = np.mean([roc_auc_score(y == k, probs[:, k]) for k in found]) if found else np.nan
    return [nll(probs, y), float(auc), accuracy(probs, y), calibration_error(probs, y)]


def facts(plan: Plan, folder: Path | None, name: str) -> dict[str, Any]:
    """What is told of a table; `entropy` is the likelihood of knowing only how frequent the classes are."""
    table = read(folder, name).at_most(plan.most_rows)
    shares = np.unique(table.y, return_counts=True)[1] / len(table.y)
    entropy = float(-(shares * np.log(shares)).sum())
    rows, columns = table.X.shape
    return {"rows": rows, "columns": columns, "classes": len(shares), "entropy": entropy}


def _rng(seed: int, what: str) -> np.random.Generator:
    """The same holes for all methods, and others in training and in test."""
    return np.random.default_rng([seed, *what.encode()])
