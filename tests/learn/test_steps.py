"""The steps of a graph, run without capturing them, are plain steps."""

import pytest
import torch

from helpers.tiny_training import OBJECTIVE, bars, posterior, weights
from torchlgm import posterior as predictors
from torchlgm.data import hide
from torchlgm.learn import Ensemble, JointLikelihood, Likelihood, Settings, fit
from torchlgm.learn.cuda.captured_step import ALIGNED, MANY, CapturedStep
from torchlgm.learn.distributed import Group
from torchlgm.learn.learner import Learner
from torchlgm.learn.steps import OptimizerStep, PlainStep

DATA = bars(80)


def step(members, objective, visible, seen=None):
    posteriors = [posterior(seed) for seed in range(members)]
    one = posteriors[0] if members == 1 else Ensemble(posteriors)

    def some(x, generator):
        if seen is not None:
            seen.append(x.shape)
        return hide(x, visible, generator)

    optimizer = torch.optim.Adam(one.parameters(), 0.05)
    mask, generator = some if visible else None, torch.Generator().manual_seed(3)
    update = OptimizerStep(Learner(one, objective), optimizer, Group(), mask, 0.5, generator)
    return PlainStep(update, DATA.inputs, DATA.targets)


@pytest.mark.pairs
@pytest.mark.parametrize("objective", [Likelihood(), JointLikelihood()])
@pytest.mark.parametrize("visible", [None, 0.5])
@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("batch", [10, 9])  # of which only the former leaves batches aligned
def test_several_steps_at_once(objective, visible, members, batch):
    draw = torch.Generator().manual_seed(1)
    orders = torch.stack([torch.randperm(80, generator=draw) for _ in range(members)])
    order = orders[0] if members == 1 else orders
    plain, captured = step(members, objective, visible), CapturedStep(step(members, objective, visible), batch)
    plain.begin(order)
    captured.plain.begin(order)
    captured.order = captured.plain.order
    captured._work(MANY)
    captured._work(1)
    losses = plain(0, [batch] * (MANY + 1))
    torch.testing.assert_close(captured.losses.double() * batch, losses.double())
    torch.testing.assert_close(
        weights(captured.plain.update.learner.predictor), weights(plain.update.learner.predictor)
    )


def test_every_sample_of_every_member_hides_entries_of_its_own():
    seen = []
    plain = step(3, OBJECTIVE, 0.5, seen)
    plain.begin(torch.arange(80).expand(3, 80))
    plain(0, [10])
    assert seen == [(30, *DATA.inputs.shape[1:])]


def test_what_is_filled_in_is_compared_with_the_inputs_as_they_were():
    batches = []

    class Recorder(JointLikelihood):
        def loss(self, predictor, x, y, complete=None):
            batches.append((x, complete))
            return super().loss(predictor, x, y, complete)

    plain = step(1, Recorder(), 0.5)
    plain.begin(torch.arange(80))
    plain(0, [10])
    ((x, complete),) = batches
    torch.testing.assert_close(complete, DATA.inputs[:10])
    assert x.isnan().any()
    torch.testing.assert_close(torch.where(x.isnan(), complete, x), complete)


def test_batches_of_a_graph_are_aligned():
    batches = []

    class Recorder(Likelihood):
        def loss(self, predictor, x, y, complete=None):
            batches.extend([x, y])
            return super().loss(predictor, x, y, complete)

    captured = CapturedStep(step(1, Recorder(), None), 9)
    captured.plain.begin(torch.arange(80))
    captured.order = captured.plain.order
    captured._work(MANY)
    assert len(batches) == 2 * MANY
    assert all(x.data_ptr() % ALIGNED == 0 for x in batches)


@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_complete_inputs_are_sent_no_messages(members, missing, monkeypatch):
    seen = []
    real = predictors.run
    monkeypatch.setattr(predictors, "run", lambda mrf, *given, **how: seen.append(mrf) or real(mrf, *given, **how))
    data, posteriors = bars(40, missing=missing), [posterior(seed) for seed in range(members)]
    one = posteriors[0] if members == 1 else Ensemble(posteriors)
    seen.clear()
    fit(one, data, data, OBJECTIVE, Settings(epochs=1, batch_size=20, visible=None), reporters=[])
    kept = ["inputs" in mrf.unary for mrf in seen]
    assert kept[-3:] == [missing > 0] * 3  # two steps, and the validation; before them the data is checked


def test_a_step_does_without_what_pytorch_does_not_promise(monkeypatch):
    monkeypatch.delattr("torch.autograd.graph._engine_run_backward")
    test_several_steps_at_once(OBJECTIVE, None, 1, 10)
