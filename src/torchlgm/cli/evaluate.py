"""How good a model is, by the share of inputs that it sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchlgm.cli.classifier import Classifier
from torchlgm.cli.runs import Run
from torchlgm.data import Data, Dataset, load, names
from torchlgm.data.catalog import find_path
from torchlgm.data.tables import load_csv
from torchlgm.data.transforms import hide
from torchlgm.errors import DataError, DataWarning, warn
from torchlgm.learn import mean_std
from torchlgm.learn.fingerprint import checksum
from torchlgm.metrics import by_visible_share

SHARES = (1.0, 0.7, 0.3)
CURVE = (1.0, 0.85, 0.7, 0.5, 0.3, 0.2, 0.1)
PARTS = ("test", "train", "all")
HALF, MOST_FILLED = 0.5, 1000  # share of inputs that stay, and samples in which the others are filled in
MEASURES = ("accuracy", "nll", "brier", "calibration_error")

Rows = list[dict[str, float]]


class Evaluation(NamedTuple):
    """Figures of some samples: one row for each share of visible inputs."""

    part: str
    samples: int
    rows: Rows


def evaluate(
    run: Path,
    data: str | None = None,
    shares: Sequence[float] = SHARES,
    part: str | None = None,
    folder: str | None = None,
    label: str | None = None,
    missing_value: float | None = None,
) -> Evaluation:
    """On the data of the run or on other data; `label` and `missing_value` are those of the run unless they are given.

    The part is by default the test part, or all of other data that has one part only.
    """
    if part not in (*PARTS, None):
        raise DataError(f"--part {part}: expected one of {', '.join(PARTS)}.")
    found = Run.load(run)
    classifier, config = found.classifier(), found.config
    known = classifier.columns is not None and classifier.columns.label is not None
    label = label or (None if known else config.label)
    value = missing_value if data in names() else found.missing_value(missing_value)
    dataset = load_like(classifier, data or config.data, folder or config.data_folder, label, value)
    own = data is None or _place(data, folder) == _place(config.data, config.data_folder)
    if own and found.metrics.get("test_checksum", checksum(dataset.test)) != checksum(dataset.test):
        warn(
            f"{config.data} has changed since the training: what is its test part now may have been trained on",
            DataWarning,
        )
    part = part or ("test" if own or not dataset.split_here else "all")
    samples = labelled(classifier, dataset, data or config.data, part)
    return Evaluation(part, len(samples), by_share(classifier.predict_proba, samples, shares))


def _place(data: str, folder: str | None) -> Path | str:
    """Where data lies, however it is written, or what it is called."""
    path = _path(data, folder)
    return data if path is None else path.resolve()


def _path(data: str, folder: str | None) -> Path | None:
    """None for what is known by name."""
    return None if data in names() else find_path(data, folder)


def by_share(predict: Callable[[Tensor], Tensor], data: Data, shares: Sequence[float]) -> Rows:
    """What is hidden at a share is always the same, and part of what is hidden at a smaller one."""
    return [by_visible_share(predict, data, [share], torch.Generator().manual_seed(0))[0] for share in shares]


def filling(classifier: Classifier, train: Data, test: Data) -> dict[str, float] | None:
    """How far off hidden inputs are when half of them are filled in, as root mean squares of values from 0 to 1.

    Beside it, how far off the mean of the training is. None if nothing could be hidden.
    """
    truth = test.inputs[:MOST_FILLED]
    seen = hide(truth, HALF, torch.Generator().manual_seed(0))
    held_back = seen.isnan() & ~truth.isnan()
    mean = train.inputs.nanmean(0)
    held_back &= ~mean.isnan()
    if not held_back.any():
        return None

    def error(guess: Tensor) -> float:
        return float((guess.expand_as(truth) - truth)[held_back].double().square().mean().sqrt())

    return {"visible": HALF, "samples": len(truth), "error": error(classifier.complete(seen)), "of_mean": error(mean)}


def labelled(classifier: Classifier, dataset: Dataset, data: str, part: str) -> Data:
    """The samples to score, their targets numbered as the classifier numbers them; `data` is what they are called."""
    parts = {"test": [dataset.test], "train": [dataset.train], "all": [dataset.train, dataset.test]}[part]
    inputs, targets = (torch.cat([getattr(p, what) for p in parts]) for what in ("inputs", "targets"))
    unknown = [name for name in dataset.test.classes if name not in classifier.classes]
    if unknown:
        raise DataError(
            f"{data}: has a class {unknown[0]!r}, but the model knows {', '.join(classifier.classes)} only."
        )
    numbers = torch.tensor([classifier.classes.index(name) for name in dataset.test.classes])
    return replace(dataset.test, inputs=inputs, targets=numbers[targets], classes=classifier.classes)


def load_like(
    classifier: Classifier, data: str, folder: str | None, label: str | None, missing_value: float | None = None
) -> Dataset:
    """A data set; a table is scaled in the way that the classifier's was, and has its labels in the same column."""
    path = _path(data, folder)
    if path is not None and path.is_file() and path.suffix.lower() == ".csv":
        return load_csv(path, classifier.columns, label, missing_value)
    return load(data, folder, missing_value=missing_value)


def averaged(runs: Sequence[Rows]) -> list[dict[str, Any]]:
    """For each share the mean over runs of each figure, and as `<figure>_std` its standard deviation."""
    result = []
    for rows in zip(*runs, strict=True):
        row: dict[str, Any] = {"visible": rows[0]["visible"]}
        for name in MEASURES:
            figure = mean_std(r[name] for r in rows)
            row |= {name: figure.mean, f"{name}_std": figure.std}
        result.append(row)
    return result


def at_shares(rows: Sequence[Mapping[str, Any]], shares: Sequence[float] = SHARES) -> list[Mapping[str, Any]]:
    return [row for share in shares for row in rows if row["visible"] == share]
