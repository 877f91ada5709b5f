"""Members trained side by side: what they are, that answers are those of inference, and how they are mixed."""

from copy import deepcopy

import numpy as np
import pandas as pd
import pytest
import torch

import torchlgm as lgm
from torchlgm import LGMClassifier
from torchlgm.errors import DataWarning
from torchlgm.sklearn.choices import Choices
from torchlgm.sklearn.mixture import Mixture, learn_mixture

pytestmark = pytest.mark.usefixtures("single_precision")
QUICK = {"epochs": 60, "hidden": 5, "random_state": 0}


@pytest.fixture(scope="module")
def mixed():
    """A table of numbers, counts and categories with holes, and three classes."""
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 3, 240)
    table = pd.DataFrame(
        {
            "size": kind + rng.normal(0, 0.4, 240),
            "skewed": np.exp(3 * rng.normal(size=240)),
            "count": rng.integers(0, 5, 240),
            "colour": pd.Categorical(np.where(rng.random(240) < 0.8, kind, 0).astype(str)),
        }
    )
    return table.mask(rng.random(table.shape) < 0.1), kind


@pytest.fixture(scope="module")
def trained(mixed):
    torch.set_default_dtype(torch.float32)
    return LGMClassifier(**QUICK).fit(*mixed)


def test_answers_are_those_of_inference_on_each_member(trained, mixed):
    """The closed form, trained and asked side by side, is one sweep of belief propagation on models as any others."""
    table = mixed[0].head(50)
    seen = {name: clamp._replace(q=clamp.q.double()) for name, clamp in trained.evidence(table).items()}
    answers = [lgm.infer(deepcopy(member).double(), seen, lgm.lbp(1)) for member in trained.members_]
    each = [beliefs["classes"].log_probs[:, 0].detach() for beliefs in answers]
    missing = torch.tensor(table.isna().to_numpy().mean(1))
    mixed_by_hand = trained.mixture_.mix(torch.stack(each), missing).exp()
    np.testing.assert_allclose(trained.predict_proba(table), mixed_by_hand, atol=1e-6)
    assert len(trained.members_) == 12


def test_what_was_trained_is_what_answers(mixed):
    """The loss of the last step and that of the models, where nothing is hidden and every row is in every step."""
    table, y = mixed
    options = {"visible": None, "n_members": 1, "early_stopping": False, "batch_size": 1000, "epochs": 100}
    model = LGMClassifier(**{**QUICK, **options}).fit(table, y)
    loss = -np.log(model.predict_proba(table)[np.arange(len(y)), y]).mean()
    assert abs(loss - model.loss_curve_[-1]) < 0.01 * loss  # the rate has nearly fallen to 0
    assert loss < 0.5 * model.loss_curve_[0]


def test_it_learns_and_gets_by_with_little(trained, mixed):
    table, y = mixed
    assert trained.score(table, y) > 0.85
    blind = trained.predict_proba(table.assign(size=np.nan, colour=None))
    assert blind.max() < 0.9


def test_the_number_of_members_and_the_regimes_follow_the_parameters(mixed):
    assert len(LGMClassifier(**QUICK, n_members=1).fit(*mixed).members_) == 1
    assert len(LGMClassifier(**QUICK, n_members=6).fit(*mixed).members_) == 6
    single = LGMClassifier(**QUICK, fill_weight=0.5).fit(*mixed)
    assert len(single.members_) == 1
    np.testing.assert_allclose(single.mixture_.bias, 0)
    penalised = LGMClassifier(**QUICK, visible=None).fit(*mixed)
    assert len(penalised.members_) == 8


def test_a_column_is_not_filled_in_by_members_without_a_warning(trained, mixed):
    with pytest.warns(DataWarning, match=r"class alone.*fit with fill_weight=0\.5"):
        filled = trained.complete(mixed[0].head(3))
    assert not pd.isna(filled).to_numpy().any()


def test_partial_fit_goes_on_with_every_member(mixed):
    table, y = mixed
    model = LGMClassifier(**QUICK).fit(table, y)
    before = [p.clone() for member in model.members_ for p in member.parameters()]
    model.partial_fit(table, y)
    after = [p for member in model.members_ for p in member.parameters()]
    assert not any(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert model.score(table, y) > 0.85


def test_answers_follow_energies_that_are_changed_in_place(mixed):
    table, y = mixed
    model = LGMClassifier(**{**QUICK, "epochs": 5}).fit(table, y)
    before = model.predict_proba(table)
    np.testing.assert_array_equal(model.predict_proba(table), before)
    with torch.no_grad():
        for member in model.members_:
            member.unary["classes"].add_(1.0)
    assert (model.predict_proba(table)[:, 0] > before[:, 0]).all()


def test_stopping_early_ends_sooner_and_few_rows_are_enough(mixed):
    table, y = mixed
    noise = np.random.default_rng(0).integers(0, 2, len(y))
    short = LGMClassifier(**{**QUICK, "epochs": 600}, n_iter_no_change=1).fit(table, noise)
    assert short.n_iter_ < 600
    assert LGMClassifier(**QUICK).fit(table.head(4), [0, 1, 0, 1]).predict(table.head(4)).shape == (4,)


def test_capacity_follows_from_the_table():
    def choices(rows, classes, **changed):
        return Choices({**LGMClassifier().get_params(), **changed}, rows, classes)

    assert choices(300, 2).hidden == (64,)
    assert choices(1000, 11).hidden == (128,)
    assert choices(30_000, 26).hidden == (256,)
    assert choices(300, 2, hidden=7).hidden == (7,)
    small, large = choices(300, 2).course(0), choices(30_000, 2).course(0)
    assert [regime.penalty > 0 for regime in small.regimes] == [False, False, True]
    assert [regime.penalty > 0 for regime in large.regimes] == [False, False]
    assert small.steps == 1000 < large.steps
    assert not choices(300, 2, warm_start=True).side_by_side


def test_a_mixture_follows_the_group_that_is_right():
    """The first group knows complete rows, the second rows with holes."""
    missing = torch.linspace(0, 1, 200)
    likelihood = torch.where((missing < 0.5)[:, None], torch.tensor([[0.9, 0.2]]), torch.tensor([[0.2, 0.9]])).log()
    mixture = learn_mixture(likelihood, missing, torch.ones(200), members=2)
    weights = mixture.log_weights(torch.tensor([0.0, 0.5, 1.0])).exp()
    np.testing.assert_allclose(weights.sum(0), 1, atol=1e-6)
    assert weights[0, 0] > 0.45
    assert weights[3, 2] > 0.45
    nothing = learn_mixture(torch.zeros(200, 2), missing, torch.ones(200), members=2)
    torch.testing.assert_close(nothing.log_weights(missing), Mixture.even(2, 2).log_weights(missing))


def test_a_jump_of_the_class_within_a_column_is_learned_sharply():
    """Knots stand on both sides of it."""
    x = np.sort(np.random.default_rng(0).gamma(0.3, 100, 400))
    y = (x > x[361]).astype(int)
    model = LGMClassifier(epochs=100, hidden=8, n_members=2, random_state=0).fit(x[:, None], y)
    knots = model.columns_[0].knots
    assert {x[361], x[362]} <= set(knots)
    assert len(knots) == 12
    near = model.predict_proba(x[[361, 362], None])[:, 1]
    assert near[1] - near[0] > 0.5
