"""Exported models say what torchlgm says: any batch size, any part of the inputs missing."""

import json
import logging
import sys
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import torchlgm as lgm
from torchlgm import Posterior
from torchlgm.interop import export, exporters

pytestmark = pytest.mark.usefixtures("single_precision")

METHODS = {"lbp": lgm.lbp(3), "trw": lgm.trw(3), "mean_field": lgm.mean_field(3), "parallel": lgm.trw(3, "parallel")}
QUICK = {"lbp": lgm.lbp(1), "trw": lgm.trw(1), "mean_field": lgm.mean_field(1, "sweep")}


PT2 = "torchlgm.interop.exporters._pt2"


def graph_of(kind, labels=2):
    """Dense, or windows of two dimensions over the border; those of one are quicker."""
    if kind == "dense":
        return lgm.zoo.dense((1, 3, 4), (5,), 3, input_labels=labels)
    connect = lgm.Conv if kind.startswith("conv") else lgm.Local
    flat = kind.endswith("1d")
    left, right, padding = ((1, 6), (2, 3), ((1, 0),)) if flat else ((1, 6, 5), (2, 3, 2), ((1, 0), 0))
    layers = (lgm.Layer("inputs", left), lgm.Layer("parts", right), lgm.Layer("classes", 1, 3))
    return lgm.Graph(layers, (connect("inputs", "parts", 3, 2, padding), lgm.Dense("parts", "classes")))


def posterior_of(kind, method):
    model = lgm.LGM(graph_of(kind), lgm.Init(1.0, unary=0.5))
    return Posterior(model, method)


def run_onnx(path):
    session = pytest.importorskip("onnxruntime").InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda x, seen: torch.from_numpy(session.run(["probs"], {"x": x.numpy(), "seen": seen.numpy()})[0])


def run_pt2(path):
    return torch.export.load(path).module()


def check(posterior, run):
    """Against `infer` itself, from evidence with a mask; values are handed over in single precision."""
    model, shape = posterior.model, posterior.model.graph.layer("inputs").sizes
    answers = []
    for batch in (1, 2, 9):
        x, seen = torch.rand(batch, *shape), torch.rand(batch, *shape) < 0.6
        seen[-1] = batch == 2
        expected = lgm.infer(model, {"inputs": lgm.Observed(x, seen)}, posterior.method)["classes"].probs[:, 0]
        for values in (x, x.masked_fill(~seen, torch.nan), x.masked_fill(~seen, 1e30)):
            assert_close(run(values, seen).to(expected.dtype), expected, atol=1e-5, rtol=0)
        answers.append(expected)
    assert torch.cat(answers).std(0).max() > 1e-3  # they do depend on what was seen


def test_the_temperature_goes_with_it(tmp_path):
    posterior = posterior_of("dense", QUICK["lbp"])
    x, seen = torch.rand(3, 1, 3, 4), torch.rand(3, 1, 3, 4) < 0.6
    as_trained = posterior(x, seen).exp()
    posterior.temperature = 0.5
    export(posterior, tmp_path / "model.pt2")
    answer = run_pt2(tmp_path / "model.pt2")(x, seen)
    assert_close(answer, as_trained**2 / (as_trained**2).sum(1, keepdim=True))


