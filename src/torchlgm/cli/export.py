"""A trained model as a file that runs without torchlgm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torchlgm import interop
from torchlgm.cli.io import require_new_file
from torchlgm.cli.runs import Run
from torchlgm.errors import DataError


def export(run: Path, to: Path) -> dict[str, Any]:
    """Write the model of a run to a .onnx or .pt2 file that gives its probabilities: what was written."""
    require_new_file(to)
    found = Run.load(run)
    if found.is_table:
        raise DataError(f"{run}: the model of a table cannot be exported; save it with LGMClassifier.save")
    classifier = found.classifier()
    columns = classifier.columns
    about = {"classes": list(classifier.classes), "inference": str(classifier.inference)}
    if columns is not None:
        about["columns"] = list(columns.names)
    done = interop.export(classifier.posterior, to, about, columns)
    return {
        "file": str(done.path),
        "bytes": done.bytes,
        "difference": done.difference,
        "shape": list(classifier.shape),
        "values": "float32 in [0, 1]" if columns is None else "float64 in the units of the table",
        **about,
    }
