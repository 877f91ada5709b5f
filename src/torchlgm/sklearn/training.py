"""What training needs of labelled rows: weights, one entry for rows that are the same, how long, progress in words; and
a method by which they reach the class."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from numbers import Real
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor

from torchlgm.errors import DivergedError, warn
from torchlgm.inference import Method
from torchlgm.learn import ProgressBar, Reporter, Samples
from torchlgm.learn.reachability import ADVICE, reaches
from torchlgm.model import LGM, wrong_energies
from torchlgm.mrf import MRF
from torchlgm.posterior import Posterior

STEPS, EPOCHS = 600, (20, 200)  # so many steps, but no fewer or more passes than these
STEPS_IF_REPEATED = 2500  # where most rows are repeats, a pass is short, however much there is to learn


def require_reach(mrf: MRF, posterior: Posterior) -> None:
    """Raise if nothing that is observed can move the answer."""
    method = posterior.method
    if isinstance(method, Method) and not reaches(mrf, method, posterior.target):
        raise ValueError(f"the columns do not reach the class by method={method!r}; {ADVICE}")


def row_weights(sample_weight: Any, rows: int) -> np.ndarray:
    """`(rows,)` floats, none negative, not all zero."""
    if sample_weight is None or isinstance(sample_weight, Real):
        sample_weight = np.full(rows, 1.0 if sample_weight is None else float(sample_weight))
    weights = check_array(sample_weight, ensure_2d=False, dtype="float64", input_name="sample_weight")
    if weights.shape != (rows,):
        raise ValueError(f"sample_weight.shape == {weights.shape}, expected ({rows},), one weight for each row")
    if (weights < 0).any() or not weights.any():
        raise ValueError("expected sample_weight without negative weights, and not zero for all rows")
    return weights


def class_weights(
    class_weight: Mapping[Any, float] | str | None, classes: np.ndarray, number: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """The factor of each class; `number` `(rows,)` are the places of the labels in `classes`."""
    if class_weight == "balanced":
        each = np.bincount(number, weights=weights, minlength=len(classes))
        return np.where(each > 0, each.sum() / (len(classes) * np.where(each > 0, each, 1)), 0)
    factors = compute_class_weight(class_weight, classes=classes, y=classes)
    if not (np.isfinite(factors) & (factors >= 0)).all():
        raise ValueError(f"class_weight={class_weight!r}; expected finite weights >= 0")
    return factors


def merged(x: Tensor, number: np.ndarray, weights: np.ndarray, classes: int) -> Samples:
    """Rows with a weight, each once, in an order of their own, with targets `(N, 1, classes)`.

    Rows that are the same become one with the sum of their weights, so that weights are counts: a row of weight 2 is
    that row twice, to the last bit. Weights are scaled to a mean of 1 over the rows as they came.
    """
    kept = weights > 0
    flat = np.column_stack([x.flatten(1).nan_to_num(nan=-1.0).numpy()[kept], number[kept]])
    _, first, place = np.unique(flat, axis=0, return_index=True, return_inverse=True)
    total = np.bincount(place.reshape(-1), weights=weights[kept])
    targets = torch.zeros(len(first), 1, classes, dtype=torch.float32)
    targets[torch.arange(len(first)), 0, torch.as_tensor(number[kept][first])] = torch.tensor(
        total * len(first) / total.sum(), dtype=torch.float32
    )
    return Samples(x[torch.as_tensor(np.flatnonzero(kept)[first])], targets, "X")


def held_out(samples: Samples, share: float, seed: int) -> tuple[Samples, Samples]:
    """Most of the samples to train on, and a `share` of them to validate with; the same ones for the same `seed`."""
    cut = max(1, round(share * len(samples)))
    if cut >= len(samples):
        raise ValueError(f"early_stopping=True leaves no rows to train on, of {len(samples)} different ones")
    order = torch.as_tensor(np.random.RandomState(seed).permutation(len(samples)))
    train, valid = (Samples(samples.inputs[i], samples.targets[i], "X") for i in (order[cut:], order[:cut]))
    return train, valid


def require_converged(models: Sequence[LGM], losses: Sequence[float]) -> None:
    """Raise DivergedError if a training ended nowhere."""
    if not all(map(math.isfinite, losses)) or any(map(wrong_energies, models)):
        raise DivergedError("the training diverged; try a lower learning_rate, which is 'auto' by default")


def draw_seed(random: np.random.RandomState) -> int:
    return int(random.randint(2**31 - 1))


def places_among(classes: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The places `(N,)` of labels among the `classes`, which are sorted."""
    places = np.searchsorted(classes, y).clip(max=len(classes) - 1)
    strange = classes[places] != y
    if strange.any():
        raise ValueError(f"y has the label {y[strange].tolist()[0]!r}, which is not among the classes {classes}")
    return places


class Part(Samples):
    """The rows of one call of partial_fit, which may all be of one class."""

    def require_trainable(self) -> None: ...


class Silent:
    """Reports nothing."""

    def step(self, epoch: int, epochs: int, done: int, samples: int) -> None: ...

    def epoch(self, row: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


class Printed(Silent):
    """A line for each epoch, or each check of held-out rows."""

    epochs = 0

    def step(self, epoch: int, epochs: int, done: int, samples: int) -> None:
        self.epochs = epochs

    def epoch(self, row: Mapping[str, Any]) -> None:
        figures = f"loss {row['train_loss']:.4f}, held out {row['valid_loss']:.4f}"
        if not math.isnan(row["valid_accuracy"]):  # there are classes
            figures += f", accuracy {row['valid_accuracy']:.3f}"
        print(f"epoch {row['epoch']}/{self.epochs}: {figures}", flush=True)


def reporter_of(verbose: int) -> Reporter:
    """Nothing, a progress bar (with the package `tqdm`), or a line for each epoch."""
    if verbose == 1 and find_spec("tqdm"):
        return ProgressBar()
    return Printed() if verbose else Silent()


def passes(rows: int, batch: int, repeated: bool) -> int:
    """How often to go over `rows` that differ; `repeated` says that most of those given were repeats of them."""
    usual = int(np.clip(STEPS * batch // rows, *EPOCHS))
    return max(usual, _passes_if_repeated(rows, batch)) if repeated else usual


def warn_of_few_steps(epochs: int, rows: int, batch: int, merged_into: str) -> None:
    """Warn the caller of `fit`, if so many passes over repeated rows are fewer than the usual steps."""
    steps = epochs * math.ceil(rows / batch)
    if steps < STEPS:
        warn(
            f"epochs={epochs} are only {steps} steps, too few to learn much: a pass is over the {merged_into}. Use "
            f"epochs='auto', or about {_passes_if_repeated(rows, batch)}.",
            ConvergenceWarning,
        )


def _passes_if_repeated(rows: int, batch: int) -> int:
    return math.ceil(STEPS_IF_REPEATED / math.ceil(rows / batch))


def calibration_split(weights: np.ndarray, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the rows to train on, and of a `share` to calibrate with; the same for the same `seed`."""
    rows = len(weights)
    if len(np.unique(weights)) > 1:
        raise ValueError(
            "calibration_fraction needs rows that count alike, but sample_weight differs; hold out rows yourself and "
            "pass them to calibrate(X, y)"
        )
    cut = round(share * rows)
    if not 0 < cut < rows:
        lacking = "train on" if cut else "calibrate with"
        raise ValueError(f"calibration_fraction={share} of {rows} rows leaves none to {lacking}; use more rows")
    order = np.random.RandomState(seed).permutation(rows)
    return np.sort(order[cut:]), np.sort(order[:cut])
