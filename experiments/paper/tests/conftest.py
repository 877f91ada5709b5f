"""The command as a fixture, beside those of all tests."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from experiments.paper.__main__ import app

from helpers.fixtures import _repeatable, images, single_precision, without
from torchlgm.cli.entry import enter

torch.set_num_threads(1)


@pytest.fixture
def reproduce(capsys, single_precision, images, tmp_path, monkeypatch):
    """Runs `python -m experiments.paper` in an empty folder: (exit code, what it printed, what it told)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        capsys.readouterr()
        code = enter(app, [*map(str, arguments), "--data", str(images), "--device", "cpu"])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
