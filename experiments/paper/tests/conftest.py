"""The command as a fixture, beside those of all tests."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from experiments.paper.__main__ import main

from helpers.fixtures import _repeatable, images, single_precision, without

torch.set_num_threads(1)


@pytest.fixture
def paper(capsys, single_precision, images, tmp_path, monkeypatch):
    """Runs `python -m experiments.paper` in an empty folder: (exit code, what it printed, what it logged)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        capsys.readouterr()
        command, *rest = map(str, arguments)
        defaults = {
            "train": ["--data", str(images), "--device", "cpu"],
            "ablate": ["--data", str(images), "--device", "cpu"],
        }
        defaults["figures"] = ["--data", str(images)]
        folder = [] if "--out" in rest or "--quick" in rest else ["--out", "results"]
        try:
            code = main([command, *rest, *defaults.get(command, []), *folder])
        except SystemExit as error:
            code = error.code
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
