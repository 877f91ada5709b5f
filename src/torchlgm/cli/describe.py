"""What a run, a kind of graph or a data set is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torchlgm import viz, zoo
from torchlgm.cli.files import require_new_file
from torchlgm.cli.runs import Run
from torchlgm.data import load, names
from torchlgm.spec import Graph


def describe_run(folder: Path) -> dict[str, Any]:
    run = Run.load(folder)
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


def paper_graph(kind: str) -> Graph:
    """The paper's architecture of this kind, for images of 28x28 pixels."""
    return zoo.dense((1, 28, 28)) if kind == "dense" else zoo.windows(kind)


def draw_graph(graph: Graph, out: Path) -> None:
    require_new_file(out)
    viz.save(viz.draw_graph(graph), out)


def describe_data(
    name: str | None, folder: str | None = None, label: str | None = None, missing_value: float | None = None
) -> dict[str, Any]:
    """Sizes, shape, classes and missing share of a data set; without a name the known names."""
    if name is None:
        return {"known": list(names())}
    dataset = load(name, folder, label=label, missing_value=missing_value)
    train, test = dataset.train, dataset.test
    counts = {c: [int((part.targets == i).sum()) for part in (train, test)] for i, c in enumerate(train.classes)}
    missing = sum(int(part.inputs.isnan().sum()) for part in (train, test))
    return {
        "name": train.name,
        "train": len(train),
        "test": len(test),
        "shape": list(train.inputs.shape[1:]),
        "classes": counts,
        "label": None if dataset.columns is None else dataset.columns.label,
        "columns": None if dataset.columns is None else list(dataset.columns.names),
        "missing": missing / (train.inputs.numel() + test.inputs.numel()),
    }
