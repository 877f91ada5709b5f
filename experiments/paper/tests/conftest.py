import pytest

from torchlgm.cli.entry import enter
from torchlgm.cli.main import app


@pytest.fixture
def reproduce(capsys, single_precision, images, tmp_path, monkeypatch):
    """Runs `python -m experiments.paper` in an empty folder: (exit code, what it printed, what it told)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        capsys.readouterr()
        code = enter(app, ["reproduce", *map(str, arguments), "--data", str(images), "--device", "cpu"])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
