"""Sets of classes that cover the right one as often as asked, whatever is missing: conformal prediction under a mask.

Calibration rows are asked again with the holes of the row in question (Zaffran et al., "Conformal prediction with
missing values", 2023). A set has the classes that are probable enough, which makes sets as small as they can be at a
coverage (Sadinle, Lei and Wasserman, "Least ambiguous set-valued classifiers", 2019).
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

from torchlgm._utils.arrays import as_tensor
from torchlgm.errors import DataError
from torchlgm.joint.inputs import asked, of_one_node
from torchlgm.posterior import Posterior

Ask = Callable[[Tensor], Tensor]  # rows (N, *shape), NaN = missing -> log-probabilities (N, classes)


@dataclass(frozen=True, eq=False)
class CalibrationRows:
    """Rows that the model was not trained on.

    Parameters
    ----------
    inputs : Tensor or array_like
        `(N, *shape)` in [0, 1], NaN = missing.
    labels : Tensor or array_like
        The places of their classes, `(N,)` whole numbers from 0.
    """

    inputs: Tensor
    labels: Tensor

    def __post_init__(self) -> None:
        inputs, labels = as_tensor("inputs", self.inputs), as_tensor("labels", self.labels)
        whole = not (labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool)
        if inputs.dim() < 2 or labels.shape != inputs.shape[:1] or not whole or bool((labels < 0).any()):
            raise DataError(
                f"calibration rows have inputs {tuple(inputs.shape)} and labels {tuple(labels.shape)} of "
                f"{labels.dtype}; expected inputs (N, *shape) and labels (N,), whole numbers from 0"
            )
        object.__setattr__(self, "inputs", inputs.cpu())
        object.__setattr__(self, "labels", labels.cpu().long())

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
        """The rows that `as_json` described."""
        values = np.frombuffer(b64decode(saved["inputs"]), "<f4").astype(np.float32).reshape(saved["shape"])
        return CalibrationRows(torch.from_numpy(values), torch.tensor(saved["labels"], dtype=torch.int64))


@dataclass(frozen=True)
class Coverage:
    """How often sets are to have the right class.

    - `nested`: also use calibration rows that lack other entries; the row in question is then evaluated without these.
    - `allow_empty`: else the most probable class is in, however improbable.
    """

    level: float
    nested: bool = False
    allow_empty: bool = True

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
    allow_empty: bool = True,
) -> Tensor:
    """Which labels of the target are in the set of each input: the right one with probability `coverage` under each
    pattern of holes.

    Parameters
    ----------
    predictor : Posterior or callable
        Whatever maps inputs with missing entries to log-probabilities `(B, K)`.
    x : Tensor
        Inputs `(N, *shape)`, NaN = missing.
    rows : CalibrationRows
        Inputs and labels that the predictor was not trained on.
    coverage, nested, allow_empty
        As in `LGMClassifier.predict_set`.

    Returns
    -------
    Tensor
        `(N, K)`, True where a label is in the set.

    Examples
    --------
    >>> import torchlgm as lgm
    >>> posterior = lgm.Posterior(lgm.LGM(lgm.zoo.dense(inputs=3, hidden=[2], classes=4)), lgm.lbp(1))
    >>> rows = CalibrationRows(torch.rand(50, 3), torch.arange(50) % 4)
    >>> predict_set(posterior, torch.tensor([[0.2, torch.nan, 1.0]]), rows).shape
    torch.Size([1, 4])
    """
    x = asked(predictor, x, "predict_set").cpu()
    if not isinstance(rows, CalibrationRows):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise DataError(f"rows are of type {type(rows).__name__}; expected CalibrationRows(inputs, labels)")
    if rows.inputs.shape[1:] != x.shape[1:]:
        raise DataError(f"calibration rows are shaped {tuple(rows.inputs.shape[1:])}, inputs {tuple(x.shape[1:])}")

    def ask(x: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.log_softmax(of_one_node(predictor(x)), -1).cpu()

    rows = CalibrationRows(rows.inputs.to(x), rows.labels)
    return predict_sets(ask, rows, x, Coverage(coverage, nested, allow_empty))


def predict_sets(ask: Ask, rows: CalibrationRows | None, x: Tensor, coverage: Coverage) -> Tensor:
    """Which classes are in the set of each row, `(N, classes)`."""
    if rows is None:
        raise DataError(
            "predict_set needs calibration rows, but the model has none; fit with calibration_fraction=0.2, or pass "
            "labelled rows that it was not trained on to calibrate(X, y)"
        )
    if not len(x):
        return torch.zeros_like(ask(x), dtype=torch.bool)
    sets: list[Tensor] = []
    places: list[Tensor] = []
    for holes, group in _by_pattern(x.flatten(1).isnan()):
        numbers = (~(rows.holes & ~holes).any(1) | coverage.nested).nonzero()[:, 0]
        most = coverage.most_below(len(numbers), int(holes.sum()))
        below = torch.zeros(len(group), 1, dtype=torch.int64)
        for union, some in _by_pattern(rows.holes[numbers] | holes):
            same = numbers[some]
            scores = -ask(torch.cat([_hidden(rows.inputs[same], union), _hidden(x[group], union)])).double()
            known = _of_labels(scores[: len(same)], rows.labels[same]).sort().values
            below = below + torch.searchsorted(known, scores[len(same) :].contiguous())  # how many are below each
        inside = below < most
        if not coverage.allow_empty:
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


def _of_labels(scores: Tensor, labels: Tensor) -> Tensor:
    """The scores `(N,)` of the right classes."""
    if int(labels.max()) >= scores.shape[1]:
        raise DataError(f"a calibration row has label {int(labels.max())}, but there are {scores.shape[1]} labels")
    return scores.gather(1, labels[:, None])[:, 0]
