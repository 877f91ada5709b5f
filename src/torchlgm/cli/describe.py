"""What a run, a kind of graph or a data set is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchlgm import viz, zoo
from torchlgm.cli import tables
from torchlgm.cli.config import IMAGES, Config
from torchlgm.cli.io import require_new_file
from torchlgm.cli.runs import Run
from torchlgm.data import is_table, load, names
from torchlgm.spec import Graph


def describe_run(folder: Path) -> dict[str, Any]:
    run = Run.load(folder)
    if run.is_table:
        return _describe_table_run(run)
    classifier = run.classifier()
    return {
        "folder": str(folder),
        "graph": classifier.model.graph.summary(),
        "inference": str(classifier.inference),
        "classes": list(classifier.classes),
        "shape": list(classifier.shape),
        "data": run.config.data,
        "metrics": run.metrics,
    }


def _describe_table_run(run: Run) -> dict[str, Any]:
    classifier = tables.load_classifier(run)
    columns = zip(tables.column_names(classifier), classifier.columns_, strict=True)
    return {
        "folder": str(run.folder),
        "graph": classifier.model_.graph.summary(),
        "inference": str(classifier.method or "lbp, sweep, 1 iteration"),
        "classes": tables.class_names(classifier),
        "columns": {name: _kind(column) for name, column in columns},
        "target": run.config.target,
        "data": run.config.data,
        "metrics": run.metrics,
    }


def _kind(column: object) -> str:
    if column is None:
        return "empty"
    if tables.is_category(column):
        return "categories"
    return "times" if tables.is_time(column) else "numbers"


def paper_graph(kind: str) -> Graph:
    """The paper's architecture of this kind, for images of 28x28 pixels."""
    return zoo.dense((1, 28, 28)) if kind == "dense" else zoo.windows(kind)


def draw_graph(graph: Graph, out: Path) -> None:
    require_new_file(out)
    viz.save(viz.draw_graph(graph), out)


def describe_data(
    name: str | None,
    folder: str | None = None,
    target: str | None = None,
    drop: Sequence[str] = (),
    header: bool = True,
    missing_value: float | None = None,
) -> dict[str, Any]:
    """Sizes, shape, classes and missing share of a data set; without a name the known names."""
    if name is None:
        return {"known": list(names())}
    config = Config(name, target, tuple(drop), header=header, missing_value=missing_value, data_folder=folder)
    if is_table(name):
        return _describe_table(config)
    config.require_for(IMAGES)
    dataset = load(name, folder, missing_value=missing_value)
    train, test = dataset.train, dataset.test
    counts = {c: [int((part.targets == i).sum()) for part in (train, test)] for i, c in enumerate(train.classes)}
    missing = sum(int(part.inputs.isnan().sum()) for part in (train, test))
    return {
        "name": train.name,
        "train": len(train),
        "test": len(test),
        "shape": list(train.inputs.shape[1:]),
        "classes": counts,
        "missing": missing / (train.inputs.numel() + test.inputs.numel()),
    }


def _describe_table(config: Config) -> dict[str, Any]:
    table = tables.load(config)
    numeric = table.X.select_dtypes(["number", "bool"]).columns
    return {
        "name": Path(config.data).name,
        "rows": len(table.y),
        "unlabelled": table.unlabelled,
        "columns": {name: "numbers" if name in numeric else "categories" for name in table.X.columns},
        "target": table.target,
        "classes": {str(label): int(count) for label, count in table.y.value_counts().sort_index().items()},
        "missing": float(table.X.isna().to_numpy().mean()),
    }
