"""From a table to a run folder: a model that is scored on rows it has not seen, and one that is trained on all rows."""

from __future__ import annotations

import shutil
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from torchlgm import viz
from torchlgm.cli import samples, tables
from torchlgm.cli.config import Config
from torchlgm.cli.evaluate import CURVE, HALF, MOST_FILLED, averaged
from torchlgm.cli.html import write_report
from torchlgm.cli.io import as_csv, as_json, write_text
from torchlgm.cli.pictures import FEW
from torchlgm.cli.runs import CONFIG, LOG, METRICS, MODEL, Run, alone_in, make_run_folder, read_config
from torchlgm.data import Table
from torchlgm.errors import DataError
from torchlgm.learn.distributed import processes
from torchlgm.metrics import confusion

if TYPE_CHECKING:
    from pandas import DataFrame

    from torchlgm.sklearn import LGMClassifier

Predict = Callable[["DataFrame"], torch.Tensor]


@dataclass(frozen=True, eq=False)
class Split:
    """Rows to train on and rows to score with, `numbers` being the classes of the latter."""

    train: Table
    test: DataFrame
    numbers: torch.Tensor
    classes: list[Any]


@dataclass(frozen=True, eq=False)
class Scored:
    """A model trained from one seed, and its figures on the test part by share of visible entries."""

    seed: int
    seconds: float
    predict: Predict
    rows: list[dict[str, float]]
    losses: Sequence[float] = ()

    @property
    def figures(self) -> dict[str, Any]:
        figures = {"seed": self.seed, "seconds": self.seconds, "test": self.rows}
        return {**figures, "epochs": len(self.losses)} if self.losses else figures


def train_table(config: Config, out: Path | None, report: Callable[[str], None]) -> Run | None:
    """Train as configured into the folder `out`, or into a new one below runs/.

    The processes of torchrun train together, an unfinished run in `out` begins again, and only the first gives a Run.
    """
    classifier = tables.make_classifier(config, config.seed)
    path = tables.find(config).absolute()
    config = replace(config, data=str(path))
    table = tables.load(config)
    config = replace(config, target=table.target)
    split = _split(table)
    with processes(classifier.device) as group:
        folder = group.decided(lambda: _folder(out, path.stem, config if group.active else None))
        if group.leads:
            with alone_in(folder):
                return _train_into(folder, config, classifier, table, split, report)
        _train_along(config, classifier, table, split)
        return None


def _folder(out: Path | None, stem: str, begun: Config | None) -> Path:
    """An empty folder; what is in `out` is deleted if it is a training that had `begun` and was killed."""
    if out is not None and begun is not None and (out / CONFIG).is_file() and not (out / METRICS).exists():
        with alone_in(out):
            if read_config(out) == begun:
                shutil.rmtree(out)
    return make_run_folder(out, stem)


def _train_into(
    folder: Path,
    config: Config,
    classifier: LGMClassifier,
    table: Table,
    split: Split,
    report: Callable[[str], None],
) -> Run:
    path = Path(config.data)
    try:
        report(f"Training an LGM on {_described(path, table)} ...")
        write_text(folder / CONFIG, config.to_json())
        with tables.data_errors():
            classifier.fit(table.X, table.y)
        classifier.save(folder / MODEL)
        metrics = _metrics(config, path, split, folder, report)
        text = as_json(metrics)
        write_report(Run(folder, config, metrics))
        write_text(folder / METRICS, text)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return Run.load(folder)


def _train_along(config: Config, classifier: LGMClassifier, table: Table, split: Split) -> None:
    """What all processes train together, in this one, which writes nothing."""
    with tables.data_errors(), _without_repeated_warnings():
        classifier.fit(table.X, table.y)
        for seed in _seeds(config):
            _trained(config, seed, split)


def _split(table: Table) -> Split:
    classes = sorted(set(table.y.tolist()))
    if len(classes) < 2:
        raise DataError(
            f"training needs rows of at least two classes, but column {table.target!r} holds {classes[0]!r} alone; add "
            "rows of another class, or name another column with --target"
        )
    train, test = (part.numpy() for part in tables.split_rows(table.y))
    rows = Table(table.X.iloc[train], table.y.iloc[train], table.target)
    if rows.y.nunique() < 2:
        raise DataError(f"{len(table.y)} rows are too few to train on four fifths of them; add rows of each class")
    numbers = torch.tensor([classes.index(label) for label in table.y.iloc[test]])
    return Split(rows, table.X.iloc[test], numbers, classes)


def _described(path: Path, table: Table) -> str:
    left_out = f", {table.unlabelled:,} rows without a label left out" if table.unlabelled else ""
    rows, columns = table.X.shape
    classes = table.y.nunique()
    width = f"{columns} column{'s' * (columns > 1)}"
    return f"{path.name}: {rows:,} rows of {width}, {classes} classes in column {table.target!r}{left_out}"


