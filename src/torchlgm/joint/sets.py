"""Sets of classes that cover the right one as often as asked, whatever is missing: conformal prediction under a mask.

Calibration rows are asked again with the holes of the row in question (Zaffran et al., "Conformal prediction with
missing values", 2023). Classes are taken in by their probability until the sum is large enough, where to stop within
the last one being drawn (Romano et al., "Classification with valid and adaptive coverage", 2020).
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from torchlgm.errors import DataError, InferenceError
from torchlgm.posterior import Posterior

Ask = Callable[[Tensor], Tensor]  # rows (N, *shape), NaN = missing -> log-probabilities (N, classes)


@dataclass(frozen=True, eq=False)
class CalibrationRows:
    """Rows that the model was not trained on: inputs `(N, *shape)` in [0, 1], NaN = missing, and the places of their
    classes `(N,)`."""

    inputs: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def holes(self) -> Tensor:
        """Which entries are missing, `(N, entries)`."""
        return self.inputs.flatten(1).isnan()

    def as_json(self) -> dict[str, Any]:
        """Inputs as the bytes of float32 numbers."""
        inputs = self.inputs.numpy().astype("<f4")
        return {
            "shape": list(inputs.shape),
            "inputs": b64encode(inputs.tobytes()).decode(),
            "labels": self.labels.tolist(),
        }

    @staticmethod
    def from_json(saved: dict[str, Any]) -> CalibrationRows:
        values = np.frombuffer(b64decode(saved["inputs"]), "<f4").astype(np.float32).reshape(saved["shape"])
        return CalibrationRows(torch.from_numpy(values), torch.tensor(saved["labels"], dtype=torch.int64))


@dataclass(frozen=True)
class Coverage:
    """How often sets are to have the right class.

    - `nested`: calibration rows with holes of their own count as well; the row in question is then asked with them too.
    - `randomized`: where to stop within the last class is drawn; else it is in, and the most probable one always is.
    """

    level: float
    nested: bool = False
    randomized: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.level, Real) or not 0 < self.level < 1:
            raise DataError(f"coverage={self.level!r}; expected a number between 0 and 1, such as 0.9")

    def most_below(self, rows: int, missing: int) -> int:
        """A class is in the set if the scores of fewer calibration rows, of so many, are below its own."""
        rank = math.ceil((rows + 1) * self.level - 1e-9)
        if rank <= rows:
            return rank
        needed = math.ceil(self.level / (1 - self.level) - 1e-9)
        advice = "calibrate with more rows, or ask for less"
        if not self.nested:
            advice += ", or pass nested=True, which uses rows with other holes as well"
        raise DataError(
            f"coverage={self.level} needs at least {needed} calibration rows, but for a row with {missing} missing "
            f"entries there are {rows}; {advice}"
        )


def predict_set(
    predictor: Posterior | Ask,
    x: Any,
    rows: CalibrationRows,
    coverage: float = 0.9,
    *,
    nested: bool = False,
    randomized: bool = True,
    seed: int = 0,
) -> Tensor:
    """Which labels of the target are in the set of each input `(N, *shape)`, `(N, K)`: the right one with probability
    `coverage` under each pattern of holes.

    Parameters
    ----------
    predictor : Posterior or callable
        Whatever maps inputs with missing entries to log-probabilities `(B, K)`.
    x : Tensor
        Inputs `(N, *shape)`, NaN = missing.
    rows : CalibrationRows
        Inputs and labels that the predictor was not trained on.
    coverage, nested, randomized
        As in `LGMClassifier.predict_set`.
    seed : int
        Of where to stop within the last label.

    Examples
    --------
    >>> import torchlgm as lgm
    >>> posterior = lgm.Posterior(lgm.LGM(lgm.zoo.dense(inputs=3, hidden=[2], classes=4)), lgm.lbp(1))
    >>> rows = CalibrationRows(torch.rand(50, 3), torch.arange(50) % 4)
    >>> predict_set(posterior, torch.tensor([[0.2, torch.nan, 1.0]]), rows).shape
    torch.Size([1, 4])
    """
    if hasattr(predictor, "predict_set"):
        raise InferenceError(f"a {type(predictor).__name__} reads tables; call its predict_set(X) instead")
    if isinstance(predictor, Posterior):
        x = predictor.checked(x)[0]
    x = torch.as_tensor(x).cpu()
    if rows.inputs.shape[1:] != x.shape[1:]:
        raise DataError(f"calibration rows are shaped {tuple(rows.inputs.shape[1:])}, inputs {tuple(x.shape[1:])}")

    def ask(x: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.log_softmax(predictor(x), -1).cpu()

    wanted = Coverage(coverage, nested, randomized)
    rows = CalibrationRows(rows.inputs.to(x), rows.labels)
    return predict_sets(ask, rows, x, wanted, np.random.RandomState(seed))


def predict_sets(
    ask: Ask, rows: CalibrationRows | None, x: Tensor, coverage: Coverage, random: np.random.RandomState
) -> Tensor:
    """Which classes are in the set of each row, `(N, classes)`."""
    if rows is None:
        raise DataError(
            "predict_set needs calibration rows, but the model has none; fit with calibration_fraction=0.2, or pass "
            "labelled rows that it was not trained on to calibrate(X, y)"
        )
    draw = random.random_sample if coverage.randomized else np.ones
    of_rows, of_x = torch.as_tensor(draw(len(rows))), torch.as_tensor(draw(len(x)))
    sets: list[Tensor] = []
    places: list[Tensor] = []
    for holes, group in _by_pattern(x.flatten(1).isnan()):
        numbers = (~(rows.holes & ~holes).any(1) | coverage.nested).nonzero()[:, 0]
        most = coverage.most_below(len(numbers), int(holes.sum()))
        below = torch.zeros(len(group), 1, dtype=torch.int64)
        for union, some in _by_pattern(rows.holes[numbers] | holes):
            same = numbers[some]
            asked = ask(torch.cat([_hidden(rows.inputs[same], union), _hidden(x[group], union)])).exp().double()
            scores = _scores(asked, torch.cat([of_rows[same], of_x[group]]))
            known = scores[: len(same)].gather(1, rows.labels[same, None])[:, 0].sort().values
            below = below + torch.searchsorted(known, scores[len(same) :].contiguous())  # how many are below each
        inside = below < most
        if not coverage.randomized:
            inside |= one_hot(ask(x[group]).argmax(1), inside.shape[1]).bool()
        sets.append(inside)
        places.append(group)
    return torch.cat(sets)[torch.cat(places).argsort()]


def _by_pattern(holes: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Each pattern of holes `(entries,)` among `(N, entries)`, and the numbers of the rows that have it."""
    patterns, place = holes.unique(dim=0, return_inverse=True)
    order, counts = place.argsort(stable=True), place.bincount(minlength=len(patterns))
    yield from zip(patterns, order.split(counts.tolist()), strict=True)


def _hidden(x: Tensor, holes: Tensor) -> Tensor:
    return x.masked_fill(holes.reshape(x.shape[1:]), math.nan)


def _scores(probs: Tensor, draws: Tensor) -> Tensor:
    """For each class the probability of those more probable, and the share drawn of its own, `(N, classes)`."""
    ordered, order = probs.sort(dim=1, descending=True, stable=True)
    before = ordered.cumsum(1) - ordered
    return torch.zeros_like(probs).scatter_(1, order, before + draws[:, None] * ordered)
