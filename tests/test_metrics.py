import math

import numpy as np
import pytest
import torch

from sklearn import metrics as oracle
from torchlgm import metrics
from torchlgm.data import Data
from torchlgm.errors import DataError

pytestmark = pytest.mark.usefixtures("single_precision")


@pytest.fixture(params=[0, 1, 2])
def predictions(request):
    generator = torch.Generator().manual_seed(request.param)
    classes = 3 + request.param
    logits = 2 * torch.randn(400, classes, generator=generator)
    targets = torch.multinomial(logits.softmax(1) * 0.7 + 0.3 / classes, 1, generator=generator)[:, 0]
    return logits.softmax(1), targets


def test_against_scikit_learn(predictions):
    probs, targets = predictions
    labels = list(range(probs.shape[1]))
    exact = probs.double() / probs.double().sum(1, keepdim=True)
    predicted = probs.argmax(1)
    assert metrics.accuracy(probs, targets) == pytest.approx(oracle.accuracy_score(targets, predicted))
    assert metrics.nll(probs, targets) == pytest.approx(oracle.log_loss(targets, exact, labels=labels), rel=1e-5)
    brier = oracle.brier_score_loss(targets, exact, labels=labels)
    assert metrics.brier(probs, targets) == pytest.approx(brier, rel=1e-5)
    assert metrics.confusion(probs, targets).tolist() == oracle.confusion_matrix(targets, predicted).tolist()


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_calibration_error_against_torchmetrics(predictions, bins):
    functional = pytest.importorskip("torchmetrics.functional.classification")
    probs, targets = predictions
    expected = functional.multiclass_calibration_error(probs, targets, probs.shape[1], n_bins=bins)
    assert metrics.calibration_error(probs, targets, bins) == pytest.approx(expected.item(), abs=1e-6)


def test_no_bins(predictions):
    with pytest.raises(DataError, match="bins=0; expected a whole number >= 1"):
        metrics.calibration_error(*predictions, bins=0)


def test_calibration_by_chance_is_the_error_of_right_probabilities():
    generator = torch.Generator().manual_seed(1)
    probs = (2 * torch.randn(300, 4, generator=generator)).softmax(1)
    errors = [
        metrics.calibration_error(probs, torch.multinomial(probs, 1, generator=generator)[:, 0]) for _ in range(300)
    ]
    assert metrics.calibration_chance(probs) == pytest.approx(sum(errors) / 300, rel=0.05)
    assert metrics.calibration_chance(probs.repeat(16, 1)) == pytest.approx(sum(errors) / 300 / 4, rel=0.1)
    with pytest.raises(DataError, match="expected a whole number >= 1"):
        metrics.calibration_chance(probs, bins=0)


def test_chance_draws_no_more_at_once_than_memory_holds(monkeypatch):
    probs = torch.rand(40, 2).softmax(1)
    together = metrics.calibration_chance(probs, draws=1000)
    monkeypatch.setattr(metrics, "MOST_DRAWN", 40 * 7)
    assert metrics.calibration_chance(probs, draws=1000) == pytest.approx(together, rel=0.05)
    for options in ({"draws": 10**9}, {"seed": 2**64}):
        with pytest.raises(DataError, match="expected at most 100000 draws, and a seed up to"):
            metrics.calibration_chance(probs, **options)


def test_calibration_error_by_hand():
    probs = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.0, 1.0]])
    targets = torch.tensor([0, 1, 1, 1])
    assert metrics.calibration_error(probs, targets) == pytest.approx((0.8 + 0.4 + 0) / 4)


def test_impossible_targets_cost_much_but_finitely():
    probs = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert metrics.nll(probs, torch.tensor([0, 0])) == 0
    assert metrics.nll(probs, torch.tensor([1, 1])) == pytest.approx(-math.log(torch.finfo(torch.float32).tiny))
    assert 700 < metrics.nll(probs.double(), torch.tensor([1, 1])) < 710
    assert metrics.brier(probs, torch.tensor([1, 1])) == 2


