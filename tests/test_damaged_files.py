"""Files that were damaged: each is read as what it holds now, or refused by an error of ours, and takes no memory."""

import random
import shutil
import sys

import pytest

from helpers.damaged import KINDS, damage, little_memory
from torchlgm.errors import LGMError

SLOW = ("training state", "estimator")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="limits memory"),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("single_precision"),
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_few(kind, tmp_path):
    read_damaged(kind, tmp_path, range(8 if kind in SLOW else 25))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many(kind, tmp_path):
    read_damaged(kind, tmp_path, range(1000, 3000))


def read_damaged(kind, folder, seeds):
    """Read a file after a change that follows from each seed; most of them are refused."""
    if kind.startswith("parquet"):
        pytest.importorskip("pyarrow")
    good, bad = folder / "good", folder / "bad"
    good.mkdir()
    KINDS[kind].make(good)
    KINDS[kind].read(good)
    refused = 0
    for seed in seeds:
        shutil.copytree(good, bad)
        damage(bad, random.Random(seed))
        try:
            with little_memory():
                KINDS[kind].read(bad)
        except LGMError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
        finally:
            shutil.rmtree(bad)
    assert refused
