"""Runs of tables: an LGMClassifier, and files with the columns that it was trained on."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

import torchlgm
from torchlgm.cli.config import TABLES, Config
from torchlgm.cli.runs import MODEL, Run
from torchlgm.data import Table, hide, is_table, load_table
from torchlgm.data.catalog import find_path
from torchlgm.data.splits import holdout_indices
from torchlgm.data.tables import as_labels, read_frame, without
from torchlgm.errors import DataError, DataWarning, LGMError, warn
from torchlgm.inference import METHODS
from torchlgm.metrics import evaluate

if TYPE_CHECKING:
    from pandas import DataFrame, Series

    from torchlgm.sklearn import LGMClassifier

Predict = Callable[["DataFrame"], torch.Tensor]
SCORED = "scored"  # the model that was trained on the training part alone
_FIELDS = ("hidden", "bins", "epochs", "batch_size", "learning_rate")  # that are called so by LGMClassifier


class TableRows(NamedTuple):
    """Rows with the columns of a model, and the frame that they were read from."""

    X: DataFrame
    frame: DataFrame


def make_classifier(config: Config, seed: int) -> LGMClassifier:
    """What LGMClassifier makes of the options that were given; all others have its defaults."""
    config.require_for(TABLES)
    parameters = {name: value for name in _FIELDS if (value := getattr(config, name)) is not None}
    words = (config.method, config.schedule, config.iterations, config.damping)
    if words != (Config.method, Config.schedule, Config.iterations, Config.damping):
        parameters["method"] = METHODS[config.method](
            config.iterations_for(connections=2), config.schedule, damping=config.damping
        )
    if config.visible is not None:
        parameters["visible"] = config.visible if config.hides else None
    if config.fill is not None:
        parameters["fill_weight"] = config.fill
    if config.categorical:
        parameters["categorical_features"] = list(config.categorical)
    device = "cpu" if config.device == "auto" else config.device
    return torchlgm.LGMClassifier(random_state=seed, device=device, **parameters)


def load(config: Config) -> Table:
    """The table of a training."""
    return load_table(find(config), config.target, config.drop, config.header, config.missing_value)


def find(config: Config) -> Path:
    path = find_path(config.data, config.data_folder)
    if path is None:
        raise DataError(f"{config.data}: no such file")
    return path


def load_classifier(run: Run, name: str = MODEL) -> LGMClassifier:
    return torchlgm.LGMClassifier.load(run.folder / name)


def read_rows(
    path: Path, run: Run, classifier: LGMClassifier, missing_value: float | None = None, target: str | None = None
) -> TableRows:
    """The rows in a file, by the names of their columns; a column that is lacking is missing in all of them."""
    if not is_table(path):
        raise DataError(f"{path}: expected a table, .csv, .tsv, .parquet or .xlsx, as the model was trained on one")
    frame = read_frame(path, run.config.header, text_columns(classifier))
    return rows_of(frame, path, run, classifier, missing_value, target)


def text_columns(classifier: LGMClassifier) -> dict[str, type]:
    """The columns that are to be read as text."""
    columns = zip(column_names(classifier), classifier.columns_, strict=True)
    return {name: str for name, column in columns if _is_text(column)}


def rows_of(
    frame: DataFrame,
    path: Path,
    run: Run,
    classifier: LGMClassifier,
    missing_value: float | None = None,
    target: str | None = None,
) -> TableRows:
    """The rows of a frame that was read from `path`, as `read_rows` gives them."""
    names = column_names(classifier)
    if not run.config.header and len(frame.columns) == len(names):
        frame.columns = names
    lacking = [name for name in names if name not in frame.columns]
    if len(lacking) == len(names):
        raise DataError(f"{path}: has none of the columns of the training, {_listed(names)}; got {_listed(frame)}")
    if lacking:
        warn(f"{path}: lacks {_listed(lacking)}, which is missing in all rows therefore", DataWarning)
    expected = {*names, run.config.target, target, *_dropped(run.config)}
    if extra := [name for name in frame.columns if name not in expected]:
        warn(f"{path}: leaves out {_listed(extra)}, which the training did not have", DataWarning)
    X = without(frame.reindex(columns=names), run.missing_value(missing_value))
    return TableRows(X, frame)


def read_labelled(
    path: Path, run: Run, classifier: LGMClassifier, target: str | None, missing_value: float | None
) -> tuple[DataFrame, Series]:
    """The rows in a file that have a label, and their labels."""
    X, frame = read_rows(path, run, classifier, missing_value, target)
    target = target or run.config.target
    if target not in frame.columns:
        raise DataError(
            f"{path}: there is no column {target!r}, which held the labels in the training; if another column holds "
            "them, name it with --target; if none does, `torchlgm predict` needs none"
        )
    labels: Any = frame[target]
    labelled = labels.notna()
    if not labelled.any():
        raise DataError(f"{path}: no row has a label in column {target!r}")
    return X.loc[labelled], as_labels(labels[labelled], path)


def is_category(column: object) -> bool:
    """Whether a column of a classifier holds names."""
    from torchlgm.sklearn import Categories

    return isinstance(column, Categories)


def is_time(column: object) -> bool:
    """Whether a column of a classifier holds dates, times or durations."""
    from torchlgm.sklearn import Numbers

    return isinstance(column, Numbers) and column.is_time


def _is_text(column: Any) -> bool:
    return is_category(column) and isinstance(column.values[0], str)


def _dropped(config: Config) -> list[str]:
    return [part.strip() for names in config.drop for part in (names, *names.split(","))]


def probabilities(classifier: LGMClassifier, X: DataFrame) -> torch.Tensor:
    """Class probabilities `(N, K)`."""
    with data_errors():
        return torch.from_numpy(classifier.predict_proba(X))


def column_names(classifier: LGMClassifier) -> list[str]:
    return classifier.input_names[: len(classifier.columns_)]


def class_names(classifier: LGMClassifier) -> list[str]:
    return [str(name) for name in classifier.classes_]


def numbers_of(labels: Sequence[Any], classifier: LGMClassifier, where: object) -> torch.Tensor:
    """The numbers `(N,)` of the classes with these labels."""
    names = class_names(classifier)
    unknown = next((label for label in labels if str(label) not in names), None)
    if unknown is not None:
        raise DataError(f"{where}: has a class {str(unknown)!r}, but the model knows {_listed(names)} only")
    return torch.tensor([names.index(str(label)) for label in labels], dtype=torch.int64)


def hidden(X: DataFrame, share: float) -> DataFrame:
    """The rows with this share of their entries visible; always the same, part of those of a larger share."""
    entries = hide(torch.zeros(X.shape), share, torch.Generator().manual_seed(0))
    return X.mask(entries.isnan().numpy())


def score(predict: Predict, X: DataFrame, numbers: torch.Tensor, shares: Sequence[float]) -> list[dict[str, float]]:
    """Figures by share of visible entries."""
    return [{"visible": share} | evaluate(predict(hidden(X, share)), numbers) for share in shares]


def split_rows(labels: Series) -> tuple[torch.Tensor, torch.Tensor]:
    """Which rows are the training part, four fifths of each class, and which the test part."""
    return holdout_indices(torch.from_numpy(labels.factorize(sort=True)[0]))


def checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def filling(classifier: LGMClassifier, train: DataFrame, truth: DataFrame, share: float) -> dict[str, Any] | None:
    """How well hidden entries are filled in: numbers in standard deviations off, categories by the share of right ones.

    Also, how well the mean and the most frequent category do. None if nothing could be hidden.
    """
    seen = hidden(truth, share)
    filled = np.asarray(classifier.complete(seen), dtype=object)
    errors: dict[str, list[float]] = {"error": [], "of_mean": [], "right": [], "of_most_frequent": []}
    for j, (name, column) in enumerate(zip(truth.columns, classifier.columns_, strict=True)):
        cells = (seen[name].isna() & truth[name].notna()).to_numpy()
        present = train[name].dropna()
        if column is None or is_time(column) or not cells.any() or len(present) == 0:
            continue
        actual, guess = truth[name].to_numpy()[cells], filled[cells, j]
        if is_category(column):
            errors["right"].append(float(np.mean(guess == actual)))
            errors["of_most_frequent"].append(float(np.mean(actual == present.mode().iloc[0])))
        else:
            numbers = present.to_numpy(dtype=float)
            unit = float(np.abs(numbers).max()) or 1.0  # squares of huge numbers would overflow
            actual, guess, numbers = actual.astype(float) / unit, guess.astype(float) / unit, numbers / unit
            if (spread := float(np.std(numbers, ddof=1))) > 0:
                errors["error"].append(float(np.sqrt(np.mean((guess - actual) ** 2))) / spread)
                errors["of_mean"].append(float(np.sqrt(np.mean((actual - numbers.mean()) ** 2))) / spread)
    means = {name: float(np.mean(values)) for name, values in errors.items() if values}
    return {"visible": share, "samples": len(truth), **means} if means else None


@contextmanager
def data_errors() -> Iterator[None]:
    """What scikit-learn or LGMClassifier says about a table as a DataError."""
    try:
        yield
    except LGMError:
        raise
    except (ValueError, TypeError) as error:
        raise DataError(str(error)) from error


def _listed(names: Any) -> str:
    names = [repr(str(name)) for name in names]
    return ", ".join(names[:5]) + (f", ... ({len(names)} in all)" if len(names) > 5 else "")
