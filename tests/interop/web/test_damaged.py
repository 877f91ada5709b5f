"""Models for the browser that were damaged: read as what they hold now, or refused in one line."""

import json
import random
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

import torchlgm as lgm
from helpers.mutations import mutated
from torchlgm.interop import export_web

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="needs node")


@pytest.mark.parametrize("count", [100, pytest.param(2000, marks=pytest.mark.slow)])
def test_damaged_models(count, tmp_path):
    layers = [lgm.Layer("a", (1, 5, 5)), lgm.Layer("b", (2, 2, 2)), lgm.Layer("c", 3, labels=3), lgm.Layer("d", 1)]
    listed = lgm.Sparse("c", "d", ((0, 0), (2, 0), (1, 0)))
    graph = lgm.Graph(layers, [lgm.Conv("a", "b", kernel=3, stride=2), lgm.Dense("b", "c"), listed])
    good, bad = tmp_path / "good.safetensors", tmp_path / "bad"
    export_web(lgm.Posterior(lgm.LGM(graph), lgm.lbp(1), "a", "d"), good)
    bad.mkdir()
    content, draw = good.read_bytes(), random.Random(count)
    for i in range(count):
        (bad / str(i)).write_bytes(_mended(mutated(content, draw), draw))
    shutil.copy(good, bad / "good")
    command = [NODE, Path(__file__).with_name("damaged.mjs"), files("torchlgm") / "interop" / "web" / "page", bad]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    ended = json.loads(done.stdout)
    assert ended.pop("good") == "read"
    assert set(ended.values()) == {"read", "refused"}


def _mended(content: bytes, draw: random.Random) -> bytes:
    """Often with the right length of the header, so that what is in it counts."""
    end = content.rfind(b"}") + 1
    return content if draw.random() < 0.3 or end < 8 else (end - 8).to_bytes(8, "little") + content[8:]
