import numpy as np
import pytest

from torchlgm.app.door import enter
from torchlgm.cli import app
from torchlgm.data import write_idx


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


@pytest.fixture
def reproduce(capsys, single_precision, images, tmp_path, monkeypatch):
    """Runs `torchlgm reproduce` in an empty folder: (exit code, what it printed, what it told)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        capsys.readouterr()
        code = enter(app, ["reproduce", *map(str, arguments), "--data", str(images), "--device", "cpu"])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
