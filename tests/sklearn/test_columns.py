"""Columns as people have them: dates, booleans and integers with holes, many names, codes for missing, and holes for a
reason."""

from datetime import date, datetime, time, timedelta

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from torchlgm import LGMClassifier
from torchlgm.errors import DataError, DataWarning
from torchlgm.sklearn import Categories
from torchlgm.sklearn.columns import LabelledRows, Numbers, learn_column
from torchlgm.sklearn.reading import Raw, raw_columns
from torchlgm.sklearn.times import times_of

pytestmark = pytest.mark.usefixtures("single_precision")
QUICK = {"epochs": 30, "hidden": 8, "n_members": 2, "batch_size": 64, "random_state": 0}


def rng():
    return np.random.default_rng(0)


def dates(rows=400, start="2023-01-01"):
    return pd.Series(pd.to_datetime(start) + pd.to_timedelta(rng().integers(0, 700, rows), "D"))


def test_a_weekend_is_learned_from_dates():
    when = dates()
    y = (when.dt.day_of_week >= 5).astype(int).to_numpy()
    model = LGMClassifier(**QUICK).fit(pd.DataFrame({"when": when, "noise": rng().random(400)}), y)
    assert model.input_names == ["when", "noise", "when.month", "when.weekday"]
    assert [column.kind for column in model.columns_] == ["date", "number"]
    monday = pd.date_range("2025-03-03", periods=14)  # after the training
    later = pd.DataFrame({"when": monday, "noise": 0.5})
    assert model.predict(later).tolist() == [0, 0, 0, 0, 0, 1, 1] * 2


def test_hours_know_no_midnight():
    """What holds from 22 to 2 is one stretch of hours."""
    when = pd.Series(pd.to_datetime("2024-01-01") + pd.to_timedelta(rng().integers(0, 24 * 60 * 60, 300), "min"))
    y = ((when.dt.hour >= 22) | (when.dt.hour < 2)).astype(int)
    model = LGMClassifier(**QUICK).fit(when.to_frame("when"), y)
    asked = pd.DataFrame({"when": pd.to_datetime(["2024-02-03 23:30", "2024-02-04 01:10", "2024-02-04 12:00"])})
    assert model.predict(asked).tolist() == [1, 1, 0]


@pytest.mark.parametrize(
    "given",
    [
        lambda when: when,
        lambda when: when.dt.date,
        lambda when: when.dt.strftime("%Y-%m-%d"),
        lambda when: when.dt.tz_localize("UTC"),
        lambda when: when.astype(object),
    ],
    ids=["datetime64", "date", "text", "zone", "object"],
)
def test_dates_are_the_same_however_they_are_written(given):
    when = dates(50)
    when[3] = pd.NaT
    (raw,) = raw_columns(pd.DataFrame({"when": given(when)}), ["when"])
    assert raw.kind == "date"
    np.testing.assert_array_equal(raw.values, (when - pd.Timestamp(0)) / pd.Timedelta(days=1))
    (plain,) = raw_columns(when.to_numpy()[:, None], ["when"])
    np.testing.assert_array_equal(raw.values, plain.values)


def test_times_and_durations_are_numbers_of_days():
    table = pd.DataFrame(
        {
            "at": [time(6), time(18, 30), None],
            "took": pd.to_timedelta([1, 2.5, np.nan], "D"),
            "seen": [datetime(2024, 1, 1, 12), date(2024, 1, 2), None],
        }
    )
    at, took, seen = raw_columns(table, list(table.columns))
    assert [raw.kind for raw in (at, took, seen)] == ["time", "duration", "datetime"]
    np.testing.assert_allclose(at.values, [0.25, 18.5 / 24, np.nan])
    np.testing.assert_allclose(took.values, [1, 2.5, np.nan])
    np.testing.assert_allclose(seen.values - seen.values[0], [0, 0.5, np.nan])
    assert times_of(at.values[:2], "time").tolist() == [time(6), time(18, 30)]
    assert times_of(took.values[:2], "duration").tolist() == [timedelta(1), timedelta(2.5)]
    assert times_of(seen.values[:2], "datetime").tolist() == [datetime(2024, 1, 1, 12), datetime(2024, 1, 2)]


def test_text_that_is_no_date_stays_text():
    for text in (["2024-13-01"] * 3, ["2024-01-01", "soon", "2024-01-02"], ["1.5.2024"] * 3):
        assert raw_columns(pd.DataFrame({"when": text}), ["when"])[0].named
    assert raw_columns(pd.DataFrame({"when": ["2024-01-01"]}), ["when"], [True])[0].named


