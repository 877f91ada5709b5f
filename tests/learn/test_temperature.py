"""One temperature: what it is, that it is kept, and how to be rid of it."""

import numpy as np
import pytest
import torch

from torchlgm import LGM, Posterior, lbp, learn, zoo
from torchlgm.errors import DataError, TrainingError
from torchlgm.learn.temperature import best_temperature

SURE = 3.0  # times as sure as the targets that are drawn


@pytest.fixture
def posterior():
    model = LGM(zoo.dense(inputs=6, hidden=[4], classes=3), "paper", generator=torch.Generator().manual_seed(0))
    return Posterior(model, lbp(1))


@pytest.fixture
def valid(posterior):
    """Samples whose targets are drawn from beliefs that are far less sure."""
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(3000, 6, generator=generator)
    with torch.no_grad():
        probs = torch.softmax(posterior(x) / SURE, -1)
    return x, torch.multinomial(probs, 1, generator=generator)[:, 0]


def test_the_temperature_that_targets_were_drawn_with_is_recovered(posterior, valid):
    before = learn.evaluate_loss(posterior, valid)
    temperature = learn.fit_temperature(posterior, valid, visible=(1.0, 1.0))
    assert temperature == posterior.temperature == pytest.approx(SURE, rel=0.25)
    loss, accuracy = learn.evaluate_loss(posterior, valid)
    assert loss < before[0]
    assert accuracy == before[1]


def test_it_is_the_least_loss_on_a_grid():
    generator = torch.Generator().manual_seed(0)
    log_probs = torch.log_softmax(4 * torch.randn(200, 1, 5, generator=generator, dtype=torch.float64), -1)
    y = torch.randint(5, (200,), generator=generator)
    grid = np.geomspace(0.1, 10, 2001)
    losses = [float(learn.objectives.nll(torch.log_softmax(log_probs / t, -1), y)) for t in grid]
    assert best_temperature(log_probs, y) == pytest.approx(grid[int(np.argmin(losses))], rel=0.01)


def test_targets_that_are_all_right_do_not_make_it_endlessly_sure():
    log_probs = torch.log_softmax(torch.tensor([[[2.0, 0.0]], [[0.0, 2.0]]]).double(), -1)
    assert best_temperature(log_probs, torch.tensor([0, 1])) == pytest.approx(0.1, rel=1e-3)


def test_beliefs_stay_as_they_are(posterior, valid):
    x = valid[0][:5]
    raw, beliefs = posterior(x), posterior.infer(x)
    posterior.temperature = 2.0
    torch.testing.assert_close(posterior(x), torch.log_softmax(raw / 2, -1))
    torch.testing.assert_close(posterior.infer(x)["classes"].probs, beliefs["classes"].probs)
    assert "temperature=2" in repr(posterior)
    posterior.temperature = 1.0
    assert torch.equal(posterior(x), raw)


def test_members_of_an_ensemble_have_one_temperature(posterior):
    posterior.temperature = 2.0
    x = torch.rand(3, 6)
    torch.testing.assert_close(learn.Ensemble([posterior, posterior])(x), posterior(x))
    with pytest.raises(TrainingError, match="of one kind"):
        learn.Ensemble([posterior, Posterior(posterior.model, lbp(1))])


def test_training_starts_without_it(posterior, valid):
    posterior.temperature = 2.0
    learn.fit(posterior, valid, valid, settings=learn.Settings(epochs=1, batch_size=1000), reporters=[])
    assert posterior.temperature == 1


def test_what_cannot_be_calibrated_stays_as_it_was(posterior, valid):
    posterior.temperature = 2.0
    with pytest.raises(DataError, match=r"visible=\(0, 1\).*0 < low"):
        learn.fit_temperature(posterior, valid, visible=(0, 1))
    assert posterior.temperature == 2
    with pytest.raises(TrainingError, match=r"Linear cannot be calibrated.*Posterior"):
        learn.fit_temperature(torch.nn.Linear(6, 3), valid)
