"""The objective that learns to classify and to fill in."""

import math

import pytest
import torch

from torchlgm import LGM, infer, lbp, zoo
from torchlgm.app.objective import ClassAndInputs, _scattered
from torchlgm.learn import Inputs, Likelihood


@pytest.fixture
def model():
    return LGM(zoo.dense((1, 3, 3), (4,), 2), init="paper")


@pytest.fixture
def x():
    return torch.rand(5, 1, 3, 3).masked_fill(torch.rand(5, 1, 3, 3) < 0.3, math.nan)


METHOD = lbp(2, "sweep")


def test_is_the_likelihood_of_class_and_of_hidden_inputs(model, x):
    y = torch.tensor([0, 1, 0, 1, 1])
    objective = ClassAndInputs(METHOD, Inputs(), "digit", weight=3.0, share=0.5)
    asked = _scattered(x, 0.5) & ~x.isnan()
    assert 0 < asked.sum() < asked.numel()
    beliefs = infer(model, {"pixels": x.masked_fill(asked, math.nan)}, METHOD)
    filling = torch.nn.functional.binary_cross_entropy(beliefs["pixels"].probs[..., 1][asked], x[asked])
    classes = -beliefs["digit"].log_probs[torch.arange(5), 0, y].mean()
    torch.testing.assert_close(objective.loss(model, x, y), classes + 3.0 * filling)


def test_nothing_to_ask_about_leaves_the_class(model):
    x, y = torch.full((2, 1, 3, 3), math.nan), torch.tensor([0, 1])
    alone = Likelihood(METHOD).loss(model, x, y)
    torch.testing.assert_close(ClassAndInputs(METHOD, Inputs(), "digit").loss(model, x, y), alone)


def test_validates_like_the_likelihood(model, x):
    objective = ClassAndInputs(METHOD, Inputs(), "digit")
    assert torch.equal(objective.log_probs(model, x), Likelihood(METHOD).log_probs(model, x))


def test_the_hash_is_repeatable_and_spreads():
    x = torch.rand(400, 3, 8, 8)
    mask = _scattered(x, 0.2)
    assert mask.shape == (400, 1, 8, 8)
    assert torch.equal(mask, _scattered(x.clone(), 0.2))
    share_of_samples, share_of_places = mask.double().mean((1, 2, 3)), mask.double().mean((0, 1))
    assert abs(mask.double().mean() - 0.2) < 0.01
    assert share_of_samples.min() > 0.05
    assert share_of_samples.max() < 0.45
    assert share_of_places.min() > 0.1
    assert share_of_places.max() < 0.3


def test_the_hash_depends_on_what_is_hidden_and_on_nothing_else():
    x = torch.rand(1, 64)
    hidden = x.clone()
    hidden[0, 5] = math.nan
    assert not torch.equal(_scattered(x, 0.5), _scattered(hidden, 0.5))
