"""LGMImputer: scikit-learn's contract, what it fills in, and that it is the graphical model that it says."""

import pickle
from datetime import date

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.pipeline import make_pipeline
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

import torchlgm as lgm
from torchlgm import LGMImputer
from torchlgm.errors import DataWarning, DivergedError, InferenceError

pytestmark = pytest.mark.usefixtures("single_precision")
QUICK = {"epochs": 40, "hidden": 16, "n_members": 2, "random_state": 0}
BY_NAME = {"check_dataframe_column_names_consistency": "a column that is lacking is missing, in any order"}


@parametrize_with_checks([LGMImputer(epochs=3, hidden=4, n_members=1)], expected_failed_checks=lambda _: BY_NAME)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def people():
    """Each column but the last follows from the colour."""
    rng = np.random.default_rng(0)
    colour = rng.integers(0, 3, 600)
    truth = pd.DataFrame(
        {
            "colour": pd.Categorical(np.array(["red", "green", "blue"])[colour]),
            "size": colour * 2.0 + rng.normal(0, 0.3, 600),
            "flag": pd.array(colour == 1, dtype="boolean"),
            "count": pd.array(colour + 3, dtype="Int64"),
            "born": pd.to_datetime("2020-01-06") + pd.to_timedelta(1000 * colour + rng.integers(0, 60, 600), "D"),
            "noise": rng.normal(size=600),
        },
        index=pd.RangeIndex(5, 605),
    )
    return truth, truth.mask(rng.random(truth.shape) < 0.3)


@pytest.fixture(scope="module")
def trained(people):
    torch.set_default_dtype(torch.float32)
    return LGMImputer(**QUICK).set_output(transform="pandas").fit(people[1])


def test_every_kind_of_column_is_filled_in(trained, people):
    truth, holes = people
    filled, probs = trained.transform(holes, return_proba=True)
    assert filled.notna().all(axis=None)
    assert filled.index.equals(truth.index)
    assert filled.dtypes.map(str).tolist()[:4] == ["category", "float64", "boolean", "Float64"]
    assert filled.born.dtype.kind == "M"
    for name in truth:  # what was seen stays
        seen = holes[name].notna()
        assert (filled[name][seen] == truth[name][seen]).all()
    known = holes.notna().sum(axis=1) - holes.noise.notna() >= 2
    lost = {name: known & holes[name].isna() for name in truth}
    assert (filled.colour == truth.colour)[lost["colour"]].mean() > 0.95
    assert (filled.flag == truth.flag)[lost["flag"]].mean() > 0.95
    assert (filled["size"] - truth["size"])[lost["size"]].abs().mean() < 0.4
    assert (filled["count"] - truth["count"])[lost["count"]].abs().mean() < 0.1
    assert (filled.born - truth.born)[lost["born"]].abs().mean() < pd.Timedelta(days=60)
    assert [len(p) for p in probs] == [600] * 6
    np.testing.assert_allclose([p.sum(1) for p in probs], 1)


def test_draws_fit_together_and_are_as_wide_as_the_belief(trained, people):
    nothing = people[0].head(1).assign(colour=None, size=np.nan, flag=pd.NA, count=pd.NA, born=pd.NaT)
    draws = pd.concat(trained.sample(nothing, 150))
    assert draws.columns.tolist() == people[0].columns.tolist()
    shares = draws.colour.value_counts(normalize=True)
    assert shares.between(0.15, 0.55).all()
    assert len(shares) == 3
    colour = draws.colour.map({"red": 0, "green": 1, "blue": 2}).astype(int)
    assert ((draws["count"].astype(float) - 3) == colour).mean() > 0.8
    assert ((draws["size"] / 2).round() == colour).mean() > 0.8
    assert (draws.flag == (colour == 1)).mean() > 0.8
    again = trained.sample(nothing, 2)
    pd.testing.assert_frame_equal(again[0], trained.sample(nothing, 1)[0])
    assert not pd.concat(again).duplicated().all()
    with pytest.raises(ValueError, match="n=0; expected"):
        trained.sample(nothing, 0)


def test_one_missing_entry_is_drawn_as_often_as_it_is_probable(trained, people):
    row = people[0].head(1).assign(noise=np.nan)
    _, probs = trained.transform(row, return_proba=True)
    (drawn,) = trained.sample(pd.concat([row] * 1500), 1)
    drawn = drawn.noise.to_numpy()
    often = [(drawn == knot).mean() for knot in trained.columns_[5].knots]
    np.testing.assert_allclose(often, probs[5][0], atol=0.05)


def test_the_closed_form_is_inference(trained, people):
    holes = people[1].head(40)
    _, probs = trained.transform(holes, return_proba=True)
    x = trained.inputs(holes).double()
    each = []
    with torch.no_grad():
        for model in trained.members_:
            posterior = trained._plan.posterior(pickle.loads(pickle.dumps(model)).double(), lgm.lbp(1))
            each.append(trained._plan.by_column(posterior.infer(x)))
    for j, found in enumerate(probs):
        np.testing.assert_allclose(np.mean([one[j] for one in each], 0), found, atol=1e-6)


