import math
from itertools import combinations

import pytest
import torch

from helpers.drawings import draw, random_probs
from torchlgm import metrics, viz
from torchlgm.errors import DataError


def labels_of(axes):
    """The names that lines have at their ends."""
    return [text.get_text() for text in axes.texts]


def legend_texts(legend):
    return [text.get_text() for text in legend.get_texts()]


HISTORY = [
    {"epoch": 1, "train_loss": 2.0, "valid_loss": 2.1, "valid_accuracy": 0.3},
    {"epoch": 2, "train_loss": 1.0, "valid_loss": 1.4, "valid_accuracy": 0.8},
    {"epoch": 3, "train_loss": 0.9},
    {"epoch": 4, "train_loss": math.nan, "valid_loss": math.inf, "valid_accuracy": 0.7},
]


def test_learning_curves():
    training, loss, accuracy = viz.learning_curves(HISTORY).axes
    assert [axes.get_ylabel() for axes in (training, loss)] == ["training\nobjective", "validation\nloss"]
    assert training.lines[0].get_xydata().tolist()[:3] == [[1, 2], [2, 1], [3, 0.9]]
    assert loss.lines[0].get_xdata().tolist() == [1, 2, 4]
    assert accuracy.lines[0].get_xydata().tolist() == [[1, 0.3], [2, 0.8], [4, 0.7]]
    assert [axes.lines[-1].get_xydata().tolist() for axes in (loss, accuracy)] == [[[2, 1.4]], [[2, 0.8]]]
    assert len(training.lines) == 1
    assert training.get_title() == "Best after epoch 2 of 4"
    draw(accuracy.figure)


def test_learning_curves_skip_what_is_missing():
    (training,) = viz.learning_curves([{"train_loss": 2.0}, {"train_loss": 1.0, "valid_accuracy": None}]).axes
    assert training.lines[0].get_xdata().tolist() == [1, 2]
    (accuracy,) = viz.learning_curves([{"epoch": 7, "valid_accuracy": 0.5, "seconds": 3}]).axes
    draw(accuracy.figure)
    assert {label.get_text() for label in accuracy.get_xticklabels()} == {"6", "7", "8"}
    (accuracy,) = viz.learning_curves([{"valid_accuracy": math.nan}]).axes
    assert accuracy.get_title() == "By epoch"


@pytest.mark.parametrize("history", [[], [{"epoch": 1}], [{"epoch": 1, "loss": 2.0}]])
def test_learning_curves_without_anything(history):
    with pytest.raises(DataError, match="train_loss, valid_loss or valid_accuracy"):
        viz.learning_curves(history)


def test_confusion_matrix():
    figure = viz.confusion_matrix(torch.tensor([[30, 10, 0], [0, 5, 0], [0, 0, 0]]), ["a$b$", "two", "3"])
    axes, scale = figure.axes
    assert axes.images[0].get_array().tolist() == [[0.75, 0.25, 0], [0, 1, 0], [0, 0, 0]]
    assert [text.get_text() for text in axes.texts] == ["30", "10", "0", "0", "5", "0", "0", "0", "0"]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["a$b$", "two", "3"]
    assert "true" in axes.get_ylabel()
    assert "predicted" in axes.get_xlabel()
    assert "35 of 45 samples right (77.8%)" in axes.get_title()
    assert "share" in scale.get_ylabel()
    draw(figure)


@pytest.mark.parametrize("classes", [1, 10, 40])
def test_confusion_matrix_sizes(classes):
    axes = viz.confusion_matrix(torch.eye(classes, dtype=torch.int64), range(classes)).axes[0]
    assert axes.images[0].get_array().tolist() == torch.eye(classes).tolist()
    assert len(axes.texts) == (classes**2 if classes <= 30 else 0)
    assert len(axes.get_xticks()) == (classes if classes <= 30 else classes / 2)


