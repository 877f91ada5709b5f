"""The predictor: what it answers about the target and about inputs, with any part of them missing."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from helpers.problems import BY_NAME, model_of
from torchlgm import LGM, Dense, Graph, InputEncoding, Layer, Observed, Posterior, exact, infer, lbp, mean_field, zoo
from torchlgm.data import requantise
from torchlgm.errors import EvidenceError, GraphError, InferenceError
from torchlgm.model import Encoding

STAR = BY_NAME["star"]
X = torch.tensor([[0.2, 0.9, 0.4], [1.0, 0.0, 0.6], [0.5, 0.1, 0.7], [0.3, 0.3, 0.8]], dtype=torch.float64)
SEEN = torch.tensor([[0, 1, 0], [1, 1, 1], [0, 0, 0], [1, 0, 1]]).bool()
HOLES = X.masked_fill(~SEEN, math.nan)


@pytest.fixture
def model():
    return model_of(STAR)


@pytest.mark.parametrize("x", [X, HOLES], ids=["complete", "holes"])
@pytest.mark.parametrize("method", [lbp(3), mean_field(2), exact()], ids=["lbp", "mf", "exact"])
def test_answers_are_those_of_inference(model, method, x):
    posterior = Posterior(model, method)
    beliefs = infer(model, {STAR.graph.layers[0].name: x}, method)
    torch.testing.assert_close(posterior(x), beliefs[STAR.graph.root].log_probs[:, 0])
    for name, belief in posterior.infer(x).items():
        torch.testing.assert_close(belief.probs, beliefs[name].probs)


@pytest.mark.parametrize("under", [0.0, 255.0, math.nan])
def test_what_stands_under_a_missing_entry_never_matters(model, under):
    posterior, x = Posterior(model, lbp(3)), X.masked_fill(~SEEN, under)
    torch.testing.assert_close(posterior(x, SEEN), posterior(HOLES))
    torch.testing.assert_close(posterior.infer(x, SEEN)["inputs"].probs, posterior.infer(HOLES)["inputs"].probs)
    torch.testing.assert_close(posterior.complete(x, SEEN), posterior.complete(HOLES))
    some = SEEN | (torch.arange(3) == 0)
    torch.testing.assert_close(posterior(HOLES, some), posterior(HOLES))  # NaN is missing, whatever the mask says


def test_first_layer_and_root_are_the_default():
    layers = (Layer("symptoms", 3), Layer("disease", 1, 4), Layer("age", 1))
    graph = Graph(layers, (Dense("symptoms", "disease"), Dense("disease", "age")), root="disease")
    posterior = Posterior(LGM(graph))
    assert (posterior.encoding, posterior.target, posterior.method) == (InputEncoding("symptoms"), "disease", lbp())
    other = Posterior(LGM(graph), exact(), inputs="age", target="symptoms")
    expected = infer(other.model, {"age": X[:, :1]}, exact())["symptoms"].log_probs
    torch.testing.assert_close(other(X[:, :1]), expected)
    assert "method=Exact(" in repr(other)


def test_shapes_of_targets():
    model = LGM(zoo.denoiser(4, 5)) if hasattr(zoo, "denoiser") else LGM(zoo.conditional_rbm(3, 2, 4))
    first, root = model.graph.layers[0], model.graph.layer(model.graph.root)
    assert Posterior(model)(torch.rand(2, *first.sizes)).shape == (2, *root.sizes, root.labels)


def test_expected_values_fill_holes(model):
    posterior = Posterior(model, lbp(3))
    filled, believed = posterior.complete(HOLES), posterior.infer(HOLES)["inputs"].probs[..., 1]
    assert torch.equal(filled[SEEN], X[SEEN])
    torch.testing.assert_close(filled[~SEEN], believed[~SEEN])
    single = HOLES.float()
    assert posterior.complete(single).dtype == torch.float32
    assert torch.equal(posterior.complete(X.float()), X.float())


def test_more_labels_are_bins_and_their_middles():
    posterior = Posterior(LGM(zoo.dense(3, (2,), classes=3, input_labels=4), "paper"), lbp(3))
    labels = requantise(X, 4)
    assert labels.dtype == torch.int64
    torch.testing.assert_close(posterior(X), posterior(labels))
    seen = Observed(labels, SEEN)
    torch.testing.assert_close(
        posterior(HOLES), infer(posterior.model, {posterior.encoding.layer: seen}, lbp(3))["classes"].log_probs[:, 0]
    )
    torch.testing.assert_close(posterior(labels, SEEN), posterior(HOLES))
    probs = posterior.infer(HOLES)[posterior.encoding.layer].probs[0, 0]
    expected = (probs * torch.tensor([0.125, 0.375, 0.625, 0.875])).sum()
    torch.testing.assert_close(posterior.complete(HOLES)[0, 0], expected)


def test_arrays_and_other_dtypes_are_inputs_too(model):
    posterior = Posterior(model, lbp(2))
    for other in (HOLES.numpy(), HOLES.tolist(), np.ma.masked_array(X.numpy(), mask=~SEEN.numpy())):
        torch.testing.assert_close(posterior(other), posterior(HOLES))
    torch.testing.assert_close(posterior(X.numpy(), SEEN.numpy()), posterior(HOLES))
    assert posterior.float()(HOLES).dtype == torch.float32


def test_complete_inputs_send_no_messages(model, monkeypatch):
    from torchlgm import posterior as predictors

    asked = []
    real = predictors.run
    monkeypatch.setattr(predictors, "run", lambda mrf, *given, **how: asked.append(mrf) or real(mrf, *given, **how))
    posterior = Posterior(model, lbp(2))
    for x in (X, HOLES):
        posterior(x)
    posterior.for_complete_inputs().log_probs(X)
    assert ["inputs" in mrf.unary for mrf in asked] == [False, True, False]
    twin = posterior.for_complete_inputs()
    assert [*map(id, twin.parameters())] == [*map(id, posterior.parameters())]
    assert posterior.encoding.missing


def test_is_a_module_like_any_other(model):
    posterior = Posterior(model, lbp(2))
    assert {name for name, _ in posterior.named_parameters()} == {f"model.{n}" for n, _ in model.named_parameters()}
    posterior(HOLES).logsumexp(-1).sum().backward()
    loss = torch.nn.functional.nll_loss(posterior(HOLES), torch.tensor([0, 1, 2, 0]))
    loss.backward()
    assert all(p.grad is not None for p in posterior.parameters())
    compiled = torch.compile(posterior, backend="eager")
    torch.testing.assert_close(compiled(HOLES, SEEN), posterior(HOLES, SEEN))
    each = torch.func.vmap(lambda x: posterior(x[None])[0])(HOLES)
    torch.testing.assert_close(each, posterior(HOLES))


def test_evidence_is_for_inference(model):
    posterior = Posterior(model, lbp(2))
    evidence = posterior.evidence(HOLES)
    torch.testing.assert_close(infer(model, evidence, lbp(2))["classes"].log_probs[:, 0], posterior(HOLES))
    assert posterior.evidence(X)["inputs"].free is None


class Reversed(Encoding):
    """An encoding of one's own: inputs in the other order."""

    layers = ("inputs",)

    def split(self, x: Tensor) -> dict[str, Tensor]:
        return {"inputs": x.flip(1)}

    def probs(self, layer, x, dtype):
        return x.unsqueeze(-1).to(dtype)

    def values(self, probs):
        return probs["inputs"][..., 1].flip(1)


