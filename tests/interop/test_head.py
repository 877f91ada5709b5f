"""A model as the head of a network: features enter both ways, gradients leave, and the example runs."""

import importlib.util
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

import torchlgm as lgm
from torchlgm.interop import Head

GRAPH = lgm.Graph(
    (lgm.Layer("features", (2, 2), labels=3), lgm.Layer("hidden", 3), lgm.Layer("digit", 1, 4)),
    (lgm.Dense("features", "hidden"), lgm.Dense("hidden", "digit")),
)


@pytest.fixture
def model():
    return lgm.LGM(GRAPH, init="paper")


def features(batch=3):
    return torch.randn(batch, 8)


def test_as_soft_evidence(model):
    x = features()
    probs = torch.softmax(torch.nn.functional.pad(x.reshape(3, 2, 2, 2), (1, 0)), -1)
    expected = lgm.infer(model, {"features": probs}, lgm.lbp(2))["digit"].log_probs
    assert_close(Head(lgm.Posterior(model, lgm.lbp(2)))(x), expected[:, 0])


def test_as_unaries(model):
    x = features()
    found = Head(lgm.Posterior(model, lgm.exact()), entering="unary")(x)
    for sample in range(3):
        other = lgm.LGM(GRAPH, init="zero")
        other.load_state_dict(model.state_dict())
        other.unary["features"].data -= x[sample].reshape(4, 2)
        expected = lgm.infer(other, {}, lgm.exact())["digit"].log_probs
        assert_close(found[sample : sample + 1], expected[:, 0])


@pytest.mark.parametrize("entering", ["evidence", "unary"])
def test_gradients(model, entering):
    head = Head(lgm.Posterior(model, lgm.trw(2)), entering)
    x = features(2).requires_grad_()
    assert torch.autograd.gradcheck(head, x)
    gradients = torch.autograd.grad(head(x)[..., 1].sum(), [x, *head.parameters()], allow_unused=True)
    assert gradients[0].abs().min() > 1e-8
    unused = {name for (name, _), g in zip(head.named_parameters(), gradients[1:], strict=True) if g is None}
    assert unused == ({"posterior.model.unary.features"} if entering == "evidence" else set())


@pytest.mark.parametrize("entering", ["evidence", "unary"])
def test_features_of_any_type(model, entering):
    """As autocast and other networks make them."""
    head, x = Head(lgm.Posterior(model, lgm.lbp(2)), entering), torch.randint(-2, 3, (3, 8))
    expected = head(x.to(torch.get_default_dtype()))
    for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.int64):
        assert_close(head(x.to(dtype)), expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert_close(head(x.bfloat16()), expected)


def test_what_does_not_fit(model):
    with pytest.raises(lgm.errors.InferenceError, match="entering='sideways'; expected one of evidence, unary"):
        Head(lgm.Posterior(model), entering="sideways")
    with pytest.raises(lgm.errors.InferenceError, match=r"made of a Posterior, not LGM: Head\(Posterior\(model\)\)"):
        Head(model)
    with pytest.raises(
        lgm.errors.EvidenceError, match=r"features shaped \(3, 5\); layer 'features' takes 8 for each sample"
    ):
        Head(lgm.Posterior(model))(torch.zeros(3, 5))


def test_the_example_learns(single_precision):
    path = Path(__file__).parents[2] / "examples" / "head.py"
    spec = importlib.util.spec_from_file_location("head_example", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    found = example.main(epochs=3)
    assert len(found) == 3
    assert min(found.values()) > 0.7