@pytest.mark.parametrize(
    ("matrix", "classes", "message"),
    [
        (torch.ones(2, 3), ["a", "b"], r"\(K, K\).*\(2, 3\)"),
        (torch.ones(4), ["a", "b"], r"\(K, K\).*\(4,\)"),
        (torch.ones(0, 0), [], "not empty"),
        (-torch.ones(1, 1), ["a"], "none negative"),
        (torch.full((1, 1), math.nan), ["a"], "finite"),
        (torch.ones(2, 2), ["a"], "expected 2 names, got 1"),
    ],
)
def test_bad_confusion_matrix(matrix, classes, message):
    with pytest.raises(DataError, match=message):
        viz.confusion_matrix(matrix, classes)


def test_reliability_diagram():
    probs = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.0, 1.0]])
    targets = torch.tensor([0, 1, 1, 1])
    others = random_probs(50, 10)
    figure = viz.reliability_diagram({"$mine$": (probs.requires_grad_(), targets), "_other": others}, bins=4)
    (axes,) = figure.axes
    points = axes.lines[1].get_xydata().tolist()
    assert points == [pytest.approx(point) for point in ([0.6, 1], [0.9, 0.5], [1, 1])]  # equal ones are not parted
    hollow = axes.lines[2]
    assert hollow.get_xydata().tolist() == points, "all bins have few samples"
    assert hollow.get_markerfacecolor() == "white"
    errors = [metrics.calibration_error(*pair) for pair in ((probs, targets), others)]
    assert legend_texts(figure.legends[0])[1:] == [f"$mine$ (ECE {errors[0]:.3f})", f"_other (ECE {errors[1]:.3f})"]
    assert errors[0] == pytest.approx(0.3)
    draw(figure)


@pytest.mark.parametrize(("samples", "bins"), [(5, 3), (36, 3), (100, 4), (10_000, 10)])
def test_reliability_diagram_has_bins_of_equal_count_fewer_for_fewer_samples(samples, bins):
    probs, targets = random_probs(samples, 4)
    figure = viz.reliability_diagram({"few": (probs, targets), "many": random_probs(10_000, 4)})
    confidence = figure.axes[0].lines[1].get_xdata()
    expected = [part.mean().item() for part in probs.max(1).values.sort().values.double().tensor_split(bins)]
    assert len(confidence) == bins
    assert samples == 5 or confidence == pytest.approx(expected, abs=0.02)
    assert legend_texts(figure.legends[0])[1] == f"few (ECE {metrics.calibration_error(probs, targets):.3f})"


def test_bands_are_intervals_of_the_accuracy():
    probs = torch.tensor([[0.2, 0.8]]).repeat(100, 1)
    targets = (torch.arange(100) < 70).long()
    (band,) = viz.reliability_diagram({"one": (probs, targets)}).axes[0].collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == pytest.approx((0.620, 0.769), abs=0.001)  # Wilson, 70 of 100 at 90 %


@pytest.mark.parametrize(
    ("right", "verdict"),
    [(99, "too modest, 80% sure but right in 99%"), (60, "too sure, 80% sure but"), (79, "80% sure on average, right")],
)
def test_the_title_says_whether_it_can_be_trusted(right, verdict):
    probs = torch.tensor([[0.2, 0.8]]).repeat(100, 1)
    figure = viz.reliability_diagram({"one": (probs, (torch.arange(100) < right).long())})
    assert figure.axes[0].get_title().startswith(f"one: {verdict}")


def test_the_legend_of_a_reliability_diagram_covers_nothing():
    figure = viz.reliability_diagram({"few": random_probs(36, 3), "other": random_probs(36, 3)})
    draw(figure)
    covered = figure.legends[0].get_window_extent()
    assert not any(covered.overlaps(axes.get_window_extent()) for axes in figure.axes)


def test_reliability_diagram_of_arrays():
    probs, targets = random_probs(50, 10)
    drawn = viz.reliability_diagram({"array": (probs.numpy(), targets.numpy().astype("i1"))}).axes[0].lines[1]
    expected = viz.reliability_diagram({"tensor": (probs, targets)}).axes[0].lines[1]
    assert drawn.get_xydata().tolist() == expected.get_xydata().tolist()


def test_reliability_diagram_of_one_sample():
    (axes,) = viz.reliability_diagram({"one": (torch.tensor([[0.25, 0.75]]), torch.tensor([0]))}).axes
    assert axes.lines[1].get_xydata().tolist() == [[0.75, 0]]


