"""Several models in one step are the same models trained one by one."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from helpers.tiny_training import OBJECTIVE, bars, model, settings, weights
from torchlgm import LGM, exact, lbp, mean_field, trw, zoo
from torchlgm.baselines import network
from torchlgm.errors import DataError, DivergedError, EvidenceError, InferenceError, TrainingError
from torchlgm.learn import (
    ClassAndInputs,
    EachMember,
    Ensemble,
    Inputs,
    Likelihood,
    Moments,
    NetworkLikelihood,
    Served,
    Together,
    fit,
)

TRAIN, VALID = bars(), bars(20, seed=1)
WRONG = replace(VALID, targets=torch.where(torch.arange(20) % 5 == 0, 1 - VALID.targets, VALID.targets))


def trained(one, objective, device="cpu", data=TRAIN, **changes):
    fit(one, objective, data, VALID, settings(epochs=1, **changes), device=device, reporters=[])
    return one


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("method", [OBJECTIVE.method, trw(3, "sequential"), mean_field(2)])
def test_members_are_trained_as_if_alone(method, missing):
    objective = Likelihood(method, Inputs(missing=missing))
    together = trained(Ensemble([model(seed) for seed in range(3)]), Together(objective))
    for seed, member in enumerate(together.members()):
        torch.testing.assert_close(weights(member), weights(trained(model(seed), objective, seed=seed)))


def test_members_may_see_the_same_batches():
    together = trained(Ensemble([model(seed) for seed in range(2)]), Together(OBJECTIVE, own_batches=False))
    for seed, member in enumerate(together.members()):
        torch.testing.assert_close(weights(member), weights(trained(model(seed), OBJECTIVE)))


@pytest.mark.parametrize("objective", [Moments(OBJECTIVE.method), ClassAndInputs(OBJECTIVE.method)])
def test_other_objectives_have_ensembles_too(objective):
    together = trained(Ensemble([model(seed) for seed in range(2)]), Together(objective), clip=0.01)
    for seed, member in enumerate(together.members()):
        torch.testing.assert_close(weights(member), weights(trained(model(seed), objective, clip=0.01, seed=seed)))


def test_each_member_stops_by_itself_with_its_own_best_weights():
    def fitted(one, objective, seed):
        chosen = settings(epochs=40, patience=2, seed=seed)
        return fit(one, objective, TRAIN, WRONG, chosen, reporters=[])

    ensemble = Ensemble([model(seed) for seed in range(4)])
    result = fitted(ensemble, Together(OBJECTIVE), 0)
    stops = set()
    for seed, (member, own) in enumerate(zip(ensemble.members(), result.members, strict=True)):
        alone = model(seed)
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
        return fit(ensemble, Together(OBJECTIVE), TRAIN, WRONG, settings(epochs=40, patience=2), reporters=reporters)

    ensemble = Ensemble(model(seed) for seed in range(4))
    expected = fitted()
    epochs = [len(member.history) for member in expected.members]
    early = epochs.index(min(epochs))
    assert min(epochs) < max(epochs)
    ensemble = Ensemble(model(seed) for seed in range(4))
    result = fitted(Break(early, epochs[early]))
    assert [m.best_loss for m in result.members] == [m.best_loss for m in expected.members]
    assert all(weights(member).isfinite().all() for member in ensemble.members())
    ensemble = Ensemble(model(seed) for seed in range(4))
    with pytest.raises(DivergedError):
        fitted(Break(early, 1))


def test_members_see_different_parts_of_hidden_inputs():
    ensemble = trained(Ensemble([model(0), model(0)]), Together(OBJECTIVE, own_batches=True), visible=0.5)
    first, second = ensemble.members()
    assert not torch.allclose(weights(first), weights(second))


def test_an_ensemble_resumes(tmp_path):
    def run(epochs, folder=None, resume=False):
        ensemble = Ensemble([model(seed) for seed in range(2)])
        fit(ensemble, Together(OBJECTIVE), TRAIN, VALID, settings(epochs=epochs), folder, resume, reporters=[])
        return weights(ensemble)

    run(2, tmp_path)
    torch.testing.assert_close(run(4, tmp_path, resume=True), run(4), rtol=0, atol=0)


def test_its_answer_is_the_mean_of_the_members():
    ensemble = Ensemble([model(seed) for seed in range(3)])
    answer = Together(OBJECTIVE).log_probs(ensemble, VALID.inputs)
    alone = torch.stack([OBJECTIVE.log_probs(one, VALID.inputs).exp() for one in ensemble.members()])
    torch.testing.assert_close(answer.exp(), alone.mean(0))
    assert alone.std(0).max() > 1e-3


def test_networks_form_ensembles_too():
    networks = [network("dense", (1, 3, 3), hidden=4, classes=2).float() for _ in range(2)]
    together = trained(Ensemble(networks), Together(NetworkLikelihood()))
    for seed, (before, after) in enumerate(zip(networks, together.members(), strict=True)):
        torch.testing.assert_close(weights(after), weights(trained(before, NetworkLikelihood(), seed=seed)))


def test_an_ensemble_is_no_single_model():
    with pytest.raises(TrainingError, match=r"learn\.Together"):
        trained(Ensemble([model()]), OBJECTIVE)


def test_members_must_be_alike():
    with pytest.raises(TrainingError, match="one model at least"):
        Ensemble([])
    with pytest.raises(TrainingError, match="one shape"):
        Ensemble([model(), LGM(zoo.dense((1, 3, 3), (5,), 2))])
    with pytest.raises(TrainingError, match=r"one dtype .* got torch.float32 on cpu, but also torch.float64"):
        Ensemble([model().float(), model().double()])
    for wrong in ([1, 2], [model(), None], "ab", model()):
        with pytest.raises(TrainingError, match="needs a list of models, got"):
            Ensemble(wrong)
    with pytest.raises(TrainingError, match="one scale"):
        Ensemble(LGM(model().graph, scale=scale) for scale in ("energy", "balanced"))
    tied = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    tied[1].weight = tied[0].weight
    with pytest.raises(TrainingError, match="tied"):
        Ensemble([tied])
    shifted = nn.BatchNorm1d(2)
    shifted.running_mean += 1
    with pytest.raises(TrainingError, match="'running_mean' differs"):
        Ensemble([nn.BatchNorm1d(2), shifted])


def test_together_is_for_ensembles_and_methods_that_look_at_no_value():
    with pytest.raises(TrainingError, match="is for an Ensemble, got LGM"):
        trained(model(), Together(OBJECTIVE))
    with pytest.raises(TrainingError, match="single model"):
        Together(Together(OBJECTIVE))
    for method in (exact(), lbp(5, tolerance=1e-3)):
        with pytest.raises(TrainingError, match="train one by one"):
            Together(Likelihood(method))


@pytest.mark.parametrize("objective", [OBJECTIVE, Likelihood(exact(), Inputs())])
def test_served_answers_are_those_of_the_objective(objective):
    one = model()
    served = Served(one, objective, batch=8)
    torch.testing.assert_close(served(VALID.inputs), objective.log_probs(one, VALID.inputs))
    assert served(VALID.inputs.numpy()).equal(served(VALID.inputs))


def test_served_networks_do_not_drop_anything():
    one = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(9, 2)).float()
    served = Served(one, NetworkLikelihood(), batch=8)
    torch.testing.assert_close(served(VALID.inputs), served(VALID.inputs), rtol=0, atol=0)
    assert one.training


def test_bad_inputs_to_be_served():
    with pytest.raises(InferenceError, match="batch=0; expected at least 1"):
        Served(model(), OBJECTIVE, batch=0)
    served = Served(model(), OBJECTIVE, batch=8)
    with pytest.raises(DataError, match="inputs of type str are no numbers"):
        served("pixels")
    with pytest.raises(InferenceError, match="no inputs"):
        served(VALID.inputs[:0])
    for objective in (OBJECTIVE, EachMember(OBJECTIVE)):
        with pytest.raises(EvidenceError, match=r"'pixels' must be in \[0, 1\].* as x / 255"):
            Served(model(), objective, batch=8)(255 * VALID.inputs)


@pytest.mark.gpu
@pytest.mark.usefixtures("single_precision")
class TestOnTheGPU:
    @pytest.mark.parametrize("method", [OBJECTIVE.method, trw(3, "sequential"), mean_field(2)])
    def test_members_are_trained_as_if_alone(self, method):
        objective = Likelihood(method, Inputs())
        how = {"device": "cuda", "data": bars(75), "capture": "always"}  # enough for several steps in one graph
        together = trained(Ensemble([model(seed) for seed in range(3)]), Together(objective), **how)
        for seed, member in enumerate(together.members()):
            alone = trained(model(seed), objective, seed=seed, **how)
            torch.testing.assert_close(weights(member), weights(alone), rtol=1e-3, atol=1e-4)

    def test_served_answers_follow_the_weights(self):
        one = model().cuda()
        served = Served(one, OBJECTIVE, batch=8)
        x = VALID.inputs.cuda()
        for _ in range(2):
            torch.testing.assert_close(served(x), OBJECTIVE.log_probs(one, x), rtol=1e-4, atol=1e-5)
            with torch.no_grad():
                for p in one.parameters():
                    p.mul_(2)
        with pytest.raises(InferenceError, match="served are"):
            served(x[:, :, :2])
