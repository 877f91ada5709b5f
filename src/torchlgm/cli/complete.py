"""Samples with their missing part filled in, as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchlgm._utils.atomic import atomic_dir
from torchlgm._utils.optional import import_optional
from torchlgm.cli import tables
from torchlgm.cli.config import AS_TRAINED, ImageForm
from torchlgm.cli.io import as_csv, require_free, write_text
from torchlgm.cli.pictures import is_image
from torchlgm.cli.pretrained import find_model
from torchlgm.cli.runs import Run
from torchlgm.cli.unlabelled import read_samples
from torchlgm.data.tables import read_cells
from torchlgm.errors import DataError

TABLE, ARRAY = "completed.csv", "completed.npy"


def complete(
    folder: Path, file: Path, out: Path, missing_value: float | None = None, form: ImageForm = AS_TRAINED
) -> dict[str, Any]:
    """Write into the new folder `out` an image for each sample, or a table; of arrays an array as well."""
    run = find_model(folder)
    if run.is_table:
        return _complete_table(run, file, out, missing_value)
    classifier = run.classifier()
    samples = read_samples(file, classifier, run.missing_value(missing_value), form, run.brightness)
    images = _image_names(file, samples.names) if is_image(classifier.shape) else []
    filled = classifier.complete(samples.inputs)
    values = torch.where(samples.raw.isnan(), filled.double() * samples.span, samples.raw)
    require_free(out)
    with atomic_dir(out) as new:
        if images:
            for name, image in zip(images, filled, strict=True):
                _write_image(new / name, image)
        else:
            _write_numbers(new / TABLE, values.flatten(1))
        if samples.array is not None:
            np.save(new / ARRAY, _like(samples.array, values))
        written = sorted(path.name for path in new.iterdir())
    missing = int(samples.inputs.isnan().sum())
    return {"folder": str(out), "samples": len(filled), "missing": missing, "files": written}


def _complete_table(run: Run, file: Path, out: Path, missing_value: float | None) -> dict[str, Any]:
    """Only holes change: other cells keep their text, and columns that the model does not know stay."""
    classifier = tables.load_classifier(run)
    X, _ = tables.read_rows(file, run, classifier, missing_value)
    with tables.data_errors():
        filled = np.asarray(classifier.complete(X), dtype=object)
    cells = read_cells(file, run.config.header)
    if not run.config.header and len(cells.columns) == len(X.columns):
        cells.columns = X.columns
    for j, name in enumerate(X.columns):
        texts = cells[name].tolist() if name in cells.columns else [""] * len(X)
        rows = X[name].isna().tolist()
        cells[name] = [_text(filled[i, j]) if rows[i] else text for i, text in enumerate(texts)]
    require_free(out)
    lines = cells.astype(object).to_numpy().tolist()
    lines = [cells.columns.tolist(), *lines] if run.config.header else lines
    with atomic_dir(out) as new:
        write_text(new / TABLE, as_csv(lines[0], lines[1:]))
    return {"folder": str(out), "samples": len(X), "missing": int(X.isna().to_numpy().sum()), "files": [TABLE]}


def _text(value: object) -> str:
    """A number in short, a name as it is, nothing where nothing is known."""
    if isinstance(value, float | np.floating):
        return "" if np.isnan(value) else f"{value:.10g}"
    return str(value)


def _image_names(file: Path, samples: list[str]) -> list[str]:
    """The name of the image that each sample becomes."""
    named: dict[str, str] = {}
    for sample in samples:
        image = f"{Path(sample).stem}.png"
        if image in named:
            raise DataError(f"{file}: {named[image]} and {sample} would both become {image}; rename one of them")
        named[image] = sample
    return list(named)


def _write_image(path: Path, image: Tensor) -> None:
    pixels = (image * 255).round().to(torch.uint8).numpy()
    flat = pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)
    import_optional("PIL.Image", "cli").fromarray(flat).save(path)


def _like(array: np.ndarray, values: Tensor) -> np.ndarray:
    """The values in the shape of the array that was read, and in its type, if that can hold what was filled in."""
    filled = values.numpy().reshape(array.shape)
    if array.dtype == np.uint8:
        return filled.round().astype(np.uint8)
    return filled.astype(array.dtype if array.dtype.kind == "f" else np.float64)


def _write_numbers(path: Path, values: Tensor) -> None:
    header = [str(i + 1) for i in range(values.shape[1])]
    write_text(path, as_csv(header, [[f"{v:.10g}" for v in row] for row in values.tolist()]))
