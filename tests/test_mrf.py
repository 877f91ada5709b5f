"""What is absorbed: evidence, and the energy of what is observed."""

import pytest
import torch

import torchlgm as lgm
from torchlgm.mrf import MRF


@pytest.fixture
def model():
    return lgm.LGM(lgm.zoo.dense(3, (2,), 3), "paper")


def test_training_needs_no_constant(model, monkeypatch):
    def refuse(self):
        raise AssertionError("nobody asked")

    monkeypatch.setattr(MRF, "constant", property(refuse))
    posterior = lgm.Posterior(model, lgm.trw(2)).for_complete_inputs()
    posterior.label_nll(torch.rand(2, 3), torch.tensor([0, 2])).backward()
    assert model.table["hidden-class"].grad is not None


def test_samples_are_taken_with_their_constants(model):
    mrf = model.condition({"inputs": torch.rand(4, 3), "hidden": torch.rand(4, 2)})
    index = torch.tensor([2, 0])
    torch.testing.assert_close(mrf.take(index).constant, mrf.constant[index])
    assert mrf.take(index).batch == 2


def test_everything_observed(model):
    seen = {"inputs": torch.rand(2, 3), "hidden": torch.rand(2, 2), "class": torch.tensor([[0], [2]])}
    mrf = model.condition(seen)
    assert not mrf.unary
    assert mrf.like.dtype == torch.get_default_dtype()
    assert mrf.constant.shape == (2,)


def test_deferred_evidence_is_that_of_others_and_computed_once(model):
    seen = {"inputs": torch.rand(2, 3)}
    mrf = model.condition(seen, deferred=True)
    assert list(mrf.evidence) == ["hidden"]
    assert "hidden" in mrf.evidence
    assert "class" not in mrf.evidence
    assert mrf.evidence.only("hidden") is not None
    assert mrf.evidence["hidden"] is mrf.evidence["hidden"]
    assert mrf.evidence.only("hidden") is None
    assert torch.equal(mrf.evidence["hidden"], model.condition(seen).evidence["hidden"])


def test_evidence_is_not_deferred_by_itself(model):
    """So that who asks first, and how, changes nothing."""
    assert type(model.condition({"inputs": torch.rand(2, 3)}).evidence) is dict
