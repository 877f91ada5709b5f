"""Evidence, and the energy of what is observed, are computed for those who ask."""

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
    objective = lgm.learn.Likelihood(lgm.trw(2), lgm.learn.Inputs(missing=False))
    objective.loss(model, torch.rand(2, 3), torch.tensor([0, 2])).backward()
    assert model.table["hidden-digit"].grad is not None


def test_samples_are_taken_with_their_constants(model):
    mrf = model.condition({"pixels": torch.rand(4, 3), "hidden": torch.rand(4, 2)})
    index = torch.tensor([2, 0])
    torch.testing.assert_close(mrf.take(index).constant, mrf.constant[index])
    assert mrf.take(index).batch == 2


def test_everything_observed(model):
    seen = {"pixels": torch.rand(2, 3), "hidden": torch.rand(2, 2), "digit": torch.tensor([[0], [2]])}
    mrf = model.condition(seen)
    assert not mrf.unary
    assert mrf.like.dtype == torch.get_default_dtype()
    assert mrf.constant.shape == (2,)


def test_evidence_is_computed_for_those_who_ask(model):
    mrf = model.condition({"pixels": torch.rand(2, 3)})
    assert list(mrf.evidence) == ["hidden"]
    assert "hidden" in mrf.evidence
    assert "digit" not in mrf.evidence
    (part,) = mrf.evidence.absorbed["hidden"]
    assert part.computed is None
    assert mrf.evidence["hidden"] is mrf.evidence["hidden"] is part.computed


@pytest.mark.parametrize("differentiable", [True, False])
def test_evidence_has_a_gradient_whoever_asks_first(model, differentiable):
    with torch.set_grad_enabled(differentiable):
        mrf = model.condition({"pixels": torch.rand(2, 3)})
    with torch.set_grad_enabled(not differentiable):
        assert mrf.evidence["hidden"].requires_grad == differentiable
