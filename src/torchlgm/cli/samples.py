"""A few test samples in a run folder, whole and with holes, so that its model can be tried at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from torchlgm._utils.optional import import_optional
from torchlgm.cli import tables
from torchlgm.data import Data, hide

if TYPE_CHECKING:
    from pandas import DataFrame

FOLDER, TABLE = "samples", "samples.csv"
FEW = 4  # samples, each also with holes
VISIBLE = 0.5


def write_images(folder: Path, test: Data) -> None:
    """The first test image of each of some classes as PNG, and with a block missing, which is transparent."""
    Image = import_optional("PIL.Image", "cli")
    (folder / FOLDER).mkdir(exist_ok=True)
    chosen = [int((test.targets == target).nonzero()[0]) for target in test.targets.unique()[:FEW]]
    seen = hide(test.inputs[chosen], VISIBLE, torch.Generator().manual_seed(0), "block")
    for i, image in zip(chosen, seen, strict=True):
        name = f"{FOLDER}/{_safe(test.classes[int(test.targets[i])])}"
        for suffix, pixels in (("", test.inputs[i]), ("-half", image)):
            values = (pixels.nan_to_num(0.0) * 255).round().byte().movedim(0, -1).numpy()
            alpha = (~pixels.isnan().any(0)).byte().mul(255).numpy()[..., None]
            mode = "LA" if values.shape[-1] == 1 else "RGBA"
            Image.fromarray(np.concatenate([values, alpha], -1), mode).save(folder / f"{name}{suffix}.png")


def write_rows(folder: Path, X: DataFrame) -> None:
    """The first test rows, and the same with half of their entries empty."""
    import pandas as pd

    rows = X.iloc[:FEW]
    pd.concat([rows, tables.hidden(rows, VISIBLE)]).to_csv(folder / TABLE, index=False)


def _safe(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name) or "class"
