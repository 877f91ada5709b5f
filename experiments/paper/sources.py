"""The data of experiments, on the device once for all trainings."""

from __future__ import annotations

from dataclasses import replace

import torch

from experiments.paper.cells import Experiment
from torchlgm import data
from torchlgm.data import Data, Dataset
from torchlgm.errors import DataError

TEST_MASK_SEED = 2019
QUICK_STEPS, QUICK_IMAGES = 4, 50


def load(name: str, folder: str | None) -> Dataset:
    """As `data.load`, with errors that name the option for the folder."""
    try:
        return data.load(name, folder)
    except DataError as error:
        raise DataError(f"{error} --data names the folder of the data.") from error


class Sources:
    """The data of experiments, loaded once and kept on the device for all."""

    def __init__(self, folder: str | None, device: torch.device) -> None:
        self.folder, self.device = folder, device
        self.parts: dict[tuple[str, bool], tuple[Data, Data, Data]] = {}

    def load(self, e: Experiment) -> tuple[Data, Data, Data]:
        """Training, validation and test data of an experiment, nothing hidden yet."""
        binary = e.colours == 2
        key = e.data, binary
        if key not in self.parts:
            whole = load(e.data, self.folder)
            parts = [*data.paper_split(whole.train), whole.test]
            if binary:
                parts = [replace(part, inputs=data.threshold(part.inputs)) for part in parts]
            train, valid, test = (part.to(self.device) for part in parts)
            self.parts[key] = train, valid, test
        return self.parts[key]

    def take(self, e: Experiment, quick: bool) -> tuple[Data, Data, Data]:
        train, valid, test = self.load(e)
        if quick:
            steps = QUICK_STEPS if e.input_labels < 256 else 2
            counts = (steps * e.batch, QUICK_IMAGES, QUICK_IMAGES)
            train, valid, test = (first(p, n) for p, n in zip((train, valid, test), counts, strict=True))
        if isinstance(e.visible, float):
            hidden = data.hide(test.inputs.cpu(), e.visible, torch.Generator().manual_seed(TEST_MASK_SEED))
            test = replace(test, inputs=hidden.to(self.device))
        return train, valid, test


def first(part: Data, count: int) -> Data:
    return replace(part, inputs=part.inputs[:count], targets=part.targets[:count])
