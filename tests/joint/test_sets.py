"""Sets of labels for a model of any graph."""

import math

import pytest
import torch

import torchlgm as lgm
from torchlgm.errors import DataError, InferenceError
from torchlgm.joint import CalibrationRows, predict_set
from torchlgm.sklearn import LGMClassifier


@pytest.fixture
def posterior():
    model = lgm.LGM(lgm.zoo.dense(inputs=(1, 2, 2), hidden=[3], classes=3), lgm.Init(table=2.0))
    return lgm.Posterior(model, lgm.lbp(1))


def rows_of(posterior, count, seed):
    """Images, and labels that follow other odds than the model's."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 1, 2, 2, generator=generator)
    with torch.no_grad():
        odds = (2 * posterior(x)).exp()
    return CalibrationRows(x, torch.multinomial(odds, 1, generator=generator)[:, 0])


def test_images_with_a_hole_are_covered_as_often_as_asked(posterior):
    calibration, test = rows_of(posterior, 1500, 0), rows_of(posterior, 3000, 1)
    x = test.inputs.clone()
    x[:1500, 0, 0] = math.nan
    sets = predict_set(posterior, x, calibration, coverage=0.8)
    right = sets.gather(1, test.labels[:, None])[:, 0].double()
    for part in (slice(0, 1500), slice(1500, 3000)):
        assert right[part].mean() == pytest.approx(0.8, abs=0.04)
    assert torch.equal(predict_set(lambda x: posterior(x), x, calibration, coverage=0.8), sets)  # any predictor


def test_what_does_not_fit(posterior):
    rows = rows_of(posterior, 20, 0)
    with pytest.raises(DataError, match=r"calibration rows are shaped \(1, 2, 2\), inputs \(4,\)"):
        predict_set(lambda x: x, torch.rand(2, 4), rows)
    with pytest.raises(DataError, match=r"coverage=1\.0"):
        predict_set(posterior, rows.inputs, rows, coverage=1.0)
    with pytest.raises(DataError, match=r"rows are of type tuple; expected CalibrationRows\(inputs, labels\)"):
        predict_set(posterior, rows.inputs, (rows.inputs, rows.labels))
    two = lgm.Posterior(lgm.LGM(lgm.Graph((lgm.Layer("x", 3), lgm.Layer("y", 2)), (lgm.Dense("x", "y"),))))
    with pytest.raises(InferenceError, match="the target has 2 nodes; expected one"):
        predict_set(two, torch.rand(2, 3), CalibrationRows(torch.rand(20, 3), [0] * 20))
    with pytest.raises(InferenceError, match=r"reads tables; call its predict_set\(X\)"):
        predict_set(LGMClassifier(), rows.inputs, rows)


@pytest.mark.parametrize(
    ("inputs", "labels"),
    [
        (torch.zeros(3, 4), torch.zeros(2, dtype=torch.long)),
        (torch.zeros(3, 4), torch.zeros(3)),
        (torch.zeros(3, 4), torch.tensor([0, -1, 2])),
        (torch.zeros(3), torch.zeros(3, dtype=torch.long)),
    ],
)
def test_calibration_rows_that_are_none(inputs, labels):
    with pytest.raises(DataError, match=r"expected inputs \(N, \*shape\) and labels \(N,\), whole numbers from 0"):
        CalibrationRows(inputs, labels)


def test_a_calibration_row_of_a_class_that_there_is_not(posterior):
    rows = CalibrationRows(torch.rand(30, 1, 2, 2), [3] * 30)
    with pytest.raises(DataError, match="has label 3, but there are 3 labels"):
        predict_set(posterior, torch.rand(2, 1, 2, 2), rows)


def test_arrays_do_as_well(posterior):
    rows = rows_of(posterior, 40, 0)
    x = torch.rand(2, 1, 2, 2)
    sets = predict_set(posterior, x.numpy(), CalibrationRows(rows.inputs.numpy(), rows.labels.numpy()))
    assert torch.equal(sets, predict_set(posterior, x, rows))
