"""A trained model as a file that runs without torchlgm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torchlgm import interop
from torchlgm.cli import tables
from torchlgm.cli.io import require_new_file
from torchlgm.cli.runs import Run


def export(folder: Path, to: Path) -> dict[str, Any]:
    """Write the model of a run to a .onnx or .pt2 file that gives its probabilities: what was written."""
    require_new_file(to)
    run = Run.load(folder)
    if run.is_table:
        return _export_table(run, to)
    classifier = run.classifier()
    about = {"classes": list(classifier.classes), "inference": str(classifier.inference)}
    written = interop.export(classifier.posterior, to, about)
    return _facts(written) | {"shape": list(classifier.shape), "values": "float32 in [0, 1]"} | about


def _export_table(run: Run, to: Path) -> dict[str, Any]:
    from torchlgm.sklearn.export import export as export_classifier

    written, about = export_classifier(tables.load_classifier(run), to)
    values = "float64 in the units of the table, categories as their places in the list of their column"
    return _facts(written) | {"shape": [len(about["columns"])], "values": values} | about


def _facts(written: interop.Exported) -> dict[str, Any]:
    return {"file": str(written.path), "bytes": written.bytes, "difference": written.difference}
