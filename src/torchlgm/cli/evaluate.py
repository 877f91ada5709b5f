"""How good a model is, by the share of inputs that it sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchlgm.cli import tables
from torchlgm.cli.classifier import Classifier
from torchlgm.cli.runs import MODEL, Run
from torchlgm.data import Data, Dataset, hide, load, names
from torchlgm.data.catalog import find_path
from torchlgm.errors import DataError, DataWarning, warn
from torchlgm.learn import mean_std
from torchlgm.learn.fingerprint import checksum
from torchlgm.metrics import by_visible_share, calibration_chance

SHARES = (1.0, 0.7, 0.3)
CURVE = (1.0, 0.85, 0.7, 0.5, 0.3, 0.2, 0.1)
PARTS = ("test", "train", "all")
HALF, MOST_FILLED = 0.5, 1000  # share of inputs that stay, and samples in which the others are filled in
MEASURES = ("accuracy", "nll", "brier", "calibration_error")

ShareRows = list[dict[str, float]]


class Evaluation(NamedTuple):
    """Figures of some samples: one row for each share of visible inputs."""

    part: str
    samples: int
    rows: ShareRows


def evaluate(
    folder: Path,
    data: str | None = None,
    shares: Sequence[float] = SHARES,
    part: str | None = None,
    data_folder: str | None = None,
    target: str | None = None,
    missing_value: float | None = None,
) -> Evaluation:
    """The run in `folder` on its own data or on other data, with the target and the missing value of the run unless
    others are given.

    The part is by default the test part, or all of other data that has one part only.
    """
    if part not in (*PARTS, None):
        raise DataError(f"--part {part}: expected one of {', '.join(PARTS)}")
    run = Run.load(folder)
    of_the_run = data is None or _place(data, data_folder) == _place(run.config.data, run.config.data_folder)
    if run.is_table:
        return _evaluate_table(run, None if of_the_run else data, shares, part, data_folder, target, missing_value)
    if target is not None:
        raise DataError(f"--target is for tables, but the model was trained on {run.config.data}; leave it out")
    return _evaluate(run, data, of_the_run, shares, part, data_folder, missing_value)


def _evaluate(
    run: Run,
    data: str | None,
    of_the_run: bool,
    shares: Sequence[float],
    part: str | None,
    data_folder: str | None,
    missing_value: float | None,
) -> Evaluation:
    classifier, config = run.classifier(), run.config
    value = missing_value if data in names() else run.missing_value(missing_value)
    dataset = load(data or config.data, data_folder or config.data_folder, missing_value=value)
    if of_the_run and run.metrics.get("test_checksum", checksum(dataset.test)) != checksum(dataset.test):
        _warn_of_change(config.data)
    part = part or ("test" if of_the_run or not dataset.split_here else "all")
    samples = labelled(classifier, dataset, data or config.data, part)
    return Evaluation(part, len(samples), by_share(classifier.predict_proba, samples, shares))


def _evaluate_table(
    run: Run,
    data: str | None,
    shares: Sequence[float],
    part: str | None,
    data_folder: str | None,
    target: str | None,
    missing_value: float | None,
) -> Evaluation:
    """Of the run's own table with the model that was trained on its training part, else with that of all rows."""
    of_the_run = data is None
    classifier = tables.load_classifier(run, tables.SCORED if of_the_run else MODEL)
    config = replace(run.config, data=data or run.config.data, data_folder=data_folder or run.config.data_folder)
    path = tables.find(config)
    if of_the_run and run.metrics["data_checksum"] != tables.checksum(path):
        _warn_of_change(config.data)
    X, labels = tables.read_labelled(path, run, classifier, target, missing_value)
    numbers = tables.numbers_of(labels.tolist(), classifier, path)
    part = part or ("test" if of_the_run else "all")
    if part != "all":
        train, test = tables.split_rows(labels)
        chosen = {"train": train, "test": test}[part]
        X, numbers = X.iloc[chosen.numpy()], numbers[chosen]
    rows = tables.score(lambda X: tables.probabilities(classifier, X), X, numbers, shares)
    return Evaluation(part, len(X), rows)


def _warn_of_change(data: str) -> None:
    warn(f"{data} has changed since the training: what is its test part now may have been trained on", DataWarning)


def _place(data: str, folder: str | None) -> Path | str:
    """Where data lies, however it is written, or what it is called."""
    path = _path(data, folder)
    return data if path is None else path.resolve()


def _path(data: str, folder: str | None) -> Path | None:
    """None for what is known by name."""
    return None if data in names() else find_path(data, folder)


def by_share(predict: Callable[[Tensor], Tensor], data: Data, shares: Sequence[float]) -> ShareRows:
    """What is hidden at a share is always the same, and part of what is hidden at a smaller one."""
    return [by_visible_share(predict, data, [share], torch.Generator().manual_seed(0))[0] for share in shares]


def by_chance(predict: Callable[[Tensor], Tensor], data: Data, shares: Sequence[float]) -> list[dict[str, float]]:
    """The calibration errors that as many answers have by chance, were their probabilities right."""
    hidden = {share: hide(data.inputs, share, torch.Generator().manual_seed(0)) for share in shares}
    return [{"visible": share, "calibration_error": calibration_chance(predict(x))} for share, x in hidden.items()]


def filling(classifier: Classifier, train: Data, test: Data) -> dict[str, float] | None:
    """How far off hidden inputs are when half of them are filled in, as root mean squares of values from 0 to 1.

    Also, how far off the mean of the training is. None if nothing could be hidden.
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
        raise DataError(f"{data}: has a class {unknown[0]!r}, but the model knows {', '.join(classifier.classes)} only")
    numbers = torch.tensor([classifier.classes.index(name) for name in dataset.test.classes])
    return replace(dataset.test, inputs=inputs, targets=numbers[targets], classes=classifier.classes)


def averaged(runs: Sequence[ShareRows]) -> list[dict[str, Any]]:
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
