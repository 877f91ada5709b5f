"""Sets of classes: they cover as often as asked under every pattern of holes, and say why if they cannot."""

import math

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError

from torchlgm import LGMClassifier
from torchlgm.errors import DataError
from torchlgm.joint import CalibrationRows, Coverage, predict_sets

QUICK = {"hidden": 4, "epochs": 20, "random_state": 0}


def log_probs(x):
    """Of three classes, by two entries, of which the first says more; missing ones say nothing."""
    values = x.double().nan_to_num(0.5)
    logits = torch.stack([6 * values[:, 0], 2 * values[:, 1] + 2, 3 - 0 * values[:, 0]], 1)
    return torch.log_softmax(logits, 1)


def rows_of(count, seed, sharp=0.5):
    """Labels that follow other odds than those of `log_probs`: coverage must not need a right model."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 2, generator=generator)
    labels = torch.multinomial((sharp * log_probs(x)).exp(), 1, generator=generator)[:, 0]
    return CalibrationRows(x, labels)


def with_holes(rows, share, seed):
    hidden = torch.rand(rows.inputs.shape, generator=torch.Generator().manual_seed(seed)) < share
    return CalibrationRows(rows.inputs.masked_fill(hidden, math.nan), rows.labels)


@pytest.mark.parametrize("level", [0.6, 0.9])
@pytest.mark.parametrize("nested", [False, True])
def test_coverage_under_every_pattern(level, nested):
    calibration = with_holes(rows_of(6000, 0), 0.3, 1)
    test = with_holes(rows_of(12000, 2), 0.5, 3)
    sets = predict_sets(log_probs, calibration, test.inputs, Coverage(level, nested))
    right = sets.gather(1, test.labels[:, None])[:, 0].double()
    for pattern in ([False, False], [True, False], [False, True], [True, True]):
        same = (test.holes == torch.tensor(pattern)).all(1)
        if nested:  # which covers more, the more the holes of others matter
            assert right[same].mean() > level - 0.03
        elif all(pattern):  # all classes are alike here, and in the set together
            assert right[same].all()
        else:
            assert right[same].mean() == pytest.approx(level, abs=0.03)


def test_one_threshold_for_all_patterns_would_not_cover():
    """The reason to ask again: what covers complete rows does not cover rows with holes."""
    calibration, test = rows_of(6000, 0, sharp=1.5), rows_of(6000, 2, sharp=1.5)
    hidden = test.inputs.clone()
    hidden[:, 0] = math.nan
    sets = predict_sets(log_probs, calibration, hidden, Coverage(0.9))
    complete = predict_sets(log_probs, calibration, test.inputs, Coverage(0.9))
    assert sets.sum(1).double().mean() > complete.sum(1).double().mean() + 0.2


def test_by_hand():
    """Nine calibration rows, and the level at which the least probable right class of them decides."""
    odds = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    rows = CalibrationRows(torch.zeros(9, 1), torch.tensor([0] * 8 + [1]))

    def ask(x):
        return odds.log().expand(len(x), 3)

    assert predict_sets(ask, rows, torch.zeros(2, 1), Coverage(0.9)).tolist() == [[True, True, False]] * 2
    assert predict_sets(ask, rows, torch.zeros(2, 1), Coverage(0.8)).tolist() == [[True, False, False]] * 2
    with pytest.raises(DataError, match=r"coverage=0.95 needs at least 19 calibration rows.*0 missing.*there are 9"):
        predict_sets(ask, rows, torch.zeros(2, 1), Coverage(0.95))


def test_sets_are_the_smallest_that_cover():
    """No other rule for the same calibration rows has smaller sets if the probabilities are right."""
    calibration, test = rows_of(6000, 0, sharp=1.0), rows_of(6000, 2, sharp=1.0)
    sets = predict_sets(log_probs, calibration, test.inputs, Coverage(0.8))
    probs = log_probs(test.inputs).exp()
    ordered = probs.sort(1, descending=True).values
    until = (ordered.cumsum(1) - ordered < 0.8).long().sum(1)  # classes until their probabilities are 0.8
    assert sets.gather(1, test.labels[:, None]).double().mean() == pytest.approx(0.8, abs=0.02)
    assert sets.sum(1).double().mean() < until.double().mean()
    assert probs[sets].min() > probs[~sets].max()  # one threshold


def test_rows_with_other_holes_count_only_if_nested():
    rows = CalibrationRows(torch.tensor([[0.1, math.nan]] * 30), torch.zeros(30, dtype=torch.int64))
    x = torch.tensor([[math.nan, 0.2]])
    with pytest.raises(DataError, match=r"1 missing entries there are 0; .*nested=True"):
        predict_sets(log_probs, rows, x, Coverage(0.9))
    asked = []

    def ask(x):
        asked.append(x.isnan().all())
        return log_probs(x)

    predict_sets(ask, rows, x, Coverage(0.9, nested=True))
    assert all(asked)  # the row in question too, with the holes of both


@pytest.fixture(scope="module")
def table():
    draw = np.random.RandomState(0)
    y = draw.randint(3, size=900)
    X = y[:, None] + draw.normal(size=(900, 4)) * [0.7, 1.0, 1.5, 2.0]
    return X, np.array(["low", "middle", "high"])[y]


def covered(model, X, y, **options):
    sets = model.predict_set(X, **options)
    return sets[np.arange(len(y)), np.searchsorted(model.classes_, y)].mean()


def test_rows_are_held_out_in_fit(table, tmp_path):
    X, y = table
    model = LGMClassifier(calibration_fraction=0.5, **QUICK).fit(X[:600], y[:600])
    assert len(model.calibration_rows_) == 300
    twin = LGMClassifier(**QUICK).fit(X[:600], y[:600])
    assert not np.array_equal(twin.predict_proba(X[600:]), model.predict_proba(X[600:]))  # trained on fewer rows
    holes = X[600:].copy()
    holes[:150, 0] = np.nan
    assert covered(model, holes, y[600:]) == pytest.approx(0.9, abs=0.06)
    sets = model.predict_set(holes)
    assert sets.dtype == bool
    assert sets.shape == (300, 3)
    assert sets[:150].sum() > sets[150:].sum()
    again = LGMClassifier.load(model.save(tmp_path / "model"))
    assert np.array_equal(again.predict_set(holes), sets)
    assert np.array_equal(model.predict_set(holes), sets)


def test_sets_that_are_not_to_be_empty(table):
    X, y = table
    model = LGMClassifier(**QUICK).fit(X[:400], y[:400]).calibrate(X[400:650], y[400:650])
    best = model.predict_proba(X[650:]).argmax(1)
    sets = model.predict_set(X[650:], coverage=0.5)
    filled = model.predict_set(X[650:], coverage=0.5, allow_empty=False)
    assert not sets.any(1).all()
    assert filled[np.arange(250), best].all()
    assert (filled >= sets).all()
    assert filled.sum() == sets.sum() + (~sets.any(1)).sum()


def test_a_fit_forgets_rows_that_it_may_have_trained_on(table):
    X, y = table
    model = LGMClassifier(**QUICK).fit(X[:300], y[:300]).calibrate(X[300:], y[300:])
    model.fit(X, y)
    with pytest.raises(DataError, match=r"needs calibration rows.*calibration_fraction=0.2.*calibrate\(X, y\)"):
        model.predict_set(X)


def test_a_warm_start_holds_out_the_same_rows(table):
    X, y = table
    model = LGMClassifier(calibration_fraction=0.2, warm_start=True, **{**QUICK, "random_state": None}).fit(X, y)
    before = model.calibration_rows_.inputs
    assert torch.equal(model.fit(X, y).calibration_rows_.inputs, before)


@pytest.mark.parametrize("coverage", [0, 1, -0.5, 90, "0.9", math.nan])
def test_coverage_is_a_share(table, coverage):
    X, y = table
    model = LGMClassifier(calibration_fraction=0.2, **QUICK).fit(X, y)
    with pytest.raises(DataError, match=r"expected a number between 0 and 1, such as 0.9"):
        model.predict_set(X, coverage)


def test_bad_requests(table):
    X, y = table
    with pytest.raises(ValueError, match=r"calibration_fraction=1.5; expected None or a share"):
        LGMClassifier(calibration_fraction=1.5).fit(X, y)
    with pytest.raises(ValueError, match="of 30 rows leaves none to calibrate with; use more rows"):
        LGMClassifier(calibration_fraction=0.01).fit(X[:30], y[:30])
    with pytest.raises(ValueError, match=r"sample_weight differs.*calibrate\(X, y\)"):
        LGMClassifier(calibration_fraction=0.5).fit(X, y, np.arange(len(y)) + 1.0)
    model = LGMClassifier(**QUICK).fit(X[:300], y[:300])
    with pytest.raises(ValueError, match="label 'huge', which is not among the classes"):
        model.calibrate(X[:2], np.array(["low", "huge"]))


def test_rows_of_which_nothing_was_seen_and_tables_of_other_libraries(table):
    X, y = table
    model = LGMClassifier(calibration_fraction=0.3, **QUICK).fit(X, y)
    rows = X[:5].copy()
    rows[0] = np.nan
    sets = model.predict_set(rows)
    assert covered(model, np.full_like(X, np.nan), y) > 0.85
    for other in (torch.from_numpy(rows), rows.tolist(), np.ma.masked_invalid(rows)):
        assert np.array_equal(model.predict_set(other), sets)
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        model.predict_set(rows[:0])
    with pytest.raises(NotFittedError, match="not fitted yet"):
        LGMClassifier().predict_set(rows)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        LGMClassifier().calibrate(X, y)
