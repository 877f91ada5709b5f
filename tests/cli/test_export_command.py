"""`torchlgm export`: the file gives what `torchlgm predict` gives."""

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


def test_bad_requests(complaint, trained, tmp_path):
    said = complaint("export", trained / "halves", "--to", tmp_path / "model.pb")
    assert "expected a name that ends in .onnx or .pt2" in said
    assert "not a run folder" in complaint("export", tmp_path, "--to", tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(complaint, trained, tmp_path):
    (tmp_path / "model.pt2").write_text("old")
    said = complaint("export", trained / "table", "--to", tmp_path / "model.pt2")
    assert "model.pt2: already there, and nothing is ever overwritten; name another file" in said
    assert (tmp_path / "model.pt2").read_text() == "old"


def test_without_the_extra(complaint, trained, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnxscript", None)
    said = complaint("export", trained / "halves", "--to", tmp_path / "model.onnx")
    assert "pip install 'torchlgm[onnx]'" in said
    assert "[cli]" not in said
