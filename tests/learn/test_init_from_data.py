"""Unaries that start at the data's log-odds."""

import math

import pytest
import torch

from torchlgm import LGM, infer, lbp, zoo
from torchlgm.errors import EvidenceError, GraphError, TrainingError
from torchlgm.learn import start_from_data


def _flat(graph) -> LGM:
    return LGM(graph, "zero")


def test_a_missing_pixel_has_the_mean_of_the_data():
    model = _flat(zoo.dense((1, 2, 2), (3,)))
    x = torch.rand(50, 1, 2, 2)
    start_from_data(model, "inputs", x, pseudo_count=1e-9)
    probs = infer(model, {"inputs": torch.full((1, 1, 2, 2), math.nan)}, lbp())["inputs"].probs
    torch.testing.assert_close(probs[0, ..., 1], x.mean(0))


def test_pseudo_count_adds_samples_with_all_labels_alike():
    model = _flat(zoo.dense(2, (3,)))
    start_from_data(model, "inputs", torch.tensor([[0.0, 1.0]] * 8), pseudo_count=2.0)
    probs = infer(model, None, lbp())["inputs"].probs[0, :, 1]
    torch.testing.assert_close(probs, torch.tensor([0.1, 0.9]))


def test_missing_entries_do_not_count():
    model = _flat(zoo.dense(3, (3,)))
    x = torch.tensor([[1.0, 0.25, math.nan], [math.nan, 0.75, math.nan], [0.5, math.nan, math.nan]])
    start_from_data(model, "inputs", x, pseudo_count=1e-9)
    probs = infer(model, None, lbp())["inputs"].probs[0, :, 1]
    torch.testing.assert_close(probs, torch.tensor([0.75, 0.5, 0.5]))


def test_many_labels():
    model = _flat(zoo.dense(2, (3,), input_labels=3))
    x = torch.tensor([[0, 2], [1, 2], [1, 2], [2, 0]])
    start_from_data(model, "inputs", x, pseudo_count=1e-9)
    probs = infer(model, None, lbp())["inputs"].probs[0]
    torch.testing.assert_close(probs, torch.tensor([[0.25, 0.5, 0.25], [0.25, 0.0, 0.75]]), atol=1e-8, rtol=0)


def test_classes():
    model = _flat(zoo.dense(2, (3,), classes=3))
    start_from_data(model, "classes", torch.tensor([0, 2, 2, 1, 2])[:, None], pseudo_count=1e-9)
    torch.testing.assert_close(infer(model, None, lbp())["classes"].probs[0, 0], torch.tensor([0.2, 0.2, 0.6]))


def test_constant_pixels_stay_finite_in_single_precision():
    model = _flat(zoo.dense(2, (3,))).float()
    start_from_data(model, "inputs", torch.tensor([[0.0, 1.0]] * 1000))
    unary = model.unary["inputs"].detach()
    assert unary.dtype == torch.float32
    torch.testing.assert_close(unary[:, 0], torch.tensor([math.log(2001), -math.log(2001)], dtype=torch.float32))


def test_nothing_else_moves():
    model = LGM(zoo.dense(2, (3,)), "paper")
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    start_from_data(model, "inputs", torch.rand(4, 2))
    moved = [name for name, p in model.named_parameters() if not torch.equal(p, before[name])]
    assert moved == ["unary.inputs"]
    assert model.unary["inputs"].requires_grad


def test_wrong_use():
    model = _flat(zoo.dense(2, (3,)))
    with pytest.raises(TrainingError, match="pseudo_count=0; expected a positive number"):
        start_from_data(model, "inputs", torch.rand(4, 2), pseudo_count=0)
    with pytest.raises(GraphError, match="no layer 'pictures'"):
        start_from_data(model, "pictures", torch.rand(4, 2))
    with pytest.raises(EvidenceError, match="must lie in"):
        start_from_data(model, "inputs", torch.rand(4, 2) + 2)


def test_weights_count_samples():
    model = _flat(zoo.rbm(visible=2, hidden=1))
    x = torch.tensor([[1.0, 0.0], [0.0, torch.nan], [0.5, 1.0]])
    start_from_data(model, "visible", x, weights=torch.tensor([2.0, 1.0, 0.0]))
    weighted = model.unary["visible"].detach().clone()
    start_from_data(model, "visible", x[[0, 0, 1]])
    torch.testing.assert_close(weighted, model.unary["visible"].detach())


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (torch.tensor([1.0, -1.0, 1.0]), "a weight is -1; expected finite numbers >= 0"),
        (torch.tensor([1.0, torch.nan, 1.0]), "a weight is nan"),
        (torch.tensor([1.0, torch.inf, 1.0]), "a weight is inf"),
        (torch.ones(2), "expected one for each of the 3 samples"),
    ],
)
def test_bad_weights(weights, message):
    model = _flat(zoo.rbm(visible=2, hidden=1))
    before = model.unary["visible"].detach().clone()
    with pytest.raises(TrainingError, match=message):
        start_from_data(model, "visible", torch.rand(3, 2), weights=weights)
    with pytest.raises(TrainingError, match="pseudo_count"):
        start_from_data(model, "visible", torch.rand(3, 2), pseudo_count=torch.inf)
    assert torch.equal(before, model.unary["visible"])
