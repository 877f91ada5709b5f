"""The tests of the kernels in Triton's interpreter, in a process of its own: the interpreter is chosen on import."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from helpers.processes import python


@pytest.mark.skipif(not find_spec("triton"), reason="needs triton")
def test_kernels_in_the_interpreter():
    files = sorted(map(str, Path(__file__).parent.glob("test_fused_*.py")))
    options = ["-m", "pytest", "-n", "0", "--tb=short", "-p", "no:cacheprovider", *files]
    done = python(*options, TRITON_INTERPRET="1", CUDA_VISIBLE_DEVICES="")
    output = done.stdout + done.stderr
    if done.returncode:
        pytest.fail(f"python {' '.join(options)} with TRITON_INTERPRET=1:\n{output}", pytrace=False)
    passed = re.search(r"(\d+) passed", output)
    assert passed, output
    assert int(passed[1]) > 60  # that they are all skipped would be no news