def test_encodings_of_ones_own(model):
    posterior, plain = Posterior(model, lbp(3), Reversed()), Posterior(model, lbp(3))
    torch.testing.assert_close(posterior(HOLES.flip(1)), plain(HOLES))
    torch.testing.assert_close(posterior.complete(HOLES.flip(1)), plain.complete(HOLES).flip(1))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"inputs": "pictures"}, GraphError, "no layer 'pictures'; the graph has inputs"),
        ({"target": "label"}, GraphError, "no layer 'label'"),
        ({"target": "inputs"}, InferenceError, "layer 'inputs' takes the inputs; name another one as the target"),
        ({"inputs": "classes"}, InferenceError, "layer 'classes' takes the inputs"),
        ({"method": "lbp"}, InferenceError, "method='lbp'; expected lbp"),
        ({"method": lbp}, InferenceError, r"expected lbp\(\)"),
    ],
)
def test_wrong_parts(model, options, error, message):
    with pytest.raises(error, match=message):
        Posterior(model, **options)
    with pytest.raises(InferenceError, match="model is of type Linear; expected an LGM"):
        Posterior(torch.nn.Linear(2, 2))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (255 * X, r"inputs of layer 'inputs' must be in \[0, 1\], NaN = missing, got .*; scale them first, .* x / 255"),
        (-X, "got -1 to -0"),
        (X.log(), "got -inf to 0"),
        (HOLES * 255, "got .* to "),
        ((255 * X).byte(), "integer inputs are labels, 0 to 1 in layer 'inputs', got 0 to 255"),
        (torch.zeros(5, 2, 2), r"inputs shaped \(2, 2\) do not fit layer 'inputs', which is shaped \(3,\)"),
        (torch.zeros(3), "do not fit layer 'inputs'"),
        ("inputs", "inputs is not a numeric array"),
    ],
)
@pytest.mark.parametrize("ask", ["__call__", "infer", "complete", "evidence"])
def test_wrong_inputs(model, ask, x, message):
    with pytest.raises(EvidenceError, match=message):
        getattr(Posterior(model), ask)(x)


@pytest.mark.parametrize("seen", [torch.ones(4, 3), torch.ones(4, 3, dtype=torch.uint8), torch.ones(4, 2).bool()])
def test_wrong_masks(model, seen):
    with pytest.raises(EvidenceError, match=r"expected booleans, .* shaped as the values are, \(4, 3\)"):
        Posterior(model)(X, seen)
