"""Samples with their missing part filled in, as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchlgm._utils.atomic import atomic_dir
from torchlgm._utils.optional import import_optional
from torchlgm.cli.classifier import Classifier
from torchlgm.cli.files import as_csv, require_free, write_text
from torchlgm.cli.pictures import is_image
from torchlgm.cli.runs import Run
from torchlgm.cli.unlabelled import Unlabelled, read_samples
from torchlgm.data.tables import Table
from torchlgm.errors import DataError

TABLE, ARRAY = "completed.csv", "completed.npy"


def complete(run: Path, file: Path, out: Path, missing_value: float | None = None) -> dict[str, Any]:
    """Write into the new folder `out` an image for each sample, or a table; of arrays an array as well."""
    found = Run.load(run)
    classifier = found.classifier()
    samples = read_samples(file, classifier, found.missing_value(missing_value))
    images = _image_names(file, samples.names) if is_image(classifier.shape) else []
    filled = classifier.complete(samples.inputs)
    values = _in_units(classifier, samples, filled)
    require_free(out)
    with atomic_dir(out) as folder:
        if images:
            for name, image in zip(images, filled, strict=True):
                _write_image(folder / name, image)
        else:
            _write_table(folder / TABLE, classifier, samples, values)
        if samples.array is not None:
            np.save(folder / ARRAY, _like(samples.array, values))
        written = sorted(path.name for path in folder.iterdir())
    missing = int(samples.inputs.isnan().sum())
    return {"folder": str(out), "samples": len(filled), "missing": missing, "files": written}


def _image_names(file: Path, samples: list[str]) -> list[str]:
    """The name of the image that each sample becomes."""
    named: dict[str, str] = {}
    for sample in samples:
        image = f"{Path(sample).stem}.png"
        if image in named:
            raise DataError(f"{file}: {named[image]} and {sample} would both become {image}; rename one of them.")
        named[image] = sample
    return list(named)


def _write_image(path: Path, image: Tensor) -> None:
    pixels = (image * 255).round().to(torch.uint8).numpy()
    flat = pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)
    import_optional("PIL.Image", "cli").fromarray(flat).save(path)


def _in_units(classifier: Classifier, samples: Unlabelled, filled: Tensor) -> Tensor:
    """In the units of what was read, which stays as it was where nothing was missing."""
    columns = classifier.columns
    values = filled.double() * samples.span if columns is None else columns.unscale(filled)
    return torch.where(samples.raw.isnan(), values, samples.raw)


def _like(array: np.ndarray, values: Tensor) -> np.ndarray:
    """The values in the shape of the array that was read, and in its type, if that can hold what was filled in."""
    whole = values.numpy().reshape(array.shape)
    if array.dtype == np.uint8:
        return whole.round().astype(np.uint8)
    return whole.astype(array.dtype if array.dtype.kind == "f" else np.float64)


def _write_table(path: Path, classifier: Classifier, samples: Unlabelled, values: Tensor) -> None:
    columns, values = classifier.columns, values.flatten(1)
    text = [[f"{v:.10g}" for v in row] for row in values.tolist()]
    if samples.table is None:
        lines = [columns.names if columns else [str(i + 1) for i in range(values.shape[1])], *text]
    else:
        lines = _fill_holes(samples.table, samples.raw.flatten(1).isnan(), text)
    write_text(path, as_csv(lines[0], lines[1:]))


def _fill_holes(table: Table, missing: Tensor, text: list[list[str]]) -> list[list[str]]:
    rows = [list(cells) for cells in table.rows]
    for sample, column in missing.nonzero().tolist():
        rows[sample][table.places[column]] = text[sample][column]
    return [table.header, *rows] if table.header else rows