@pytest.mark.parametrize(
    ("curves", "message"),
    [
        ({}, "at least one name"),
        ({"a": (torch.ones(3), torch.zeros(3).long())}, r"\(N, K\)"),
        ({"a": (torch.ones(1, 2), torch.zeros(1).long())}, "summing to 1"),
    ],
)
def test_bad_reliability_curves(curves, message):
    with pytest.raises(DataError, match=message):
        viz.reliability_diagram(curves)


ROWS = [{"visible": 1.0, "accuracy": 0.9, "nll": 0.3}, {"visible": 0.5, "accuracy": 0.6, "nll": 1.3}]


def test_visible_share():
    figure = viz.visible_share({f"model {i}": ROWS for i in range(9)}, "nll")
    (axes,) = figure.axes
    assert labels_of(axes) == [f"model {i}" for i in range(9)]
    assert axes.lines[0].get_xydata().tolist() == [[50, 1.3], [100, 0.3]]
    assert "lower is better" in axes.get_ylabel()
    looks = {(line.get_color(), line.get_marker(), line.get_linestyle()) for line in axes.lines}
    assert len(looks) == 9
    draw(figure)
    assert "higher is better" in viz.visible_share({"one": ROWS[:1]}).axes[0].get_ylabel()


def test_visible_share_says_what_was_found():
    better = [{**row, "accuracy": row["accuracy"] + 0.05, "accuracy_std": 0.01} for row in ROWS]
    figure = viz.visible_share({"mine": better, "$other$": ROWS}, inputs="columns", chance=0.1)
    (axes,) = figure.axes
    assert axes.get_title() == "With 50% of the columns: mine 65%, $other$ 60%"
    assert labels_of(axes) == ["chance", "$other$", "mine"]
    assert axes.xaxis_inverted()
    assert axes.lines[-1].get_ydata() == [0.1, 0.1]
    assert len(axes.collections) == 1, "a band where standard deviations are given"
    renderer = draw(figure)
    places = [text.get_window_extent(renderer) for text in axes.texts]
    assert not any(one.overlaps(other) for one, other in combinations(places, 2))


@pytest.mark.parametrize(
    ("rows", "metric", "message"),
    [
        ({}, "accuracy", "at least one model"),
        ({"a": []}, "accuracy", "at least one row"),
        ({"a": ROWS}, "brier", "a: expected rows with visible and brier, got one with visible, accuracy, nll"),
        ({"a": [{"accuracy": 0.5}]}, "accuracy", "expected rows with visible"),
    ],
)
def test_bad_visible_share(rows, metric, message):
    with pytest.raises(DataError, match=message):
        viz.visible_share(rows, metric)


@pytest.mark.parametrize(("steps", "labels"), [(1, 2), (15, 10)])
def test_beliefs_by_iteration(steps, labels):
    probs = torch.rand(steps, labels).softmax(1)
    figure = viz.beliefs_by_iteration(probs, [f"${i}$" for i in range(labels)], probs[-1])
    (axes,) = figure.axes
    assert set(labels_of(axes)) == {f"${i}$" for i in range(labels)}
    assert "exact" in axes.get_title()
    lines, levels = axes.lines[: 2 * labels : 2], axes.lines[1 : 2 * labels : 2]
    assert [line.get_ydata().tolist() for line in lines] == probs.T.tolist()
    assert lines[0].get_xdata().tolist() == list(range(1, steps + 1))
    assert [line.get_ydata()[0] for line in levels] == probs[-1].tolist()
    draw(figure)
    assert "exact" not in viz.beliefs_by_iteration(probs, range(labels)).axes[0].get_title()


@pytest.mark.parametrize(
    ("probs", "labels", "truth", "message"),
    [
        (torch.ones(2), "ab", None, r"probs: expected \(T, K\)"),
        (torch.ones(2, 2), "abc", None, "labels: expected 2 names, got 3"),
        (torch.ones(2, 2), "ab", torch.ones(3), "truth: expected 2 probabilities, one for each label, got 3"),
    ],
)
def test_bad_beliefs_by_iteration(probs, labels, truth, message):
    with pytest.raises(DataError, match=message):
        viz.beliefs_by_iteration(probs, labels, truth)