def _metrics(config: Config, path: Path, split: Split, folder: Path, report: Callable[[str], None]) -> dict[str, Any]:
    """Train models on the training part, and score them on the test part."""
    seeds = _seeds(config)
    report("Training it on four fifths of the rows, to score it on the others ...")
    fitted = [_fit(config, seed, split) for seed in seeds]
    classifier = fitted[0][0]
    classifier.save(folder / tables.SCORED)
    scored = {"lgm": [model for _, model in fitted]}
    if config.compare:
        report("Training a neural network on the same rows, missing numbers filled with the mean ...")
        scored["network"] = [_fit_network(classifier, seed, split) for seed in seeds]
    losses = [["lgm", s.seed, i + 1, f"{loss:.6g}"] for s in scored["lgm"] for i, loss in enumerate(s.losses)]
    write_text(folder / LOG, as_csv(["model", "seed", "epoch", "train_loss"], losses))
    samples.write_rows(folder, split.test)
    if config.pictures:
        report("Drawing ...")
        _draw(folder, classifier, split, scored)
    truth = split.test.iloc[:MOST_FILLED]
    with _without_repeated_warnings():
        filling = tables.filling(classifier, split.train.X, truth, HALF)
    most_frequent = split.classes.index(split.train.y.mode().iloc[0])
    return {
        "samples": {"train": len(split.train.y), "test": len(split.test)},
        "data_checksum": tables.checksum(path),
        "most_frequent": float((split.numbers == most_frequent).double().mean()),
        "chosen_seed": config.seed,
        "filling": filling,
        "test": {name: averaged([one.rows for one in models]) for name, models in scored.items()},
        "seeds": {name: [one.figures for one in models] for name, models in scored.items()},
    }


def _fit(config: Config, seed: int, split: Split) -> tuple[LGMClassifier, Scored]:
    began = time.perf_counter()
    with tables.data_errors(), _without_repeated_warnings():
        classifier = _trained(config, seed, split)
    seconds = time.perf_counter() - began

    def predict(X: DataFrame) -> torch.Tensor:
        with _without_repeated_warnings():
            return _of_all_classes(tables.probabilities(classifier, X), classifier, split)

    rows = tables.score(predict, split.test, split.numbers, CURVE)
    return classifier, Scored(seed, seconds, predict, rows, classifier.loss_curve_)


def _trained(config: Config, seed: int, split: Split) -> LGMClassifier:
    return tables.make_classifier(config, seed).fit(split.train.X, split.train.y)


def _seeds(config: Config) -> range:
    return range(config.seed, config.seed + config.seeds)


def _fit_network(like: LGMClassifier, seed: int, split: Split) -> Scored:
    began = time.perf_counter()
    network = _make_network(like, split.train.X, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it has not converged, that a column is empty
        network.fit(split.train.X, split.train.y)
    seconds = time.perf_counter() - began

    def predict(X: DataFrame) -> torch.Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _of_all_classes(torch.from_numpy(network.predict_proba(X)), network, split)

    return Scored(seed, seconds, predict, tables.score(predict, split.test, split.numbers, CURVE))


def _make_network(like: LGMClassifier, X: DataFrame, seed: int) -> Any:
    """A network with as many hidden nodes, on numbers that are standardised and categories that are one-hot."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

    known = [(name, column) for name, column in zip(X.columns, like.columns_, strict=True) if column is not None]
    names = [name for name, column in known if tables.is_category(column)]
    times = [name for name, column in known if tables.is_time(column)]
    numbers = [name for name, column in known if not tables.is_category(column) and name not in times]
    encoded = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), numbers),
            ("times", make_pipeline(FunctionTransformer(_days), SimpleImputer(), StandardScaler()), times),
            ("names", OneHotEncoder(handle_unknown="ignore"), names),
        ]
    )
    hidden = [layer.nodes for layer in like.model_.graph.layers if layer.name.startswith("hidden")]
    return make_pipeline(encoded, MLPClassifier(hidden or 100, random_state=seed))


def _days(X: DataFrame) -> Any:
    """Dates and times as numbers of days."""
    from torchlgm.sklearn import in_days

    return X.apply(in_days)


def _of_all_classes(probs: torch.Tensor, model: Any, split: Split) -> torch.Tensor:
    """Probabilities with a column for each class of the table; 0 for one that the training part does not have."""
    if len(model.classes_) == len(split.classes):
        return probs
    spread = torch.zeros(len(probs), len(split.classes), dtype=probs.dtype)
    spread[:, [split.classes.index(label) for label in model.classes_.tolist()]] = probs
    return spread


def _draw(folder: Path, classifier: LGMClassifier, split: Split, scored: dict[str, list[Scored]]) -> None:
    names = {"lgm": "LGM", "network": "neural network"}
    first = {names[name]: models[0] for name, models in scored.items()}
    few = tables.hidden(split.test, FEW)
    probs = first["LGM"].predict(split.test)
    reliability = {f"{name}, {FEW:.0%} visible": (one.predict(few), split.numbers) for name, one in first.items()}
    figures = {
        "graph": viz.draw_graph(classifier.model_.graph),
        "confusion": viz.confusion_matrix(confusion(probs, split.numbers), [str(name) for name in split.classes]),
        "reliability": viz.reliability_diagram(reliability),
        "visible": viz.visible_share(
            {name: one.rows for name, one in first.items()},
            inputs="columns",
            chance=split.numbers.bincount().max().item() / len(split.numbers),
        ),
    }
    for name, figure in figures.items():
        viz.save(figure, folder / f"{name}.png")


def _without_repeated_warnings() -> warnings.catch_warnings:
    """The training on all rows has given them already."""
    return warnings.catch_warnings(action="ignore")
