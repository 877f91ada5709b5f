"""The tests of the kernels in Triton's interpreter, in a process of its own: the interpreter is chosen on import."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not find_spec("triton"), reason="needs triton")
def test_kernels_in_the_interpreter():
    files = sorted(map(str, Path(__file__).parent.glob("test_fused_*.py")))
    command = [sys.executable, "-m", "pytest", "-n", "0", "--tb=short", "-p", "no:cacheprovider", *files]
    surroundings = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**surroundings, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""},
        check=False,
    )
    told = done.stdout + done.stderr
    if done.returncode:
        pytest.fail(f"{' '.join(command)} with TRITON_INTERPRET=1:\n{told}", pytrace=False)
    passed = re.search(r"(\d+) passed", told)
    assert passed, told
    assert int(passed[1]) > 60  # that they are all skipped would be no news
