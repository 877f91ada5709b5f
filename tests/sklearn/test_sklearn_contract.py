"""scikit-learn's own checks, and what its users do with an estimator."""

import pickle

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

import torchlgm as lgm
from torchlgm import LGMClassifier
from torchlgm.errors import DataError

pytestmark = pytest.mark.usefixtures("single_precision")
QUICK = {"epochs": 12, "hidden": 4, "batch_size": 64, "learning_rate": 0.2, "visible": (0.5, 1.0)}


BY_NAME = {"check_dataframe_column_names_consistency": "a column that is lacking is missing, in any order"}


@parametrize_with_checks(
    [LGMClassifier(**QUICK), LGMClassifier(**QUICK, fill_weight=0.5)], expected_failed_checks=lambda _: BY_NAME
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
def test_scikit_learns_own_checks_hold_for_the_defaults():
    results = check_estimator(LGMClassifier(), on_skip=None, expected_failed_checks=BY_NAME)
    assert {row["status"] for row in results} <= {"passed", "skipped", "xfail"}


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


def quick(**changed):
    return LGMClassifier(**{**QUICK, "random_state": 0, **changed})


def test_pipeline_grid_search_and_cross_validation(iris):
    scores = cross_val_score(make_pipeline(StandardScaler(), quick(epochs=30)), *iris, cv=3)
    assert scores.mean() > 0.85
    search = GridSearchCV(quick(), {"hidden": [2, (4, 3)], "bins": [2, 4]}, cv=2).fit(*iris)
    assert set(search.best_params_) == {"hidden", "bins"}


@pytest.mark.parametrize("keep", [lambda m: pickle.loads(pickle.dumps(m)), "joblib"])
def test_saved_and_loaded_it_answers_the_same(iris, keep, tmp_path):
    model = quick().fit(*iris).partial_fit(*iris)
    if keep == "joblib":
        joblib.dump(model, tmp_path / "model")
        again = joblib.load(tmp_path / "model")
    else:
        again = keep(model)
    np.testing.assert_array_equal(again.predict_proba(iris[0]), model.predict_proba(iris[0]))
    np.testing.assert_array_equal(
        again.partial_fit(*iris).predict_proba(iris[0]), model.partial_fit(*iris).predict_proba(iris[0])
    )


def test_clones_train_to_the_same_weights(iris):
    model = quick(method=lgm.lbp(2)).fit(*iris)
    again = clone(model).fit(*iris)
    np.testing.assert_array_equal(again.predict_log_proba(iris[0]), model.predict_log_proba(iris[0]))
    other = clone(model).set_params(random_state=1).fit(*iris)
    assert not np.array_equal(other.predict_log_proba(iris[0]), model.predict_log_proba(iris[0]))


@pytest.mark.parametrize("names", [["a", "b", "c"], [-3, 0, 7], [False, True, True]])
def test_any_class_labels(iris, names):
    X, y = iris
    labels = np.array(names)[y]
    model = quick().fit(X, labels)
    assert model.classes_.tolist() == sorted(set(names))
    assert set(model.predict(X)) <= set(names)
    assert model.predict(X).dtype == labels.dtype


@pytest.mark.filterwarnings("ignore:epochs=")  # few passes over repeated rows are meant
def test_weights_count_rows(iris):
    """Weight 0 is no row and weight 3 is three rows, to the last bit, whatever their order."""
    X, y = iris
    weights = np.random.default_rng(0).integers(0, 4, len(y))
    order = np.random.default_rng(1).permutation(weights.sum())
    weighted = quick().fit(X, y, weights)
    repeated = quick().fit(X.repeat(weights, 0)[order], y.repeat(weights)[order])
    np.testing.assert_array_equal(weighted.predict_proba(X), repeated.predict_proba(X))


def test_one_number_is_the_weight_of_every_row(iris):
    X, y = iris
    model, plain = quick(epochs=1).fit(X, y, sample_weight=0.5), quick(epochs=1).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    with pytest.raises(ValueError, match="sample_weight contains NaN"):
        quick().fit(X, y, sample_weight=np.nan)


@pytest.mark.filterwarnings("ignore:epochs=")  # few passes over repeated rows are meant
def test_class_weights_move_the_belief(iris):
    X, y = iris[0][:, 1:2], (iris[1] == 1).astype(int)
    plain, heavy, balanced = (
        quick(class_weight=w, scaling="minmax").fit(X, y) for w in (None, {0: 1, 1: 20}, "balanced")
    )
    share = [model.predict_proba(X)[:, 1].mean() for model in (plain, balanced, heavy)]
    assert abs(share[0] - 1 / 3) < 0.05
    assert share[0] < share[1] < share[2]
    same = quick(scaling="minmax").fit(X, y, np.where(y == 1, 2.0, 1.0))  # what "balanced" means here
    np.testing.assert_allclose(balanced.predict_proba(X), same.predict_proba(X), atol=1e-4)


def test_a_class_whose_rows_weigh_nothing_is_not_there(iris):
    X, y = iris
    model = quick(epochs=3).fit(X, y, sample_weight=(y < 2).astype(float))
    alone = quick(epochs=3).fit(X[y < 2], y[y < 2])
    np.testing.assert_array_equal(model.predict_proba(X), alone.predict_proba(X))


def test_warm_start_goes_on_and_partial_fit_learns(iris):
    X, y = iris
    model = quick(warm_start=True, epochs=3).fit(X, y)
    before, tables = model.n_iter_, model.model_
    model.fit(X, y)
    assert model.n_iter_ == 2 * before == len(model.loss_curve_)
    assert model.model_ is tables
    with pytest.raises(ValueError, match="classes of the last fit"):
        model.fit(X[:100], y[:100])
    with pytest.raises(ValueError, match=r"hidden.* changed since"):
        model.set_params(hidden=7).fit(X, y)
    part = quick()
    for _ in range(25):
        for k in range(3):  # one class at a time, in parts
            part.partial_fit(X[k::3], y[k::3], classes=[0, 1, 2])
    assert part.score(X, y) > 0.85
    part.partial_fit(X[:1], y[:1])  # one row is a part too


def test_partial_fit_takes_up_a_new_learning_rate(iris):
    model = quick().partial_fit(*iris, classes=[0, 1, 2])
    before = model.predict_log_proba(iris[0])
    after = model.set_params(learning_rate=1e-12).partial_fit(*iris).predict_log_proba(iris[0])
    np.testing.assert_allclose(after, before, atol=1e-9)


def test_partial_fit_says_what_it_needs(iris):
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        quick().partial_fit(*iris)
    model = quick().partial_fit(*iris, classes=[0, 1, 2])
    with pytest.raises(ValueError, match="not those of the first call"):
        model.partial_fit(*iris, classes=[0, 1])
    with pytest.raises(ValueError, match="not among the classes"):
        model.partial_fit(iris[0][:2], [9, 0])
    with pytest.raises(ValueError, match="needs all rows at once"):
        quick(class_weight="balanced").partial_fit(*iris, classes=[0, 1, 2])


def test_early_stopping_stops_early(iris):
    model = quick(epochs=200, early_stopping=True, n_iter_no_change=2, learning_rate=0.5).fit(*iris)
    assert model.n_iter_ < 200


@pytest.mark.parametrize("seed", [1, None])
def test_a_warm_start_holds_out_the_same_rows(iris, seed, monkeypatch):
    parts = []

    def watched(predictor, train, valid, *rest, **options):
        parts.append((train.inputs, valid.inputs))
        return lgm.learn.fit(predictor, train, valid, *rest, **options)

    monkeypatch.setattr("torchlgm.sklearn.classifier_training.fit", watched)
    model = quick(epochs=1, warm_start=True, early_stopping=True, random_state=seed)
    model.fit(*iris).fit(*iris)
    for first, second in zip(*parts, strict=True):
        torch.testing.assert_close(first, second)


def test_verbose_prints_a_line_for_each_epoch(iris, capsys):
    quick(epochs=2).fit(*iris)
    assert capsys.readouterr().out == ""
    quick(epochs=2, verbose=2, fill_weight=0.5).fit(*iris)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["epoch 1/2", "epoch 2/2"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("architecture", "deep"),
        ("hidden", (4, 0)),
        ("bins", 1),
        ("scaling", "log"),
        ("method", "lbp"),
        ("visible", (0.9, 0.1)),
        ("fill_weight", -1),
        ("epochs", 0),
        ("batch_size", 0.5),
        ("learning_rate", 0),
        ("early_stopping", "x"),
        ("warm_start", None),
        ("validation_fraction", 1),
        ("device", "gpu"),
        ("categorical_features", ["nowhere"]),
        ("categorical_features", [True, False]),
        ("class_weight", {0: -1, 1: 1, 2: 1}),
    ],
)
def test_bad_parameters_are_named(iris, name, value):
    with pytest.raises(ValueError, match=name):
        quick(**{name: value}).fit(*iris)


def test_a_range_may_be_a_list(iris):
    quick(visible=[0.5, 1.0], epochs=1).fit(*iris)


@pytest.mark.parametrize("ask", ["uncertainty", "complete", "evidence"])
def test_nothing_is_said_before_fit(iris, ask):
    with pytest.raises(NotFittedError):
        getattr(quick(), ask)(iris[0])


@pytest.mark.skipif(torch.cuda.is_available(), reason="has the device")
def test_a_device_that_is_not_there_is_named(iris):
    with pytest.raises(DataError, match="device='cuda' cannot be used here; expected 'cpu'"):
        quick(device="cuda").fit(*iris)
    model = quick(epochs=1).fit(*iris).set_params(device="cuda")
    for ask in (model.predict, model.uncertainty, model.complete):
        with pytest.raises(DataError, match="device='cuda' cannot be used here"):
            ask(iris[0])
