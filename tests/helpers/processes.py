"""Python in a process of its own, with the package and the helpers of the tests to import."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]


def environment(**variables: str) -> dict[str, str]:
    """The variables of this process but for those of its pytest, and the paths of `src` and `tests`."""
    path = [str(ROOT / "src"), str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {**inherited, "PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1", **variables}


def python(*arguments: object, timeout: float | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the interpreter, as in `python("-m", "helpers.killed_training", folder)`."""
    command = [sys.executable, *map(str, arguments)]
    env = environment(**variables)
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env, timeout=timeout, check=False)


def run_code(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return python("-c", textwrap.dedent(code), *arguments)
