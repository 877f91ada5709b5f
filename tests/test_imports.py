"""The package imports little, and its parts only import what stands below them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import torchlgm

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
HEAVY = ("matplotlib", "sklearn", "pandas", "PIL", "typer", "rich", "pooch", "tensorboard", "scipy")


def python(code):
    path = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )


def test_the_core_imports_nothing_heavy_and_is_silent():
    listing = f"print(*[m for m in {HEAVY} if m in sys.modules])"
    done = python(f"import sys, warnings; warnings.simplefilter('error'); import torchlgm; {listing}")
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, [], "")


@pytest.mark.parametrize("module", ["errors.py", "spec/__init__.py", "spec/parts.py", "spec/graph.py", "zoo.py"])
def test_descriptions_need_no_torch(module):
    text = (SOURCE / "torchlgm" / module).read_text()
    assert not re.search(r"^\s*(import|from) (torch|numpy)\b", text, re.MULTILINE)


def test_the_import_contracts_hold():
    pytest.importorskip("importlinter")
    done = python("import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports())")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Contracts: [1-9]\d* kept, 0 broken", done.stdout)


def test_the_public_names_are_those_of_the_first_page():
    public = {name for name in vars(torchlgm) if not name.startswith("_")}
    wanted = "Graph Layer Dense Conv Local Sparse LGM Observed MRF Method Beliefs infer energy sample log_prob lbp trw "
    assert set((wanted + "mean_field exact bracket zoo LGMError").split()) <= public