def test_dates_where_numbers_were_are_refused():
    table, y = pd.DataFrame({"when": dates(), "size": rng().random(400)}), rng().integers(0, 2, 400)
    model = LGMClassifier(**{**QUICK, "epochs": 1}).fit(table, y)
    with pytest.raises(DataError, match="when held dates in training, but holds numbers now"):
        model.predict(table.assign(when=3.0))
    with pytest.raises(DataError, match="size held numbers in training, but holds dates now"):
        model.predict(table.assign(size=table.when))
    model.predict(table.assign(when=None))  # a column without a value has no kind


def test_joint_questions_take_a_date_as_one_column():
    when = dates()
    weekend = (when.dt.day_of_week >= 5).to_numpy()
    table = pd.DataFrame({"when": when, "open": np.where(weekend, "no", "yes"), "noise": rng().random(400)})
    model = LGMClassifier(fill_weight=0.5, hidden=4, epochs=20, random_state=0).fit(table, weekend)
    asked = table.head(6).assign(when=pd.NaT, open=None)
    gains = model.acquire(asked)
    assert list(gains.columns) == ["when", "open", "noise"]
    assert (gains["when"] > 0.1).all()
    filled = model.complete(asked)
    assert filled.when.dtype.kind == "M"
    assert filled.when.between(when.min(), when.max()).all()
    drawn = model.sample(asked, 3).values
    assert drawn.when.isin(pd.date_range(when.min(), when.max())).all()
    whatever = model.predict_column(table.head(6).assign(when=dates(6, "2021-01-01")), "when")
    np.testing.assert_array_equal(model.predict_column(table.head(6), "when"), whatever)
    assert set(model.suspicious(table, 5).column) <= set(table.columns)
    assert {"when", "when.weekday"} <= set(model.explain(table.head(1))[0].entries)


def test_booleans_and_integers_with_holes():
    flag, count = rng().integers(0, 2, 300), rng().integers(0, 5, 300)
    kinds = {
        "boolean": pd.array(flag.astype(bool), dtype="boolean"),
        "object": flag.astype(bool).astype(object),
        "Int64": pd.array(count, dtype="Int64"),
    }
    table = pd.DataFrame(kinds)
    table.loc[::4, "boolean"], table.loc[1::4, "object"], table.loc[2::4, "Int64"] = pd.NA, None, pd.NA
    table["size"] = rng().random(300)
    model = LGMClassifier(**{**QUICK, "fill_weight": 0.5}).fit(table, flag)
    assert [column.knots for column in model.columns_[:3]] == [(0, 1), (0, 1), (0, 1, 2, 3, 4)]
    filled = model.complete(table)
    assert filled.dtypes.map(str).tolist() == ["boolean", "bool", "Float64", "float64"]
    pd.testing.assert_series_equal(filled.boolean[table.boolean.notna()], table.boolean.dropna())
    assert model.score(table, flag) > 0.95


def test_rare_names_share_a_label():
    names = np.array(["a"] * 5 + ["b"] * 4 + ["c"] * 3 + ["d"] * 2 + ["e"])
    ones = LabelledRows(np.zeros(15, int), np.ones(15), 1)
    column = learn_column(Raw("x", names.astype(object), named=True), ones, 5, "tree", most=3)
    assert column == Categories(("a", "b"), 3, ("c", "d", "e"))
    np.testing.assert_array_equal(column.scale(np.array(["a", "b", "e", "new", None], object)), [0, 0.5, 1, 1, np.nan])
    assert column.expected(np.array([[0.2, 0.1, 0.7], [0, 0, 1]])).tolist() == ["a", "c"]
    heavy = LabelledRows(np.zeros(15, int), np.where(names == "e", 9.0, 1.0), 1)
    assert learn_column(Raw("x", names.astype(object), named=True), heavy, 5, "tree", most=3).values == ("a", "e")


def test_many_names_make_a_small_model_that_is_saved(tmp_path):
    town = rng().integers(0, 500, 2000)
    town = np.where(rng().random(2000) < 0.5, town % 3, town)
    table, y = pd.DataFrame({"town": town.astype(str)}), (town % 2).astype(str)
    model = LGMClassifier(**QUICK, categorical_features=["town"]).fit(table, y)
    (column,) = model.columns_
    assert (len(column.values), column.labels) == (29, 30)
    assert {"0", "1", "2"} <= set(column.values)
    again = LGMClassifier.load(model.save(tmp_path / "towns"))
    assert again.columns_ == model.columns_
    rare = pd.DataFrame({"town": [column.infrequent[0]]})
    with pytest.warns(UserWarning, match="all count as infrequent; got 'new'"):
        strange = again.predict_proba(rare.assign(town="new"))
    np.testing.assert_array_equal(strange, model.predict_proba(rare))