def test_confusion_has_targets_in_rows():
    probs = torch.tensor([[0.1, 0.9, 0.0], [0.1, 0.9, 0.0], [0.8, 0.2, 0.0]])
    assert metrics.confusion(probs, torch.tensor([0, 1, 0])).tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 0]]


def test_evaluate_takes_half_precision_and_gradients(predictions):
    probs, targets = predictions
    expected = metrics.evaluate(probs, targets)
    assert set(expected) == {"accuracy", "nll", "brier", "calibration_error"}
    assert metrics.evaluate(probs.clone().requires_grad_(), targets) == expected
    halved = metrics.evaluate(probs.bfloat16(), targets)
    assert halved["nll"] == pytest.approx(expected["nll"], rel=0.02)


@pytest.mark.parametrize("dtype", ["i1", "u1", ">i4", "u8"])
def test_arrays_and_any_integers(predictions, dtype):
    probs, targets = predictions
    arrays = probs.numpy(), targets.numpy().astype(dtype)
    assert metrics.evaluate(*arrays) == metrics.evaluate(probs, targets)
    assert metrics.confusion(*arrays).equal(metrics.confusion(probs, targets))


@pytest.mark.parametrize(
    ("probs", "targets", "message"),
    [
        (torch.ones(2), torch.tensor([0, 0]), r"\(N, K\)"),
        (torch.full((1, 2), 0.5), np.array(["cat"]), "targets of type ndarray are no numbers"),
        (torch.full((2, 2), 0.5), torch.tensor([0]), r"\(2, 2\) and \(1,\)"),
        (torch.ones(0, 2), torch.zeros(0, dtype=torch.int64), "N > 0"),
        (torch.full((1, 2), 0.5), torch.tensor([2]), r"0\.\.1"),
        (torch.full((1, 2), 0.5), torch.tensor([1.0]), "integer targets"),
        (torch.tensor([[2.0, -1.0]]), torch.tensor([0]), "softmax"),
        (torch.tensor([[2.0, 1.0]]), torch.tensor([0]), "softmax"),
        (torch.tensor([[math.nan, 1.0]]), torch.tensor([0]), "softmax"),
    ],
)
def test_bad_predictions(probs, targets, message):
    for measure in (
        metrics.accuracy,
        metrics.nll,
        metrics.brier,
        metrics.calibration_error,
        metrics.confusion,
    ):
        with pytest.raises(DataError, match=message):
            measure(probs, targets)


def test_by_visible_share():
    """A predictor that knows the class when the one telling entry is visible and guesses otherwise."""
    targets = torch.arange(2000) % 2
    data = Data(targets[:, None].float(), targets, ("0", "1"))

    def predict(inputs):
        ones = torch.where(inputs.isnan(), 0.5, inputs)
        return torch.cat([1 - ones, ones], dim=1)

    table = metrics.by_visible_share(predict, data, [1.0, 0.4, 0.0], torch.Generator().manual_seed(0))
    assert [row["visible"] for row in table] == [1.0, 0.4, 0.0]
    assert [row["accuracy"] for row in table] == pytest.approx([1, 0.7, 0.5], abs=0.03)
    assert [row["nll"] for row in table] == pytest.approx([0, 0.6 * math.log(2), math.log(2)], abs=0.03)


def test_by_visible_share_hides_as_told():
    data = Data(torch.zeros(20, 1, 6, 6), torch.arange(20) % 2, ("0", "1"))
    seen = []

    def predict(inputs):
        seen.append(inputs.isnan()[:, 0])
        return torch.full((len(inputs), 2), 0.5)

    metrics.by_visible_share(predict, data, [0.5], torch.Generator().manual_seed(0), like="band")
    rows, columns = seen[0].any(2), seen[0].any(1)
    assert seen[0].equal(rows[:, :, None] & columns[:, None, :])
