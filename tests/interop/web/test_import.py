"""What is written for the browser can be read back."""

import pytest
import torch
from torch.testing import assert_close

import torchlgm as lgm
from torchlgm.errors import CheckpointError, InferenceError
from torchlgm.interop.web import PAGE, Examples, export_web, import_web

pytestmark = pytest.mark.usefixtures("single_precision")


@pytest.mark.parametrize("method", [lgm.lbp(1), lgm.trw(3, "sequential", damping=0.25), lgm.mean_field(2)])
def test_a_model_answers_as_it_was_written(tmp_path, method):
    graph = lgm.zoo.dense(inputs=(1, 3, 4), hidden=[5], classes=3)
    posterior = lgm.Posterior(lgm.LGM(graph, generator=torch.Generator().manual_seed(0)), method)
    posterior.temperature = 0.7
    x = torch.rand(6, 1, 3, 4, generator=torch.Generator().manual_seed(1))
    x[x < 0.3] = torch.nan
    export_web(posterior, tmp_path / "model.safetensors", {"classes": ["a", "b", "c"]}, examples=Examples(x, [0] * 6))
    again = import_web(tmp_path / "model.safetensors")
    assert again.about["classes"] == ["a", "b", "c"]
    assert again.posterior.method == method
    assert_close(again.examples, x, equal_nan=True)
    with torch.no_grad():
        assert_close(again.posterior(x).exp(), posterior(x).exp(), atol=0.005, rtol=0)


def test_files_that_are_no_model(tmp_path):
    (tmp_path / "no.safetensors").write_bytes(b"nothing")
    for path in (tmp_path / "no.safetensors", tmp_path / "missing.safetensors"):
        with pytest.raises(CheckpointError, match=path.name):
            import_web(path)
    with pytest.raises(CheckpointError, match="an ensemble of a table"):
        import_web(PAGE / "models" / "wine.safetensors")


def test_edges_inside_a_layer_are_refused(tmp_path):
    posterior = lgm.Posterior(lgm.LGM(lgm.zoo.linear_crf(3, 2, 2)), lgm.lbp(3))
    with pytest.raises(InferenceError, match="'labels-labels' joins nodes of one layer; the playground takes"):
        export_web(posterior, tmp_path / "model.safetensors")
