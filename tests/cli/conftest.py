import pytest
import torch

from helpers.runs import QUICK, write_halves, write_table
from helpers.shared import shared_folder
from torchlgm.cli import console
from torchlgm.cli.main import app


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A folder with halves.npz, table.csv and the runs `halves`, with all pictures, and `table`; not to be changed."""
    return shared_folder(tmp_path_factory, "trained", train)


def train(folder):
    write_halves(folder / "halves.npz")
    write_table(folder / "table.csv")
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(0)
    for name, *options in (("halves.npz",), ("table.csv", "--epochs", "40")):
        out = folder / name.partition(".")[0]
        assert console.run(app, ["train", str(folder / name), "--out", str(out), *QUICK, *options]) == 0


@pytest.fixture
def torchlgm(capsys, single_precision):
    """Runs a command line: (exit code, what it printed, what it complained about)."""

    def run(*arguments):
        capsys.readouterr()
        code = console.run(app, [str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def complaint(torchlgm):
    """Runs a command line that must fail: what it says, which must be one line."""

    def run(*arguments):
        code, out, err = torchlgm(*arguments)
        said = [line for line in err.splitlines() if not line.endswith(" ...") and ", epoch " not in line]
        assert code == 1
        assert len(said) == 1, err
        assert said[0].startswith("torchlgm: ")
        assert "Traceback" not in out + err
        return said[0]

    return run
