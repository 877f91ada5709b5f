"""BernoulliRBM of scikit-learn: the same conditional probabilities and the same free energy."""

import numpy as np
import pytest
import torch

import torchlgm as lgm
from torchlgm.interop import from_bernoulli_rbm

neural_network = pytest.importorskip("sklearn.neural_network")


@pytest.fixture(scope="module")
def fitted():
    data = np.random.default_rng(0).uniform(size=(60, 7)).round()
    machine = neural_network.BernoulliRBM(n_components=4, n_iter=30, learning_rate=0.2, random_state=0).fit(data)
    machine.intercept_visible_ += np.linspace(-1, 1, 7)  # so that no part of it is close to 0
    return machine


@pytest.mark.parametrize("soft", [False, True])
def test_hidden_units_given_visible_ones(fitted, soft):
    v = np.random.default_rng(1).uniform(size=(5, 7))
    v = v if soft else v.round()
    beliefs = lgm.infer(from_bernoulli_rbm(fitted), {"visible": v}, lgm.lbp(1))
    np.testing.assert_allclose(beliefs["hidden"].probs[..., 1].detach(), fitted.transform(v), atol=1e-12)


def test_free_energy(fitted):
    v = np.random.default_rng(2).uniform(size=(6, 7)).round()
    beliefs = lgm.infer(from_bernoulli_rbm(fitted), {"visible": v}, lgm.exact())
    np.testing.assert_allclose(-beliefs.log_z.detach(), fitted._free_energy(v), atol=1e-10)


def test_its_own_score_is_that_of_the_model(fitted):
    """scikit-learn estimates the pseudo-likelihood from one flipped unit; the model gives that conditional exactly."""
    v = np.random.default_rng(3).uniform(size=(4, 7)).round()
    model = from_bernoulli_rbm(fitted)
    for unit in range(7):
        flipped = v.copy()
        flipped[:, unit] = 1 - flipped[:, unit]
        theirs = fitted._free_energy(v) - fitted._free_energy(flipped)
        rest = torch.from_numpy(v).clone()
        rest[:, unit] = torch.nan
        probs = lgm.infer(model, {"visible": rest}, lgm.exact())["visible"].probs[:, unit].detach().numpy()
        own = probs[np.arange(4), v[:, unit].astype(int)]
        np.testing.assert_allclose(own, 1 / (1 + np.exp(theirs)), atol=1e-10)


def test_single_precision(fitted, single_precision):
    v = np.random.default_rng(1).uniform(size=(5, 7)).astype(np.float32)
    beliefs = lgm.infer(from_bernoulli_rbm(fitted), {"visible": v}, lgm.lbp(1))
    np.testing.assert_allclose(beliefs["hidden"].probs[..., 1].detach(), fitted.transform(v), atol=1e-6)


def test_what_was_not_fitted():
    with pytest.raises(lgm.errors.DataError, match="not a fitted BernoulliRBM"):
        from_bernoulli_rbm(neural_network.BernoulliRBM())
