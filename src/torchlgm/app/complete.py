"""Samples with their missing part filled in, as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchlgm.app.classifier import Classifier
from torchlgm.app.files import as_csv, new_folder, write_text
from torchlgm.app.pictures import is_image
from torchlgm.app.runs import Run
from torchlgm.app.samples import Unlabelled, read_samples

TABLE, ARRAY = "completed.csv", "completed.npy"


def complete(run: Path, file: Path, out: Path, missing_value: float | None = None) -> dict[str, Any]:
    """Write into the new folder `out` an image for each sample, or a table; of arrays an array as well."""
    classifier = Run.load(run).classifier()
    samples = read_samples(file, classifier, missing_value)
    filled = classifier.complete(samples.inputs)
    with new_folder(out) as folder:
        if is_image(classifier.shape):
            for name, image in zip(samples.names, filled, strict=True):
                _write_image(folder / f"{Path(name).stem}.png", image)
        else:
            _write_table(folder / TABLE, classifier, samples, filled)
        if file.suffix.lower() in (".npy", ".npz"):
            np.save(folder / ARRAY, filled.numpy())
        written = sorted(path.name for path in folder.iterdir())
    missing = int(samples.inputs.isnan().sum())
    return {"folder": str(out), "samples": len(filled), "missing": missing, "files": written}


def _write_image(path: Path, image: Tensor) -> None:
    from PIL import Image

    pixels = (image * 255).round().to(torch.uint8).numpy()
    Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)).save(path)


def _write_table(path: Path, classifier: Classifier, samples: Unlabelled, filled: Tensor) -> None:
    """In the units of the table that was read; what was there stays as it was."""
    columns = classifier.columns
    values = filled.double() if columns is None else columns.unscale(filled)
    values = torch.where(samples.raw.isnan(), values, samples.raw).flatten(1)
    names = columns.names if columns else [str(i + 1) for i in range(values.shape[1])]
    write_text(path, as_csv(names, [[f"{v:.10g}" for v in row] for row in values.tolist()]))
