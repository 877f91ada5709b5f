"""Killed at any call that writes, a training goes on to the same end, and nothing half-written stays."""

import json
import os
import sys

import pytest

from helpers.processes import python

pytestmark = pytest.mark.skipif(sys.platform != "linux" or not hasattr(os, "fork"), reason="needs fork and /proc")


@pytest.mark.parametrize(
    ("what", "step", "least"),
    [
        ("save", 2, 7),
        ("fit", 5, 7),
        ("command", 13, 4),
        *[
            pytest.param(*given, marks=pytest.mark.slow)
            for given in (("save", 1, 15), ("fit", 1, 20), ("command", 1, 60))
        ],
    ],
)
def test_killed_at_calls_that_write(what, step, least, tmp_path):
    done = python("-m", "helpers.killed_writes", what, tmp_path, step, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kills"] >= least
