"""The data of experiments, on the device once for all trainings."""

import threading
from dataclasses import replace

import torch

from experiments.paper.cells import Experiment
from torchlgm import data
from torchlgm.data import Data, Dataset
from torchlgm.errors import DataError

TEST_MASK_SEED = 2019
QUICK_STEPS, QUICK_IMAGES = 4, 50

Parts = tuple[Data, Data, Data]  # to train on, to validate with and to test


def load(name: str, folder: str | None) -> Dataset:
    """As `data.load`, with errors that name the option for the folder."""
    try:
        return data.load(name, folder)
    except DataError as error:
        raise DataError(f"{error}; --data names the folder of the data") from error


def first(part: Data, count: int) -> Data:
    return replace(part, inputs=part.inputs[:count], targets=part.targets[:count])


def hide(inputs: torch.Tensor, visible: float) -> torch.Tensor:
    """Images with the pixels missing that are missing in all tests of as many."""
    return data.hide(inputs, visible, torch.Generator().manual_seed(TEST_MASK_SEED))


class Sources:
    """The data of experiments, loaded once and kept on the device for all."""

    def __init__(self, folder: str | None, device: torch.device) -> None:
        self.folder, self.device = folder, device
        self._parts: dict[tuple[str, bool], Parts] = {}
        self._lock = threading.Lock()

    def load(self, e: Experiment) -> Parts:
        """All data of an experiment, nothing hidden yet."""
        binary = e.colours == 2
        key = e.data, binary
        with self._lock:
            if key not in self._parts:
                dataset = load(e.data, self.folder)
                parts = [*data.paper_split(dataset.train), dataset.test]
                if binary:
                    parts = [replace(part, inputs=data.threshold(part.inputs)) for part in parts]
                train, valid, test = (part.to(self.device) for part in parts)
                self._parts[key] = train, valid, test
            return self._parts[key]

    def take(self, e: Experiment, quick: bool) -> Parts:
        """The data that an experiment is trained and tested on: test images hide what they hide in all tests."""
        train, valid, test = self.load(e)
        if quick:
            steps = QUICK_STEPS if e.input_labels < 256 else 2
            train, valid, test = first(train, steps * e.batch), first(valid, QUICK_IMAGES), first(test, QUICK_IMAGES)
        if isinstance(e.visible, float):
            test = replace(test, inputs=hide(test.inputs.cpu(), e.visible).to(self.device))
            if e.fixed_masks:
                train, valid = (
                    replace(part, inputs=hide(part.inputs.cpu(), e.visible).to(self.device)) for part in (train, valid)
                )
        return train, valid, test
