"""Contrastive divergence against the exact gradient, and pretraining of whole models."""

import math

import pytest
import torch
from torch import Tensor

from torchlgm import (
    LGM,
    Conv,
    Dense,
    Graph,
    Init,
    InputEncoding,
    Layer,
    Local,
    Posterior,
    Sparse,
    data,
    exact,
    lbp,
    log_prob,
    zoo,
)
from torchlgm.errors import EvidenceError, TrainingError
from torchlgm.learn import (
    ContrastiveDivergence,
    Likelihood,
    Pair,
    Settings,
    TopLayer,
    evaluate_loss,
    fit,
    pretrain,
    start_from_data,
)
from torchlgm.learn.pretraining import chain, features


def _two(lower: Layer, upper: Layer, *connections) -> Graph:
    return Graph((lower, upper), connections)


GRAPHS = {
    "dense": _two(Layer("v", 3), Layer("h", 2), Dense("v", "h")),
    "many-labels": _two(Layer("v", 2, 3), Layer("h", 2, 4), Dense("v", "h")),
    "declared-downward": _two(Layer("v", 3), Layer("h", 2, 3), Dense("h", "v")),
    "conv": _two(Layer("v", (1, 4)), Layer("h", (2, 2)), Conv("v", "h", 2, 2)),
    "conv-padded": _two(Layer("v", (1, 3)), Layer("h", (1, 2), 3), Conv("v", "h", 2, 2, ((1, 0),))),
    "local": _two(Layer("v", (1, 2, 2)), Layer("h", (2, 1, 1)), Local("v", "h", 2)),
    "local-padded": _two(Layer("v", (1, 3), 3), Layer("h", (1, 2)), Local("v", "h", 2, 2, ((1, 0),))),
    "two-connections": _two(
        Layer("v", 3), Layer("h", 2), Dense("v", "h"), Sparse("v", "h", ((0, 1), (2, 0)), name="b")
    ),
}


def _model(name: str, scale: str = "energy", size: float = 0.7) -> LGM:
    generator = torch.Generator().manual_seed(1)
    return LGM(GRAPHS[name], Init(size, size), scale, generator)


def _labels(model: LGM, count: int) -> Tensor:
    layer = model.graph.layer("v")
    return torch.randint(layer.labels, (count, *layer.sizes), generator=torch.Generator().manual_seed(2))


def _q(model: LGM, labels: Tensor) -> Tensor:
    k = model.graph.layer("v").labels
    return torch.nn.functional.one_hot(labels.flatten(1), k)[..., 1:].double()


def _gradient(model: LGM, loss: Tensor) -> Tensor:
    model.zero_grad()
    loss.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def _exact_nll(model: LGM, labels: Tensor) -> Tensor:
    return -log_prob(model, None, {"v": labels}, exact()).mean()


@pytest.mark.parametrize("name", GRAPHS)
def test_free_energy_is_the_likelihood_but_for_log_z(name: str):
    model = _model(name)
    labels = _labels(model, 5)
    free_energy = Pair(model, "v", "h").free_energy(_q(model, labels))
    rest = free_energy + log_prob(model, None, {"v": labels}, exact())
    torch.testing.assert_close(rest, rest[:1].expand(5))


@pytest.mark.pairs
@pytest.mark.parametrize("persistent", [False, True], ids=["cd", "pcd"])
@pytest.mark.parametrize("scale", ["energy", "rho"])
@pytest.mark.parametrize("name", GRAPHS)
def test_long_chains_give_the_exact_gradient(name: str, scale: str, persistent: bool):
    model = _model(name, scale)
    labels = _labels(model, 4)
    truth = _gradient(model, _exact_nll(model, labels))
    v = _q(model, labels).repeat(2500, 1, 1)
    generator = torch.Generator().manual_seed(3)
    contrast = ContrastiveDivergence(Pair(model, "v", "h"), generator, k=5 if persistent else 25, persistent=persistent)
    for _ in range(4 if persistent else 0):
        contrast.loss(v)
    estimate = _gradient(model, contrast.loss(v))
    assert (estimate - truth).abs().max() < 0.025, "four standard errors of the mean over 10,000 chains"
    assert truth.abs().max() > 0.1


