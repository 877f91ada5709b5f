"""`torchlgm export`: the file gives what `torchlgm predict` gives."""

import json

import numpy as np
import pytest
import torch

from helpers.runs import halves
from torchlgm.cli.runs import Run


def test_images_to_onnx(torchlgm, trained, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    code, out, _ = torchlgm("export", trained / "halves", "--to", tmp_path / "model.onnx")
    assert code == 0
    assert f"{(tmp_path / 'model.onnx').stat().st_size:,} bytes; its probabilities differ by" in out
    assert "(batch, 1, 6, 6) float32 in [0, 1]" in out
    x = halves(samples=11, seed=5)[0][:, None]
    seen = np.random.default_rng(0).uniform(size=x.shape) < 0.5
    session = runtime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    (probs,) = session.run(None, {"x": x, "seen": seen})
    holes = torch.from_numpy(np.where(seen, x, np.nan).astype(np.float32))
    np.testing.assert_allclose(probs, Run.load(trained / "halves").classifier().predict_proba(holes), atol=1e-5)


@pytest.mark.parametrize("kind", ["pt2", "onnx"])
def test_a_table_in_its_own_units(torchlgm, tmp_path, kind):
    if kind == "onnx":
        pytest.importorskip("onnxscript")
    rows = [f"{i % 17 * 1.5},{'red' if i % 3 else 'blue'},{i % 5},7,,{'x' if i % 2 else 'y'}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["height,colour,count,same,empty,class", *rows]))
    options = ("--epochs", 5, "--no-compare", "--no-pictures", "--out", tmp_path / "run")
    assert torchlgm("train", tmp_path / "t.csv", *options)[0] == 0
    code, out, err = torchlgm("export", tmp_path / "run", "--to", tmp_path / f"model.{kind}", "--json")
    assert code == 0, err
    facts = json.loads(out)
    assert facts["classes"] == ["x", "y"]
    assert facts["columns"] == ["height", "colour", "count", "same", "empty"]
    assert facts["categories"] == {"colour": ["blue", "red"]}
    assert facts["difference"] < 1e-5
    (tmp_path / "new.csv").write_text("height,colour,count,same,empty\n3.2,red,2,7,\n,blue,9,,5\n100,,,7,\n")
    rows = json.loads(torchlgm("predict", tmp_path / "run", tmp_path / "new.csv", "--json")[1])
    nan = np.nan
    values = np.array([[3.2, 1, 2, 7, nan], [nan, 0, 9, nan, 5], [100, nan, nan, 7, nan]])
    expected = [list(row["probs"].values()) for row in rows]
    np.testing.assert_allclose(_run(tmp_path / f"model.{kind}", values), expected, atol=1e-5)


def _run(path, values):
    if path.suffix == ".pt2":
        x = torch.from_numpy(values)
        return torch.export.load(path).module()(x, ~x.isnan()).detach()
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": values, "seen": ~np.isnan(values)})[0]


def test_bad_requests(complaint, trained, tmp_path):
    said = complaint("export", trained / "halves", "--to", tmp_path / "model.pb")
    assert "expected a name that ends in .onnx or .pt2" in said
    assert "not a run folder" in complaint("export", tmp_path, "--to", tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(complaint, trained, tmp_path):
    (tmp_path / "model.pt2").write_text("old")
    said = complaint("export", trained / "table", "--to", tmp_path / "model.pt2")
    assert "model.pt2: already exists, and nothing is ever overwritten; name another file" in said
    assert (tmp_path / "model.pt2").read_text() == "old"


def test_without_the_extra(complaint, trained, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnxscript", None)
    said = complaint("export", trained / "halves", "--to", tmp_path / "model.onnx")
    assert "pip install 'torchlgm[onnx]'" in said
    assert "[cli]" not in said
