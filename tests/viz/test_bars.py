import math

import pytest
import torch

from helpers.drawings import draw, texts
from torchlgm import viz
from torchlgm.errors import DataError

NAMES = ["a$b$", "b", "c", "d"]


def test_shares_lead_from_nothing_seen_to_the_answer():
    figure = viz.evidence_shares(NAMES, [0.5, -2.0, 0.0, 1.0], -1.0, "ill", most=2)
    axes = figure.axes[0]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["nothing seen", "b", "d", "a$b$", "answer"]
    bars = [(bar.get_x(), bar.get_width()) for bar in axes.patches]
    assert bars == [(0, -1), (-1, -2), (-3, 1), (-2, 0.5), (0, -1.5)]
    assert axes.get_xlabel() == "log-odds of ill, in nats"
    assert f"{1 / (1 + math.exp(1.5)):.1%}" in axes.get_title()
    draw(figure)
    assert {"50%", "probability"} <= set(texts(figure))


def test_small_shares_are_together():
    axes = viz.evidence_shares(list("abcde"), [1.0, 2.0, 3.0, 0.25, 0.25], 0.0, "ill", most=2).axes[0]
    assert [t.get_text() for t in axes.get_yticklabels()][1:-1] == ["c", "b", "3 other entries"]
    assert axes.patches[3].get_width() == 1.5


def test_gains_are_sorted():
    figure = viz.gain_bars(NAMES, torch.tensor([0.0, 0.2, 0.1, 0.3]), "nats per euro")
    (axes,) = figure.axes
    assert [t.get_text() for t in axes.get_yticklabels()] == ["d", "b", "c"]
    assert [round(bar.get_width(), 6) for bar in axes.patches] == [0.3, 0.2, 0.1]
    assert axes.get_xlabel() == "expected gain, in nats per euro"
    draw(figure)


@pytest.mark.parametrize(("against", "x"), [("questions", [0, 1, 2]), ("cost", [0, 3, 5])])
def test_curves_of_questions(against, x):
    curve = {"questions": [0, 1, 2], "cost": [0, 3, 5], "accuracy": [0.3, 0.8, 0.9], "nll": [1, 0.5, 0.3]}
    figure = viz.acquisition_curves({"by gain": curve, "at random": curve}, against=against)
    (axes,) = figure.axes
    assert [line.get_xdata().tolist() for line in axes.lines] == [x, x]
    assert axes.lines[0].get_ydata().tolist() == [0.3, 0.8, 0.9]
    assert [t.get_text() for t in axes.get_legend().get_texts()] == ["by gain", "at random"]
    draw(figure)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: viz.evidence_shares(NAMES, [1.0], 0.0, "ill"), "entries: expected 1 names, got 4"),
        (lambda: viz.evidence_shares(["a"], [1.0], math.nan, "ill"), "base=nan"),
        (lambda: viz.gain_bars(NAMES, [0.0] * 4), "gains: nothing is worth anything"),
        (lambda: viz.acquisition_curves({}), "curves: expected at least one"),
        (lambda: viz.acquisition_curves({"a": {"questions": [0]}}), "a: expected a curve with accuracy and questions"),
        (lambda: viz.acquisition_curves({"a": {}}, "speed"), "metric='speed'"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(DataError, match=message):
        make()