def test_short_chains_are_biased_where_mixing_is_slow():
    """Two modes, all 0 and all 1. One Gibbs step from the data does not find the second one, a thousand do."""
    model = _model("dense")
    with torch.no_grad():
        model.table["v-h"].fill_(-4)
        model.unary["v"].fill_(4)
        model.unary["h"].fill_(6)
    labels = torch.zeros(4, 3, dtype=torch.long)
    truth = _gradient(model, _exact_nll(model, labels))
    errors = {}
    for k in (1, 1000):
        contrast = ContrastiveDivergence(Pair(model, "v", "h"), torch.Generator().manual_seed(3), k)
        errors[k] = (_gradient(model, contrast.loss(_q(model, labels).repeat(500, 1, 1))) - truth).abs().max()
    assert errors[1] > 0.4
    assert errors[1000] < 0.1


def test_soft_data_is_its_expectation():
    model = _model("dense")
    pair = Pair(model, "v", "h")
    v = torch.rand(6, 3, 1)
    expected = -(pair.up(v) + model.unary["h"])
    torch.testing.assert_close(expected, torch.einsum("bvk,vhkl->bhl", v, model.table["v-h"]))


@pytest.mark.parametrize("persistent", [False, True], ids=["cd", "pcd"])
@pytest.mark.parametrize("name", ["dense", "many-labels", "conv", "local"])
def test_likelihood_rises(name: str, persistent: bool):
    model = _model(name, size=0.1)
    layer = model.graph.layer("v")
    patterns = torch.zeros(40, *layer.sizes, dtype=torch.long)
    patterns[20:] = 1
    before = _exact_nll(model, patterns)
    contrast = ContrastiveDivergence(Pair(model, "v", "h"), torch.Generator().manual_seed(0), persistent=persistent)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(100):
        optimizer.zero_grad()
        contrast.loss(_q(model, patterns)).backward()
        optimizer.step()
    after = _exact_nll(model, patterns)
    assert after < before - 0.3
    assert after > math.log(2), "the entropy of two patterns is the least there is"


def test_persistent_chains_go_on():
    model = _model("dense")
    v = _q(model, _labels(model, 6))
    pair = Pair(model, "v", "h")
    contrast = ContrastiveDivergence(pair, torch.Generator().manual_seed(0), k=2, persistent=True)
    contrast.loss(v)
    first = contrast.chains
    assert first is not None
    assert first.shape == v.shape
    contrast.loss(v[:3])
    assert contrast.chains is not None
    assert contrast.chains.shape == v.shape, "a smaller batch does not end chains"
    generator = torch.Generator().manual_seed(0)
    expected = pair.gibbs(pair.gibbs(v, 2, generator), 2, generator)
    assert torch.equal(contrast.chains, expected)
    assert set(contrast.chains.unique().tolist()) <= {0.0, 1.0}
    fresh = ContrastiveDivergence(pair, torch.Generator().manual_seed(0), k=2)
    fresh.loss(v)
    assert fresh.chains is None


def _settings(**changes) -> Settings:
    return Settings(**{"epochs": 6, "batch_size": 20, "learning_rate": 1e-2, **changes})


def _bars(count: int = 100) -> Tensor:
    """Pictures of a vertical or a horizontal bar, `(N, 1, 6, 6)`."""
    generator = torch.Generator().manual_seed(0)
    x = torch.zeros(count, 1, 6, 6)
    at = torch.randint(6, (count,), generator=generator)
    for i in range(count):
        (x[i, 0, at[i]] if i % 2 else x[i, 0, :, at[i]]).fill_(1)
    return x


@pytest.mark.parametrize("kind", ["conv", "local"])
def test_windows_learn_to_reconstruct(kind: str):
    graph = zoo.windows(kind, (1, 6, 6), (4, 3), (3, 2), (1, 1), hidden=5, classes=2)
    model = LGM(graph, Init(table=0.1))
    top = model.table["hidden-classes"].detach().clone()
    x = _bars()
    start_from_data(model, "inputs", x)
    history = pretrain(TopLayer(model), x, _settings(epochs=10, learning_rate=0.1))
    errors = {row["layers"]: [] for row in history}
    for row in history:
        errors[row["layers"]].append(row["error"])
    assert list(errors) == ["inputs-edges", "edges-parts", "parts-hidden"]
    for layers, values in errors.items():
        assert len(values) == 10
        assert values[-1] < values[0], layers
    assert errors["inputs-edges"][-1] < 0.8 * errors["inputs-edges"][0]
    assert torch.equal(model.table["hidden-classes"], top), "the last connection is not for pretraining"


