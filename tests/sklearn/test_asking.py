"""What to measure next, asked of an ensemble, and an ensemble that was trained on what it would ask for."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import torchlgm as lgm
from torchlgm import LGMClassifier
from torchlgm.errors import DataWarning
from torchlgm.sklearn import members
from torchlgm.sklearn.asking import courses

pytestmark = pytest.mark.usefixtures("single_precision")
QUICK: dict[str, Any] = {"epochs": 30, "hidden": 8, "random_state": 0}


@pytest.fixture(scope="module")
def people():
    """The colour tells half of the class, the size the other half; noise nothing, and one column has no value."""
    rng = np.random.default_rng(0)
    colour, large = rng.integers(0, 2, 400), rng.integers(0, 2, 400)
    table = pd.DataFrame(
        {
            "noise": rng.normal(size=400),
            "colour": pd.Categorical(np.array(["red", "green"])[colour]),
            "empty": np.full(400, np.nan),
            "size": large + rng.normal(0, 0.3, 400),
        }
    )
    return table, np.array(["a", "b", "c", "d"])[2 * colour + large]


@pytest.fixture(scope="module")
def trained(people):
    torch.set_default_dtype(torch.float32)
    return LGMClassifier(**QUICK).fit(*people)


def nothing(table):
    return table.assign(noise=np.nan, colour=None, size=np.nan)


def test_an_ensemble_knows_what_to_measure_without_having_learned_about_columns(trained, people):
    gains = trained.acquire(nothing(people[0].head(3)))
    assert len(trained.members_) > 1
    assert (gains["colour"] > 0.4).all()
    assert (gains["noise"] < 0.1).all()
    assert (gains["empty"] == 0).all()
    assert not lgm.acquire(trained, nothing(people[0].head(3)))[:, 2].any()
    known = trained.acquire(people[0].head(3).assign(size=np.nan))
    assert (known[["noise", "colour"]] == 0).all(axis=None)
    assert (known["size"] > 0.3).all()


def test_a_course_answers_as_predict_proba_does(trained, people):
    table, y = people
    course = lgm.Acquisition(trained).run(table, y)
    np.testing.assert_allclose(course.log_probs[-1].exp(), trained.predict_proba(table), atol=1e-5)
    assert course.curve()["accuracy"][2] > 0.85
    first, second = (np.array(course.names)[course.asked[i]] for i in (0, 1))
    assert set(first) | set(second) == {"colour", "size"}


def test_another_column_as_the_target_warns(trained, people):
    with pytest.warns(DataWarning, match="trains beliefs about the class alone"):
        gains = trained.acquire(nothing(people[0].head(2)), target="size")
    assert (gains["size"] == 0).all()


def test_a_loss_may_take_the_place_of_the_entropy(trained, people):
    wrong = 1 - np.eye(4)
    risk = trained.acquire(nothing(people[0].head(2)), loss=wrong)
    assert (risk["colour"] > 0.1).all()
    assert (risk["noise"] < 0.05).all()
    panels = trained.acquire(nothing(people[0].head(2)), loss=wrong, groups={"both": ["colour", "size"]})
    assert (panels["both"] > 1.5 * risk["colour"]).all()


def test_it_is_saved_with_what_it_needs(trained, people, tmp_path):
    again = LGMClassifier.load(trained.save(tmp_path / "model"))
    rows = nothing(people[0].head(2))
    pd.testing.assert_frame_equal(again.acquire(rows), trained.acquire(rows))


def test_a_policy_is_learned_from_what_it_asks_for(people):
    table, y = people
    model = LGMClassifier(**QUICK, visible="policy").fit(table, y)
    again = LGMClassifier(**QUICK, visible="policy").fit(table, y)
    np.testing.assert_array_equal(model.predict_proba(table), again.predict_proba(table))
    usual = LGMClassifier(**QUICK).fit(table, y)
    assert not np.array_equal(model.predict_proba(table), usual.predict_proba(table))
    assert lgm.Acquisition(model).run(table, y, questions=2).curve()["accuracy"][2] > 0.85


def test_rows_show_what_is_asked_for_first(monkeypatch, people):
    """And some at random: in the order of the layers, which is not that of the table."""
    seen = []
    advance = members.Descent.advance

    def noted(self, draws, rates):
        seen.append((draws, self.stack.slots.seen(self.rows, draws)))
        return advance(self, draws, rates)

    monkeypatch.setattr("torchlgm.sklearn.members.Descent.advance", noted)
    model = LGMClassifier(**QUICK, visible="policy").fit(*people)
    order = [j for place in model._plan.places for j in place.columns]
    assert order != sorted(order)
    draws, shown = (np.concatenate(parts, 0) for parts in zip(*((d.shown, s) for d, s in seen), strict=True))
    asked_of = [model.input_names[j] for j in order]
    assert draws.min() >= 0
    half = len(shown) // 2  # the second training
    alone = shown[half:].sum(-1) == 1
    first = {name: (alone & shown[half:][..., i]).sum() for i, name in enumerate(asked_of)}
    before = shown[:half].sum(-1) == 1
    usual = {name: (before & shown[:half][..., i]).sum() for i, name in enumerate(asked_of)}
    assert first["noise"] / alone.sum() < 0.7 * usual["noise"] / before.sum()


def test_rows_show_what_was_asked_of_any_row(monkeypatch, people):
    """Only one has been asked, and yet most rows of which one entry is seen show its first column."""
    monkeypatch.setattr("torchlgm.sklearn.asking.MOST_ROWS", 1)
    noted = []
    as_asked = members._Training._as_asked

    def keep(self, draws):
        found = as_asked(self, draws)
        if self.ranks is not None:
            noted.append((self.ranks, found, self.slots.seen(self.rows, found)))
        return found

    monkeypatch.setattr("torchlgm.sklearn.members._Training._as_asked", keep)
    LGMClassifier(**QUICK, visible="policy").fit(*people)
    ranks, _, _ = noted[0]
    assert len(ranks) == 1
    first = int(ranks[0].argmin())
    alone = [(draws.rows[seen.sum(-1) == 1], seen[seen.sum(-1) == 1]) for _, draws, seen in noted]
    rows, seen = (np.concatenate(parts) for parts in zip(*alone, strict=True))
    assert len(np.unique(rows[seen[:, first]])) > 50
    assert seen[:, first].mean() > 0.6


def test_ranks_of_what_is_asked_for():
    asked = np.array([[2, 0], [1, -1], [-1, -1]])
    never = members.NEVER
    expected = [[1, never, 0], [never, 0, never], [never, never, never]]
    np.testing.assert_array_equal(members.ranks_of(asked, 3), expected)


def test_many_rows_ask_but_some(monkeypatch, trained, people):
    monkeypatch.setattr("torchlgm.sklearn.asking.MOST_ROWS", 10)
    asked = courses(trained.conditionals(), trained.inputs(people[0]), seed=1)
    assert asked.shape == (10, 4)
    assert (asked[:, 0] >= 0).all()
    assert (asked[:, 3] == -1).all()  # the column without a value cannot be asked for


@pytest.mark.parametrize("options", [{"fill_weight": 0.5}, {"hidden": (4, 4)}, {"warm_start": True}])
def test_a_single_model_has_no_policy(people, options):
    with pytest.raises(ValueError, match="visible='policy' is for ensembles"):
        LGMClassifier(**QUICK | options, visible="policy").fit(*people)
