"""When one result is better than another: one rule for tables and ablations."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Self

LEAST = 0.001  # standard deviation over seeds that any cell is taken to have
SINGLE = 0.003  # that of a single training, as are the paper's
CLEAR = 2.0  # standard errors
CHANCE = 0.15  # accuracy below which nothing was learnt


@dataclass(frozen=True)
class Lead:
    """How far a cell is ahead of another."""

    mean: float
    error: float
    stuck: bool = False  # whether a training of either stayed at chance

    @property
    def clear(self) -> int:
        """1 if it is clearly ahead, -1 if clearly behind, else 0."""
        return 0 if abs(self.mean) <= CLEAR * self.error else 1 if self.mean > 0 else -1

    def __str__(self) -> str:
        text = f"{self.mean:+z.4f} ± {self.error:.4f}"
        return (f"**{text}**" if self.clear else text) + " †" * self.stuck


@dataclass(frozen=True)
class Score:
    """Mean, standard deviation and number of the accuracies of some trainings."""

    mean: float
    std: float = 0.0
    count: int = 1

    @classmethod
    def of(cls, accuracies: Iterable[float]) -> Self:
        values = list(accuracies)
        return cls(fmean(values), stdev(values) if len(values) > 1 else 0.0, len(values))

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return SINGLE if self.count == 1 else max(self.std, LEAST) / math.sqrt(self.count)


def lead(first: Score, second: Score, stuck: bool = False) -> Lead:
    return Lead(first.mean - second.mean, math.hypot(first.error, second.error), stuck)