@pytest.mark.parametrize(("kind", "method"), [("conv1d", "trw"), ("local1d", "mean_field")])
def test_onnx(tmp_path, kind, method):
    pytest.importorskip("onnxscript")
    posterior = posterior_of(kind, QUICK[method])
    done = export(posterior, tmp_path / "model.onnx")
    assert done.difference < 1e-5
    assert done.bytes == (tmp_path / "model.onnx").stat().st_size
    check(posterior, run_onnx(tmp_path / "model.onnx"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dense", "conv", "local"])
@pytest.mark.parametrize("method", METHODS)
def test_everything(tmp_path, kind, method):
    pytest.importorskip("onnxscript")
    posterior = posterior_of(kind, METHODS[method])
    for path, run in ((tmp_path / "model.onnx", run_onnx), (tmp_path / "model.pt2", run_pt2)):
        export(posterior, path)
        check(posterior, run(path))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["conv", "local"])
def test_onnx_of_the_architectures_of_the_paper(tmp_path, kind):
    pytest.importorskip("onnxscript")
    model = lgm.LGM(lgm.zoo.windows(kind))
    assert export(Posterior(model, lgm.trw(2)), tmp_path / "model.onnx").difference < 1e-5


@pytest.mark.parametrize(("kind", "method"), [("dense", "mean_field"), ("conv1d", "lbp"), ("local", "trw")])
def test_torch_export(tmp_path, kind, method):
    posterior = posterior_of(kind, QUICK[method])
    assert export(posterior, tmp_path / "model.pt2").difference < 1e-6
    check(posterior, run_pt2(tmp_path / "model.pt2"))


class Ranges(NamedTuple):
    low: torch.Tensor
    high: torch.Tensor

    def scale(self, x):
        return ((x - self.low) / (self.high - self.low)).clamp(0, 1).float()

    def unscale(self, x):
        return self.low + x * (self.high - self.low)


def test_values_in_units_of_their_own(tmp_path):
    scaling = Ranges(torch.tensor([0.0, 1.6e9]).double(), torch.tensor([200.0, 1.7e9]).double())
    model = lgm.LGM(lgm.zoo.dense(2, (4,), 2), lgm.Init(1.0))
    posterior = Posterior(model, lgm.lbp(1))
    x = torch.tensor([[20.0, 1.61e9], [250.0, 1.6900001e9], [90.0, torch.nan]], dtype=torch.float64)
    scaled = torch.tensor([[0.1, 0.1], [1.0, 0.900001], [0.45, torch.nan]])
    expected = lgm.infer(model, {"inputs": scaled}, lgm.lbp(1))["classes"].probs[:, 0]
    assert export(posterior, tmp_path / "table.pt2", scaling=scaling).difference < 1e-5
    seen = torch.ones(3, 2, dtype=torch.bool)
    assert_close(run_pt2(tmp_path / "table.pt2")(x, seen), expected, atol=1e-5, rtol=0)


def test_double_precision_and_what_is_said_about_the_model(tmp_path):
    """ONNX is written in single precision; what is reported is the difference to the model as it is. No path of this
    machine is kept."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    posterior = posterior_of("dense", QUICK["lbp"]).double()
    about = {"classes": ["a", "b", "c"]}
    assert 0 < export(posterior, tmp_path / "model.onnx", about).difference < 1e-5
    assert export(posterior, tmp_path / "model.pt2", about).difference < 1e-12
    assert posterior.model.unary["inputs"].dtype == torch.float64
    check(posterior, run_onnx(tmp_path / "model.onnx"))
    proto = onnx.load(tmp_path / "model.onnx")
    assert {p.key: json.loads(p.value) for p in proto.metadata_props} == about
    assert [i.name for i in proto.graph.input] == ["x", "seen"]
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    extra = {"about.json": ""}
    torch.export.load(tmp_path / "model.pt2", extra_files=extra)
    assert json.loads(extra["about.json"]) == about
    for name in ("model.onnx", "model.pt2"):
        assert b"posterior.py" not in (tmp_path / name).read_bytes()


def test_a_difference_that_is_too_large_leaves_nothing_behind(tmp_path, monkeypatch):
    posterior = posterior_of("dense", QUICK["lbp"])
    monkeypatch.setattr(PT2, lambda p, about: (b"wrong", lambda x, seen: p(x, seen) + 0.1))
    with pytest.raises(
        lgm.errors.InferenceError, match=r"differs from torchlgm by 1.0e-01, expected at most 1e-05; nothing"
    ):
        export(posterior, tmp_path / "model.pt2")
    monkeypatch.setattr(PT2, lambda p, about: (b"wrong", lambda x, seen: p(x, seen) * np.nan))
    with pytest.raises(lgm.errors.InferenceError, match="differs from torchlgm by inf"):
        export(posterior, tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []


def test_bad_requests(tmp_path, monkeypatch):
    model = lgm.LGM(graph_of("dense"))
    for method in (lgm.lbp(20, tolerance=1e-3), lgm.exact()):
        with pytest.raises(lgm.errors.InferenceError, match="without a tolerance"):
            export(Posterior(model, method), tmp_path / "model.pt2")
    with pytest.raises(lgm.errors.DataError, match=r"expected a name that ends in .onnx or .pt2"):
        export(Posterior(model, lgm.lbp(1)), tmp_path / "model.pb")
    with pytest.raises(lgm.errors.DataError, match="cannot be written"):
        export(Posterior(model, lgm.lbp(1)), tmp_path / "nowhere" / "model.pt2")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ImportError, match=r"this needs onnxscript .* pip install 'torchlgm\[onnx\]'"):
        export(Posterior(model, lgm.lbp(1)), tmp_path / "model.onnx")


def test_what_is_no_posterior_is_said_to_be(tmp_path):
    model = posterior_of("dense", lgm.lbp(1)).model
    with pytest.raises(lgm.errors.InferenceError, match=r"LGM cannot be exported; expected a Posterior, such as Post"):
        export(model, tmp_path / "model.onnx")


def test_loggers_of_others_are_left_alone(caplog):
    converter = logging.getLogger("torch.onnx")
    with exporters._quiet():
        logging.getLogger("somebody.else").warning("still heard")
        assert not converter.isEnabledFor(logging.WARNING)
    assert "still heard" in caplog.text
    assert converter.isEnabledFor(logging.WARNING)
