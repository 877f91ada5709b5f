"""A trained model as a file that runs without torchlgm, or as a page to play with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torchlgm import interop
from torchlgm._utils.atomic import atomic_dir
from torchlgm.cli import tables
from torchlgm.cli.io import require_free, require_new_file
from torchlgm.cli.runs import Run
from torchlgm.cli.web import RUN_FILE, export_web, shown
from torchlgm.errors import DataError
from torchlgm.interop.web import SUFFIX, copy_page

FILES = (".onnx", ".pt2", SUFFIX)


def export(folder: Path, to: Path) -> dict[str, Any]:
    """Write the model of a run: what was written.

    A .onnx or .pt2 file gives its probabilities, a .safetensors file is for the page, and a new folder has the page.
    """
    if to.suffix == "":
        return _export_page(Run.load(folder), to)
    if to.suffix.lower() not in FILES:
        raise DataError(
            f"{to}: expected a name that ends in .onnx or .pt2, or in .safetensors for the playground, or a new folder "
            "for the playground itself"
        )
    require_new_file(to)
    run = Run.load(folder)
    if to.suffix.lower() == SUFFIX:
        return _facts(export_web(run, to))
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


def _export_page(run: Run, to: Path) -> dict[str, Any]:
    """A folder with the page and the model, for any web server."""
    require_free(to)
    with atomic_dir(to) as new:
        written = export_web(run, new / RUN_FILE)
        copy_page(new, [shown(run)])
    return _facts(written) | {"file": str(to)}


def _facts(written: interop.Exported) -> dict[str, Any]:
    return {"file": str(written.path), "bytes": written.bytes, "difference": written.difference}
