"""What the columns of a table are: each becomes a node, and each value of it a number in [0, 1], NaN = missing.

A node has a label for each category, or for each of a few knots of a numeric column. A number between two knots is a
soft value, shared by both labels in proportion; label k of K stands at k / (K - 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from torchlgm.errors import DataError, warn
from torchlgm.sklearn.knots import Lines, knots_of
from torchlgm.sklearn.reading import BOOLEAN, NUMBER, Raw, distinct, is_missing
from torchlgm.sklearn.times import DATE, DATETIME, TIMES, times_of

FEW = 12  # a column of whole numbers with no more values than this has a label for each


@dataclass(frozen=True)
class Numbers:
    """A numeric column; `knots` rise strictly. What lies outside counts as the nearest knot.

    A constant column has one knot, on a node with a second label that stands for nothing. `kind` is `"number"`,
    `"boolean"`, or one of `"date"`, `"datetime"`, `"time"` and `"duration"`, whose knots are numbers of days.
    """

    knots: tuple[float, ...]
    kind: str = NUMBER

    @property
    def labels(self) -> int:
        return max(2, len(self.knots))

    @property
    def is_time(self) -> bool:
        """Whether knots are numbers of days."""
        return self.kind in TIMES

    def scale(self, values: np.ndarray) -> np.ndarray:
        """Numbers `(N,)` -> [0, 1], linear between knots."""
        return Lines([self.knots]).scale(torch.tensor(values).unsqueeze(1))[:, 0].numpy()

    def check(self, raw: Raw) -> None:
        """Raise if what came is of another kind than in training."""
        kind = "name" if raw.named else raw.kind
        if _ALIKE.get(kind, kind) != _ALIKE.get(self.kind, self.kind) and not (~raw.missing()).sum() == 0:
            raise DataError(f"{raw.name} held {self.kind}s in training, but holds {kind}s now.")

    def expected(self, probs: np.ndarray) -> np.ndarray:
        """Probabilities of the knots `(N, labels)` -> the expected values `(N,)`, of booleans the most probable one."""
        knots = np.asarray(self.knots)
        if len(knots) == 1:
            values = np.full(len(probs), knots[0])
        elif self.kind == BOOLEAN:
            values = knots[probs.argmax(1)]
        else:
            values = probs @ knots
        return times_of(values, self.kind) if self.is_time else values

    def at(self, labels: np.ndarray) -> np.ndarray:
        """The values that labels `(n,)` stand for."""
        return self.expected(np.eye(self.labels)[labels])


_ALIKE = {BOOLEAN: NUMBER, DATE: DATETIME}


@dataclass(frozen=True)
class Categories:
    """A column of names, on a node with at least as many labels. A name not seen in training counts as missing.

    Where there are many, the rare ones share the label after the others: those that are `infrequent`, the most frequent
    of them first. Names not seen in training then count as one of them.
    """

    values: tuple[Any, ...]
    labels: int
    infrequent: tuple[Any, ...] = ()

    @property
    def texts(self) -> list[str]:
        """What labels are called: the values, and others where rare ones share a label."""
        return [str(value) for value in self.values] + ["(others)"] * bool(self.infrequent)

    def scale(self, values: np.ndarray) -> np.ndarray:
        """Names `(N,)` -> [0, 1]."""
        place = {value: i / (self.labels - 1) for i, value in enumerate(self.values)}
        unknown = len(self.values) / (self.labels - 1) if self.infrequent else np.nan
        return distinct(values).spread(lambda v: np.nan if is_missing(v) else place.get(v, unknown), float)

    def check(self, raw: Raw) -> None:
        """Raise if names are of another type than in training, and warn if none of them is known."""
        given = raw.distinct.seen()
        if not given:
            return
        was, came = self.values[0], given[0]
        if isinstance(was, str) != isinstance(came, str):
            then, now = ("text", "numbers") if isinstance(was, str) else ("numbers", "text")
            now = f"{raw.kind}s" if raw.kind in TIMES else now
            raise DataError(
                f"{raw.name} held {then} in training, such as {was!r}, but holds {now} now, such as {came!r}. Pass the "
                "same type in both."
            )
        if not {*given} & {*self.values, *self.infrequent}:
            counted = "infrequent" if self.infrequent else "missing"
            warn(
                f"{raw.name}: no value is among the categories of training, {listed(self.values)}, so all count as "
                f"{counted}; got {listed(sorted(set(given)))}",
            )

    def expected(self, probs: np.ndarray) -> np.ndarray:
        """Probabilities `(N, labels)` -> the most probable names `(N,)`: an infrequent one only if it is certain."""
        names = np.empty(len(self.values) + bool(self.infrequent), dtype=object)
        names[:] = (*self.values, *self.infrequent[:1])
        known = probs[:, : len(self.values)]
        return names[np.where(known.any(1), known.argmax(1), len(names) - 1)]

    def at(self, labels: np.ndarray) -> np.ndarray:
        """The names that labels `(n,)` stand for, of the infrequent ones the most frequent."""
        return self.expected(np.eye(self.labels)[labels])


def listed(values: Sequence[Any]) -> str:
    return ", ".join(map(repr, values[:5])) + (", ..." if len(values) > 5 else "")


Column = Numbers | Categories


class LabelledRows(NamedTuple):
    """The rows that columns are learned from: the number of the class of each, `(N,)`, and its weight, `(N,)`."""

    number: np.ndarray
    weights: np.ndarray
    classes: int


def learn_column(
    raw: Raw, rows: LabelledRows, labels: int, scaling: str, exactly: bool = False, most: int | None = None
) -> Column | None:
    """The column that fits the values, None if all are missing.

    A numeric column gets `labels` knots: by `scaling`, where they tell classes apart, at the quantiles of its values,
    or evenly between the least and the greatest. One with few whole values gets a knot for each. `exactly` asks for
    just `labels` labels, or raises; else a column of names gets no more than `most`.
    """
    seen = ~raw.missing()
    values = raw.values[seen]
    if len(values) == 0:
        return None
    if raw.named and exactly:
        return _exactly(raw.name, tuple(sorted(set(values.tolist()))), labels)
    if raw.named:
        return _categories(values, rows.weights[seen], most)
    distinct, place = np.unique(values, return_inverse=True)
    upto = labels if exactly else max(labels, FEW) if raw.whole else labels
    if len(distinct) == 1:
        return Numbers((float(distinct[0]),), raw.kind)
    if len(distinct) > upto or labels == 2:
        counts = np.zeros((len(distinct), rows.classes))
        np.add.at(counts, (place, rows.number[seen]), rows.weights[seen])
        distinct = knots_of(distinct, counts, labels, scaling)
    if exactly and len(distinct) < labels:
        distinct = np.linspace(distinct[0], distinct[-1], labels)
    return Numbers(tuple(distinct.tolist()), raw.kind)


def _categories(values: np.ndarray, weights: np.ndarray, most: int | None) -> Categories:
    """The most frequent names in their order; if there are more than `most`, the others share the last label."""
    often: dict[Any, float] = {}
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        often[value] = often.get(value, 0.0) + weight
    names = sorted(often)
    if most is None or len(names) <= most:
        return Categories(tuple(names), max(2, len(names)))
    by_weight = sorted(names, key=lambda name: -often[name])
    return Categories(tuple(sorted(by_weight[: most - 1])), most, tuple(by_weight[most - 1 :]))


def _exactly(name: str, values: tuple[Any, ...], labels: int) -> Categories:
    if len(values) > labels:
        raise DataError(f"{name}: {len(values)} categories do not fit a node with {labels} labels.")
    return Categories(values, labels)
