"""Fixtures of all tests, those of the experiments too."""

import sys

import numpy as np
import pytest
import torch

from torchlgm.data import write_idx


@pytest.fixture(autouse=True)
def _repeatable(monkeypatch):
    monkeypatch.setattr("os.fsync", lambda handle: None)  # machines do not stop while tests run, and disks are slow
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def single_precision(_repeatable):
    """float32, as a user would have it; modules about data and training ask for it by pytestmark."""
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def without(monkeypatch):
    """A function that makes a library look as if it were not installed."""

    def hide(library):
        for module in [name for name in sys.modules if name.startswith(f"{library}.")]:
            monkeypatch.delitem(sys.modules, module)
        monkeypatch.setitem(sys.modules, library, None)

    return hide


@pytest.fixture(scope="session")
def images(tmp_path_factory):
    """A folder with stand-ins for MNIST and FashionMNIST: a few images, a bright row for each class."""
    place = tmp_path_factory.mktemp("images")
    draw = np.random.default_rng(0)
    for name in ("mnist", "fashion-mnist"):
        (place / name).mkdir()
        for part, count in (("train", 300), ("t10k", 60)):
            labels = np.arange(count) % 10
            pixels = draw.integers(0, 80, (count, 28, 28))
            pixels[np.arange(count), 2 * labels + 4] += 150
            write_idx(place / name / f"{part}-images-idx3-ubyte", pixels.astype(np.uint8))
            write_idx(place / name / f"{part}-labels-idx1-ubyte", labels.astype(np.uint8))
    return place
