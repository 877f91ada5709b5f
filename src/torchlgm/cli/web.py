"""A run in the browser: its model as the playground reads it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torchlgm import interop
from torchlgm.cli import tables
from torchlgm.cli.runs import Run
from torchlgm.data import load
from torchlgm.errors import LGMError
from torchlgm.interop.web import Shown

RUN_FILE = "run.safetensors"
MOST_EXAMPLES, OF_EACH_CLASS = 30, 3


def shown(run: Run) -> Shown:
    return Shown("run", run.folder.resolve().name, RUN_FILE)


def export_web(run: Run, path: Path) -> interop.Exported:
    """Write the model of a run for the page, with the network beside it and, if its data is still there, examples."""
    about: dict[str, Any] = {"title": run.folder.resolve().name}
    if run.is_table:
        return _export_table(run, path, about)
    classifier = run.classifier()
    about |= {"classes": list(classifier.classes), "network_title": "Network, hidden inputs as 0.5"}
    return interop.export_web(
        classifier.posterior, path, about, network=run.network(), examples=_examples(run, classifier.shape)
    )


def _export_table(run: Run, path: Path, about: dict[str, Any]) -> interop.Exported:
    from torchlgm.sklearn.web import export_web as export_classifier

    classifier = tables.load_classifier(run)
    try:
        with warnings.catch_warnings(action="ignore"):  # what is odd about the table was said when it was trained on
            rows, labels = tables.read_labelled(tables.find(run.config), run, classifier, None, None)
    except LGMError:
        return export_classifier(classifier, path, about)
    known = labels.isin(list(classifier.classes_)).to_numpy()
    turn = labels.groupby(labels).cumcount().to_numpy()
    chosen = np.flatnonzero(known & (turn < OF_EACH_CLASS))[:MOST_EXAMPLES]
    return export_classifier(classifier, path, about, rows=rows.iloc[chosen], labels=labels.iloc[chosen].tolist())


def _examples(run: Run, shape: tuple[int, ...]) -> interop.Examples | None:
    """The first test samples of each class, in turn; None if the data is not to be had."""
    config = run.config
    try:
        with warnings.catch_warnings(action="ignore"):
            test = load(config.data, config.data_folder, missing_value=config.missing_value).test
    except (LGMError, OSError):
        return None
    if tuple(test.inputs.shape[1:]) != shape:
        return None
    places = [(test.targets.flatten() == k).nonzero()[:OF_EACH_CLASS, 0] for k in range(len(test.classes))]
    turns = [place[turn] for turn in range(OF_EACH_CLASS) for place in places if turn < len(place)]
    chosen = torch.tensor([int(i) for i in turns[:MOST_EXAMPLES]], dtype=torch.int64)
    return interop.Examples(test.inputs[chosen], test.targets.flatten()[chosen].tolist()) if len(chosen) else None
