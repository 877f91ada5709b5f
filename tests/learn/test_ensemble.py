"""Several models in one step are the same models trained one by one."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from helpers.tiny_training import METHOD, OBJECTIVE, bars, model, posterior, settings, weights
from torchlgm import LGM, Posterior, exact, lbp, mean_field, trw, zoo
from torchlgm.baselines import network
from torchlgm.errors import DataError, DivergedError, EvidenceError, InferenceError, TrainingError
from torchlgm.learn import (
    CapturedMembers,
    CapturedPredictor,
    Ensemble,
    JointLikelihood,
    MomentMatching,
    fit,
    predict_log_proba,
)

TRAIN, VALID = bars(), bars(20, seed=1)
WRONG = replace(VALID, targets=torch.where(torch.arange(20) % 5 == 0, 1 - VALID.targets, VALID.targets))


def trained(one, objective=OBJECTIVE, device="cpu", data=TRAIN, **changes):
    fit(one, data, VALID, objective, settings(epochs=1, **changes), device=device, reporters=[])
    return one


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("method", [METHOD, trw(3, "sequential"), mean_field(2)])
def test_members_are_trained_as_if_alone(method, missing):
    def made(seed):
        one = posterior(seed, method)
        return one if missing else one.for_complete_inputs()

    together = trained(Ensemble([made(seed) for seed in range(3)]))
    for seed, member in enumerate(together.members()):
        torch.testing.assert_close(weights(member), weights(trained(made(seed), seed=seed)))


def test_members_may_see_the_same_batches():
    together = trained(Ensemble([posterior(seed) for seed in range(2)], own_batches=False))
    for seed, member in enumerate(together.members()):
        torch.testing.assert_close(weights(member), weights(trained(posterior(seed))))


@pytest.mark.parametrize("objective", [MomentMatching(), JointLikelihood()])
def test_other_objectives_have_ensembles_too(objective):
    together = trained(Ensemble([posterior(seed) for seed in range(2)]), objective, clip=0.01)
    for seed, member in enumerate(together.members()):
        torch.testing.assert_close(weights(member), weights(trained(posterior(seed), objective, clip=0.01, seed=seed)))


def test_each_member_stops_by_itself_with_its_own_best_weights():
    def fitted(one, objective, seed):
        chosen = settings(epochs=40, patience=2, seed=seed)
        return fit(one, TRAIN, WRONG, objective, chosen, reporters=[])

    ensemble = Ensemble([posterior(seed) for seed in range(4)])
    result = fitted(ensemble, OBJECTIVE, 0)
    stops = set()
    for seed, (member, own) in enumerate(zip(ensemble.members(), result.members, strict=True)):
        alone = posterior(seed)
        expected = fitted(alone, OBJECTIVE, seed)
        assert (own.best_epoch, len(own.history)) == (expected.best_epoch, len(expected.history))
        torch.testing.assert_close(weights(member), weights(alone), rtol=1e-4, atol=1e-6)
        stops.add(len(own.history))
    assert len(stops) > 1
    assert len(result.history) == max(stops)


def test_a_member_that_has_stopped_may_diverge():
    class Break:
        """Turns a member into NaN after an epoch."""

        def __init__(self, member, epoch):
            self.member, self.after = member, epoch

        def step(self, *_): ...

        def epoch(self, row):
            if row["epoch"] == self.after:
                with torch.no_grad():
                    for p in ensemble.parameters():
                        p[self.member] = torch.nan

        def close(self): ...

    def fitted(*reporters):
        return fit(ensemble, TRAIN, WRONG, OBJECTIVE, settings(epochs=40, patience=2), reporters=reporters)

    ensemble = Ensemble(posterior(seed) for seed in range(4))
    expected = fitted()
    epochs = [len(member.history) for member in expected.members]
    early = epochs.index(min(epochs))
    assert min(epochs) < max(epochs)
    ensemble = Ensemble(posterior(seed) for seed in range(4))
    result = fitted(Break(early, epochs[early]))
    assert [m.best_loss for m in result.members] == [m.best_loss for m in expected.members]
    assert all(weights(member).isfinite().all() for member in ensemble.members())
    ensemble = Ensemble(posterior(seed) for seed in range(4))
    with pytest.raises(DivergedError):
        fitted(Break(early, 1))


def test_members_see_different_parts_of_hidden_inputs():
    ensemble = trained(Ensemble([posterior(0), posterior(0)]), visible=0.5)
    first, second = ensemble.members()
    assert not torch.allclose(weights(first), weights(second))


def test_an_ensemble_resumes(tmp_path):
    def run(epochs, folder=None, resume=False):
        ensemble = Ensemble([posterior(seed) for seed in range(2)])
        fit(ensemble, TRAIN, VALID, OBJECTIVE, settings(epochs=epochs), folder, resume, reporters=[])
        return weights(ensemble)

    run(2, tmp_path)
    torch.testing.assert_close(run(4, tmp_path, resume=True), run(4), rtol=0, atol=0)


def test_its_answer_is_the_mean_of_the_members():
    ensemble = Ensemble([posterior(seed) for seed in range(3)])
    alone = torch.stack([one(VALID.inputs).exp() for one in ensemble.members()])
    assert alone.std(0).max() > 1e-3
    torch.testing.assert_close(ensemble(VALID.inputs).exp(), alone.mean(0))
    torch.testing.assert_close(predict_log_proba(ensemble, VALID.inputs), ensemble(VALID.inputs))
    some = VALID.inputs.masked_fill(VALID.inputs < 0.1, torch.nan)
    torch.testing.assert_close(
        ensemble(some).exp(), torch.stack([one(some).exp() for one in ensemble.members()]).mean(0)
    )


def test_networks_form_ensembles_too():
    networks = [network("dense", (1, 3, 3), hidden=4, classes=2).float() for _ in range(2)]
    together = trained(Ensemble(networks))
    for seed, (before, after) in enumerate(zip(networks, together.members(), strict=True)):
        torch.testing.assert_close(weights(after), weights(trained(before, seed=seed)))


def test_members_must_be_alike():
    with pytest.raises(TrainingError, match="one predictor at least"):
        Ensemble([])
    with pytest.raises(TrainingError, match="one shape"):
        Ensemble([posterior(), Posterior(LGM(zoo.dense((1, 3, 3), (5,), 2)))])
    with pytest.raises(TrainingError, match=r"one dtype .* got torch.float32 on cpu, but also torch.float64"):
        Ensemble([posterior().float(), posterior().double()])
    for wrong in ([1, 2], [posterior(), None], "ab", posterior(), [model(), model()]):
        with pytest.raises(TrainingError, match="needs a list of predictors, got"):
            Ensemble(wrong)
    with pytest.raises(TrainingError, match="predictors of one model"):
        Ensemble(Posterior(LGM(model().graph, scale=scale)) for scale in ("energy", "balanced"))
    with pytest.raises(TrainingError, match="predictors of one kind"):
        Ensemble([posterior(method=METHOD), posterior(method=mean_field())])
    tied = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    tied[1].weight = tied[0].weight
    with pytest.raises(TrainingError, match="tied"):
        Ensemble([tied])
    shifted = nn.BatchNorm1d(2)
    shifted.running_mean += 1
    with pytest.raises(TrainingError, match="'running_mean' differs"):
        Ensemble([nn.BatchNorm1d(2), shifted])


def test_members_must_not_look_at_values():
    for method in (exact(), lbp(5, tolerance=1e-3), lbp(5, gradient="checkpoint")):
        with pytest.raises(TrainingError, match="train one by one"):
            Ensemble([posterior(method=method)])


@pytest.mark.parametrize("method", [METHOD, exact()])
def test_captured_answers_are_those_of_the_predictor(method):
    one = posterior(method=method)
    captured = CapturedPredictor(one, batch_size=8)
    torch.testing.assert_close(captured(VALID.inputs), one(VALID.inputs))
    assert captured(VALID.inputs.numpy()).equal(captured(VALID.inputs))


def test_members_can_be_asked_one_by_one():
    ensemble = Ensemble([posterior(seed) for seed in range(3)])
    each = CapturedMembers(ensemble, batch_size=8)(VALID.inputs)
    assert each.shape == (20, 3, 1, 2)
    for i, one in enumerate(ensemble.members()):
        torch.testing.assert_close(each[:, i, 0], one(VALID.inputs))
    torch.testing.assert_close(CapturedPredictor(ensemble, batch_size=8)(VALID.inputs), ensemble(VALID.inputs))


def test_captured_networks_do_not_drop_anything():
    one = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(9, 2)).float()
    captured = CapturedPredictor(one, batch_size=8)
    torch.testing.assert_close(captured(VALID.inputs), captured(VALID.inputs), rtol=0, atol=0)
    torch.testing.assert_close(captured(VALID.inputs).exp().sum(-1), torch.ones(20).float())
    assert one.training


def test_bad_inputs_of_a_captured_predictor():
    with pytest.raises(InferenceError, match="batch_size=0; expected a whole number >= 1"):
        CapturedPredictor(posterior(), batch_size=0)
    captured = CapturedPredictor(posterior(), batch_size=8)
    with pytest.raises(DataError, match="inputs of type str are no numbers"):
        captured("inputs")
    with pytest.raises(InferenceError, match="no inputs"):
        captured(VALID.inputs[:0])
    for one in (posterior(), Ensemble([posterior()])):
        with pytest.raises(EvidenceError, match=r"'inputs' must be in \[0, 1\].* as x / 255"):
            CapturedPredictor(one, batch_size=8)(255 * VALID.inputs)


@pytest.mark.gpu
@pytest.mark.usefixtures("single_precision")
class TestOnTheGPU:
    @pytest.mark.parametrize("method", [METHOD, trw(3, "sequential"), mean_field(2)])
    def test_members_are_trained_as_if_alone(self, method):
        how = {"device": "cuda", "data": bars(75), "capture": "always"}  # enough for several steps in one graph
        together = trained(Ensemble([posterior(seed, method) for seed in range(3)]), **how)
        for seed, member in enumerate(together.members()):
            alone = trained(posterior(seed, method), seed=seed, **how)
            torch.testing.assert_close(weights(member), weights(alone), rtol=1e-3, atol=1e-4)

    def test_served_answers_follow_the_weights(self):
        one = posterior().cuda()
        captured = CapturedPredictor(one, batch_size=8)
        x = VALID.inputs.cuda()
        for _ in range(2):
            torch.testing.assert_close(captured(x), one(x), rtol=1e-4, atol=1e-5)
            with torch.no_grad():
                for p in one.parameters():
                    p.mul_(2)
        with pytest.raises(InferenceError, match="served are"):
            captured(x[:, :, :2])