def test_training_ends_with_the_lowest_held_out_loss_of_the_stack(people, monkeypatch):
    """What is trained is what is kept: the models give the loss that training saw."""
    from torchlgm.sklearn import filling

    seen = []
    look = filling._Training._look
    monkeypatch.setattr(filling._Training, "_look", lambda self: seen.append(look(self)) or seen[-1])
    model = LGMImputer(**{**QUICK, "epochs": 200}).fit(people[1])
    assert len(seen) == len(model.loss_curve_) < filling.CHECKS  # stopped early
    assert seen[-1 - filling.PATIENCE] == min(seen) < seen[0] - 0.2


def test_arrays_and_frames_of_numbers_give_the_same():
    quick = {**QUICK, "epochs": 200}
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 1)) + rng.normal(0, 0.2, (200, 4))
    holes = np.where(rng.random(X.shape) < 0.3, np.nan, X)
    filled = LGMImputer(**quick).fit_transform(holes)
    assert filled.dtype == float
    framed = LGMImputer(**quick).set_output(transform="pandas").fit_transform(pd.DataFrame(holes, columns=list("abcd")))
    np.testing.assert_array_equal(framed.to_numpy(), filled)
    lost = np.isnan(holes)
    assert np.sqrt(np.mean((filled - X)[lost] ** 2)) < 0.6 * X.std()
    again = pickle.loads(pickle.dumps(LGMImputer(**quick).fit(holes)))
    np.testing.assert_array_equal(again.transform(holes), filled)
    assert again.get_feature_names_out().tolist() == ["x0", "x1", "x2", "x3"]
    tree = make_pipeline(LGMImputer(**quick), DecisionTreeClassifier(max_depth=2)).fit(holes, X.mean(1) > 0)
    assert tree.score(holes, X.mean(1) > 0) > 0.8


def test_what_is_filled_in_looks_like_what_was_seen():
    days = pd.Series(pd.date_range("2024-01-01", periods=40))
    table = pd.DataFrame({0: days.dt.date, 1: days.dt.strftime("%Y-%m-%d"), 2: days.dt.tz_localize("Europe/Berlin")})
    table[3] = np.arange(40) % 2 == 0
    table[3] = table[3].astype(object)
    table.loc[3:5] = None
    filled = LGMImputer(**{**QUICK, "epochs": 2}).set_output(transform="pandas").fit_transform(table)
    assert filled.notna().all(axis=None)
    assert filled.dtypes.map(str).tolist() == ["object", str(table[1].dtype), str(table[2].dtype), "bool"]
    assert {type(value) for value in filled["x0"]} == {date}
    assert filled["x1"].str.fullmatch(r"2024-\d\d-\d\d").all()
    plain = LGMImputer(**{**QUICK, "epochs": 2}).fit_transform(table)
    assert plain[2, 0] == date(2024, 1, 3)
    assert plain[3, 3] in (0, 1)


def test_a_column_without_a_value_stays_empty_and_one_row_is_enough():
    X = np.column_stack([np.arange(20.0), np.full(20, np.nan), np.full(20, 7.0)])
    X[0, [0, 2]] = np.nan
    filled, probs = LGMImputer(**QUICK).fit(X).transform(X, return_proba=True)
    assert np.isnan(filled[:, 1]).all()
    assert probs[1] is None
    assert filled[0, 2] == 7
    assert LGMImputer(**QUICK).fit(X[1:2]).transform(X[:1])[0, 0] == 1


def test_what_is_wrong_is_said(people):
    with pytest.raises(ValueError, match="one hidden layer"):
        LGMImputer(hidden=(4, 3)).fit(people[1])
    with pytest.raises(ValueError, match="n_members=0; expected"):
        LGMImputer(n_members=0).fit(people[1])
    with pytest.warns(DataWarning, match=r"'x' \(-999 in 30 rows\)"):
        LGMImputer(**{**QUICK, "epochs": 1}).fit(
            pd.DataFrame({"x": np.where(np.arange(300) % 10, 0.5 * np.arange(300) % 7, -999)})
        )


@pytest.mark.parametrize("early_stopping", [True, False])
def test_a_training_that_diverges(early_stopping):
    X = np.random.default_rng(0).normal(size=(80, 3))
    with pytest.raises(DivergedError, match="try a lower learning_rate"):
        LGMImputer(**QUICK, learning_rate=1e30, early_stopping=early_stopping).fit(X)


def test_energies_that_nothing_can_be_inferred_from(people):
    truth, _ = people
    imputer = LGMImputer(**QUICK).fit(truth)
    holes = truth.mask(np.arange(truth.size).reshape(truth.shape) % 7 == 0)
    imputer.transform(holes)
    with torch.no_grad():
        next(iter(imputer.members_[1].unary.values())).view(-1)[0] = torch.nan
    for ask in (imputer.transform, imputer.sample):
        with pytest.raises(InferenceError, match="are NaN in parameter"):
            ask(holes)