def test_codes_for_missing_are_noticed():
    table = pd.DataFrame(
        {
            "age": np.where(np.arange(300) % 9 == 0, -999, rng().integers(0, 90, 300)),
            "job": np.where(np.arange(300) % 9 == 0, "?", rng().choice(["cook", "pilot"], 300)),
            "grade": rng().choice([97.0, 98.0, 99.0], 300),  # 99 is a grade
            "code": rng().choice(["no", "yes"], 300),
        }
    )
    y = rng().integers(0, 2, 300)
    model = LGMClassifier(**{**QUICK, "epochs": 1})
    with pytest.warns(DataWarning, match=r"in 'age' \(-999 in \d+ rows\), 'job' \('\?' in \d+ rows\): they") as caught:
        model.fit(table, y)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    model.fit(table.replace({-999: np.nan, "?": None}), y)


def test_missing_for_a_reason_is_evidence_until_it_shifts():
    """Of the sick more is missing, and nothing else tells them."""
    y = rng().integers(0, 2, 2000)
    X = np.random.default_rng(1).normal(size=(2000, 4))
    X[:, :3][np.random.default_rng(2).random((2000, 3)) < np.where(y, 0.6, 0.3)[:, None]] = np.nan
    plain, told = (LGMClassifier(**QUICK, add_indicator=on).fit(X[:1000], y[:1000]) for on in (False, True))

    def loss(model, rows):
        return -model.predict_log_proba(rows)[np.arange(1000), y[1000:]].mean()

    assert loss(told, X[1000:]) < loss(plain, X[1000:]) - 0.01
    shifted = np.where(np.random.default_rng(3).random((1000, 4)) < 0.5, np.nan, X[1000:])  # and some at random
    assert loss(told, shifted) > loss(plain, shifted) + 0.02  # the reason to leave it off
    assert loss(told, shifted) > np.log(2)  # worse than knowing nothing
    assert told.input_names == ["x0", "x1", "x2", "x3", "x0.missing", "x1.missing", "x2.missing"]
    assert len(told.columns_) == 4


def test_indicators_are_saved_and_refused_where_they_cannot_be(tmp_path):
    X, y = rng().random((100, 2)), rng().integers(0, 2, 100)
    X[::3, 1] = np.nan
    model = LGMClassifier(**QUICK, add_indicator=True).fit(X, y)
    again = LGMClassifier.load(model.save(tmp_path / "told"))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.n_features_in_ == 2
    image = np.tile(X, 32)
    with pytest.raises(DataError, match="names, dates or indicators"):
        LGMClassifier("conv", **QUICK, add_indicator=True).fit(image, y)
    with pytest.raises(ValueError, match="missing independently"):
        model.calibrate(X, y).predict_set(X)


def test_sparse_matrices_and_regression_are_refused_with_advice():
    X, y = rng().random((60, 3)), rng().random(60)
    with pytest.raises(TypeError, match=r"X is a sparse matrix.*X.toarray\(\)"):
        LGMClassifier().fit(scipy.sparse.csr_matrix(X), y > 0.5)
    with pytest.raises(ValueError, match=r"no regression here: divide y into ranges"):
        LGMClassifier().fit(X, y)


def test_numbers_near_the_limits_of_floats():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    tiny = np.column_stack([np.resize([0.0, 1e-310, 3e-310, 0.5], 60), rng.random(60) * 1e-310])
    for scaling in ("tree", "quantile", "minmax"):
        model = LGMClassifier(n_members=1, epochs=1, scaling=scaling, bins=4, random_state=0).fit(tiny, y)
        assert np.isfinite(model.predict_proba(tiny)).all()
    places = Numbers((0.0, 1e-310, 3e-310, 1.0)).scale(np.array([-1, 0, 5e-311, 1e-310, 2e-310, 0.5, 2, np.nan]))
    assert places == pytest.approx([0, 0, 1 / 6, 1 / 3, 1 / 2, 5 / 6, 1, np.nan], nan_ok=True)
    assert Numbers((7.0,)).scale(np.array([6, 7, 8, np.nan])).tolist() == pytest.approx([0, 0, 0, np.nan], nan_ok=True)
    (empty,) = raw_columns(np.zeros((0, 1)), ["a"])
    assert len(empty.values) == 0
    with pytest.raises(ValueError, match="in x1 whose range is beyond what a float can hold; divide them"):
        LGMClassifier().fit(np.column_stack([np.arange(60), np.linspace(-1.7, 1.7, 60) * 1e308]), y)
