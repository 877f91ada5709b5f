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
    assert model.table["hidden-classes"].grad is not None


def test_samples_are_taken_with_their_constants(model):
    mrf = model.condition({"inputs": torch.rand(4, 3), "hidden": torch.rand(4, 2)})
    index = torch.tensor([2, 0])
    torch.testing.assert_close(mrf.take(index).constant, mrf.constant[index])
    assert mrf.take(index).batch == 2


def test_everything_observed(model):
    seen = {"inputs": torch.rand(2, 3), "hidden": torch.rand(2, 2), "classes": torch.tensor([[0], [2]])}
    mrf = model.condition(seen)
    assert not mrf.unary
    assert mrf.like.dtype == torch.get_default_dtype()
    assert mrf.constant.shape == (2,)


def test_evidence_is_computed_when_it_is_read_and_once(model):
    evidence = model.condition({"inputs": torch.rand(2, 3)}).evidence
    assert list(evidence) == ["hidden"]
    assert "hidden" in evidence
    assert "classes" not in evidence
    term = evidence.single_term("hidden")
    assert torch.equal(evidence["hidden"], term.field)
    assert evidence["hidden"] is evidence["hidden"]
    assert evidence.single_term("hidden") is None


def test_evidence_that_is_read_without_gradients_keeps_them_for_others(model):
    evidence = model.condition({"inputs": torch.rand(2, 3)}).evidence
    with torch.no_grad():
        assert not evidence["hidden"].requires_grad
    assert evidence["hidden"].requires_grad