def test_upper_pairs_leave_what_lower_ones_learned():
    shallow, deep = (LGM(zoo.dense((1, 6, 6), hidden, classes=2), "paper") for hidden in ((5,), (5, 4)))
    with torch.no_grad():
        deep.table["inputs-hidden1"].copy_(shallow.table["inputs-hidden"])
        deep.unary["inputs"].copy_(shallow.unary["inputs"])
        deep.unary["hidden1"].copy_(shallow.unary["hidden"])
    for model in (shallow, deep):
        pretrain(TopLayer(model), _bars(40), _settings(epochs=2))
    assert torch.equal(deep.table["inputs-hidden1"], shallow.table["inputs-hidden"])
    assert torch.equal(deep.unary["inputs"], shallow.unary["inputs"])
    assert torch.equal(deep.unary["hidden1"], shallow.unary["hidden"])


def test_same_seed_same_weights():
    def weights(seed: int) -> Tensor:
        model = LGM(
            zoo.dense((1, 6, 6), (5, 4), classes=2), Init(table=0.1), generator=torch.Generator().manual_seed(0)
        )
        pretrain(TopLayer(model), _bars(40), _settings(epochs=2, seed=seed))
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_missing_inputs_count_with_their_unary():
    model = LGM(zoo.dense(3, (2,), classes=2), "paper")
    x = torch.tensor([[0.2, math.nan, 1.0]])
    filled = x.clone()
    filled[0, 1] = torch.sigmoid(-model.unary["inputs"][1, 0]).detach()
    layers = ["inputs", "hidden"]
    encoding = InputEncoding("inputs")
    torch.testing.assert_close(features(model, layers, encoding, x), features(model, layers, encoding, filled))


@pytest.mark.usefixtures("single_precision")
def test_pretraining_then_a_classifier_or_fine_tuning_on_digits():
    digits = data.load("digits")
    train, valid = data.random_split(digits.train, 0.8, seed=0)
    model = LGM(zoo.dense((1, 8, 8), (100,)), Init(table=0.1), generator=torch.Generator().manual_seed(0))
    start_from_data(model, "inputs", train.inputs)
    pretrain(TopLayer(model), train.inputs, _settings(epochs=6, learning_rate=2e-2))
    below = {name: t.detach().clone() for name, t in model.named_parameters()}
    top = TopLayer(model)
    fit(top, train, valid, None, _settings(epochs=8, learning_rate=3e-2))
    moved = {name for name, t in model.named_parameters() if not torch.equal(t, below[name])}
    assert moved == {"table.hidden-classes", "unary.classes"}
    loss, accuracy = evaluate_loss(top, digits.test)
    assert accuracy > 0.85
    posterior = Posterior(model, lbp(2, "sweep"))
    fit(posterior, train, valid, None, _settings(epochs=2))
    tuned, better = evaluate_loss(posterior, digits.test)
    assert tuned < loss
    assert better > 0.9


def test_the_top_layer_is_softmax_regression_without_hidden_layers():
    model = LGM(zoo.dense(3, (), classes=4), "paper")
    x, y = torch.rand(5, 3), torch.randint(4, (5,))
    losses = [Likelihood().loss(predictor, x, y) for predictor in (TopLayer(model), Posterior(model, exact()))]
    torch.testing.assert_close(*losses)


def test_chain_of_layers():
    assert chain(zoo.windows("conv"), "inputs", "classes") == ["inputs", "edges", "parts", "hidden", "classes"]
    for graph, first, last in (
        (zoo.conditional_rbm(2, 2, 2), "conditions", "outputs"),
        (zoo.dense(3, (2, 2)), "hidden1", "classes"),
        (zoo.dense(3, (2, 2)), "inputs", "hidden2"),
    ):
        with pytest.raises(TrainingError, match="needs a chain of"):
            chain(graph, first, last)


def test_wrong_use():
    model = LGM(zoo.dense(3, (2,)))
    with pytest.raises(TrainingError, match="'inputs' and 'classes' are not connected"):
        Pair(model, "inputs", "classes")
    with pytest.raises(TrainingError, match="'visible-visible' joins nodes of one layer, but contrastive divergence"):
        Pair(LGM(zoo.semi_restricted_bm(3, 2)), "visible", "hidden")
    with pytest.raises(TrainingError, match="at least one Gibbs step"):
        ContrastiveDivergence(Pair(model, "inputs", "hidden"), torch.Generator(), k=0)
    with pytest.raises(EvidenceError, match=r"'inputs' must be in \[0, 1\], NaN = missing, got 0 to 255"):
        pretrain(TopLayer(model), torch.tensor([[0.0, 255.0, torch.nan]]))
    with pytest.raises(EvidenceError, match="labels, 0 to 1 in layer 'inputs', got 0 to 255"):
        pretrain(TopLayer(model), torch.tensor([[0, 255, 7]]))
