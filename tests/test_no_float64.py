"""A float32 model is trained and asked without float64, which some devices do not have."""

import pytest
import torch
from torch.utils._python_dispatch import _disable_current_modes

import torchlgm as lgm
from helpers.devices import NoFloat64
from torchlgm import learn
from torchlgm.inference import elimination
from torchlgm.layout import edge_list

pytestmark = pytest.mark.usefixtures("single_precision")

METHODS = {
    "lbp": lgm.lbp(2),
    "trw": lgm.trw(2, "sequential"),
    "mean_field": lgm.mean_field(2),
    "tolerance": lgm.trw(50, damping=0.3, tolerance=1e-3),
    "exact": lgm.exact(),
}


@pytest.fixture(autouse=True)
def _edges_are_listed_on_the_cpu(monkeypatch):
    """In float64, whatever the device of the model."""

    def unguarded(layout):
        with _disable_current_modes():
            return edge_list(layout)

    monkeypatch.setattr(elimination, "edge_list", unguarded)


def made():
    graph = lgm.zoo.dense(inputs=4, hidden=[3], classes=2)
    return lgm.LGM(graph, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def samples():
    x = torch.rand(60, 4, generator=torch.Generator().manual_seed(0))
    x[::7, 1] = torch.nan
    return learn.Samples(x, (x[:, 0] > 0.5).long())


def test_the_guard():
    with lgm.backend("eager"), NoFloat64():
        torch.ones(2).sum()
        with pytest.raises(TypeError, match="made a float64 tensor"):
            torch.ones(2).double()


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_inference(method, samples):
    model = made()
    with lgm.backend("eager"), NoFloat64():
        answer = lgm.infer(model, {"inputs": samples.inputs}, method)
        assert answer["classes"].probs.dtype == torch.float32
        lgm.sample(model, {"inputs": samples.inputs}, sweeps=2)


OBJECTIVES = {"likelihood": learn.Likelihood, "joint": learn.JointLikelihood, "moments": learn.MomentMatching}


@pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
def test_training(objective, samples, tmp_path):
    posterior = lgm.Posterior(made(), lgm.lbp(2))
    with lgm.backend("eager"), NoFloat64():
        settings = learn.Settings(epochs=2, visible=(0.3, 1.0))
        learn.fit(posterior, samples, samples, objective(), settings, folder=tmp_path / "state")


def test_start_and_pretraining(samples):
    model = made()
    with lgm.backend("eager"), NoFloat64():
        learn.pretrain(learn.TopLayer(model), samples.inputs.nan_to_num(0.5), learn.Settings(epochs=1))
