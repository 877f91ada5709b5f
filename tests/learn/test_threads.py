"""Small steps get one thread, for as long as any training needs it."""

import pytest
import torch
from torch import nn

import torchlgm as lgm
from helpers.tiny_training import OBJECTIVE, bars, posterior, settings
from torchlgm.learn import Ensemble, fit
from torchlgm.learn.learner import Learner
from torchlgm.learn.threads import SMALL_STEP, few_threads


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_small_steps_have_one_thread_until_the_last_is_done():
    with few_threads(1):
        with few_threads(SMALL_STEP - 1):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2


def test_large_steps_have_all():
    with few_threads(SMALL_STEP):
        assert torch.get_num_threads() == 2


def test_also_after_a_failure():
    with pytest.raises(ZeroDivisionError), few_threads(1):
        1 / 0  # noqa: B018
    assert torch.get_num_threads() == 2


def test_edges():
    small = lgm.Posterior(lgm.LGM(lgm.zoo.dense(inputs=4, hidden=[3], classes=2)))
    assert Learner(small).edges == 4 * 3 + 3
    assert Learner(Ensemble([small, small])).edges == 2 * 15
    assert Learner(nn.Linear(1, 1)).edges >= SMALL_STEP


def test_a_training(monkeypatch):
    seen, plain = [], type(OBJECTIVE).loss
    monkeypatch.setattr(type(OBJECTIVE), "loss", lambda *given: seen.append(torch.get_num_threads()) or plain(*given))
    fit(posterior(), bars(), bars(20), OBJECTIVE, settings(epochs=1))
    assert {*seen} == {1}
    assert torch.get_num_threads() == 2
