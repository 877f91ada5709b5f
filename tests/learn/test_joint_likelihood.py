"""The objective that learns to classify and to fill in."""

import math

import pytest
import torch

from torchlgm import LGM, Posterior, exact, infer, lbp, zoo
from torchlgm.errors import TrainingError
from torchlgm.learn import JointLikelihood, Likelihood

METHOD = lbp(2, "sweep")


@pytest.fixture
def model():
    return LGM(zoo.dense((1, 3, 3), (4,), 2), init="paper")


@pytest.fixture
def complete():
    """Three entries are missing from the start: nothing can be asked about them."""
    x = torch.rand(5, 1, 3, 3)
    x[0, 0, 0] = math.nan
    return x


@pytest.fixture
def x(complete):
    return complete.masked_fill(torch.rand(5, 1, 3, 3) < 0.4, math.nan)


def test_is_the_likelihood_of_class_and_of_hidden_inputs(model, x, complete):
    y = torch.tensor([0, 1, 0, 1, 1])
    asked = x.isnan() & ~complete.isnan()
    assert 0 < asked.sum() < asked.numel()
    beliefs = infer(model, {"inputs": x}, METHOD)
    filling = torch.nn.functional.binary_cross_entropy(beliefs["inputs"].probs[..., 1][asked], complete[asked])
    classes = -beliefs["classes"].log_probs[torch.arange(5), 0, y].mean()
    loss = JointLikelihood(weight=3.0).loss(Posterior(model, METHOD), x, y, complete)
    torch.testing.assert_close(loss, classes + 3.0 * filling)


def test_more_labels():
    model = LGM(zoo.dense((1, 2, 2), (4,), 2, input_labels=4), init="paper")
    complete = torch.tensor([[[[0.1, 0.9], [0.4, 0.6]]]])
    x = complete.clone()
    x[0, 0, 0, 1] = math.nan
    posterior = Posterior(model, METHOD)
    y = torch.tensor([1])
    expected = -posterior.infer(x)["inputs"].log_probs[0, 0, 0, 1, 3]
    alone = Likelihood().loss(posterior, x, y)
    torch.testing.assert_close(JointLikelihood().loss(posterior, x, y, complete), alone + expected)


@pytest.mark.parametrize("hidden", [None, "nothing"])
def test_nothing_to_ask_about_leaves_the_class(model, x, hidden):
    y = torch.tensor([0, 1, 0, 1, 1])
    posterior = Posterior(model, METHOD)
    alone = Likelihood().loss(posterior, x, y)
    loss = JointLikelihood().loss(posterior, x, y, None if hidden is None else x)
    torch.testing.assert_close(loss, alone)


def test_exact_answers(model, x, complete):
    y = torch.tensor([0, 1, 0, 1, 1])
    asked = x.isnan() & ~complete.isnan()
    beliefs = infer(model, {"inputs": x}, exact())
    filling = torch.nn.functional.binary_cross_entropy(beliefs["inputs"].probs[..., 1][asked], complete[asked])
    classes = -beliefs["classes"].log_probs[torch.arange(5), 0, y].mean()
    torch.testing.assert_close(JointLikelihood().loss(Posterior(model, exact()), x, y, complete), classes + filling)


@pytest.mark.parametrize("wrong", [{"smoothing": 7.0}, {"weight": -1.0}, {"weight": math.nan}, {"weight": "1"}])
def test_settings_are_checked(wrong):
    with pytest.raises(TrainingError, match=f"{next(iter(wrong))}=.*expected"):
        JointLikelihood(**wrong)


def test_networks_are_refused(x):
    for check in (lambda net: JointLikelihood().check(net), lambda net: JointLikelihood().loss(net, x, x)):
        with pytest.raises(TrainingError, match="JointLikelihood needs a Posterior, got Linear; use Likelihood"):
            check(torch.nn.Linear(9, 2))
