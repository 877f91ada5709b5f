"""A trained model as one thing to use, save and load."""

import json
import math

import pytest
import torch

from torchlgm import LGM, exact, infer, lbp, zoo
from torchlgm.cli.classifier import Classifier, Inference
from torchlgm.cli.config import MethodName
from torchlgm.errors import CheckpointError, DataError, EvidenceError
from torchlgm.inference import METHODS
from torchlgm.model import save

NAN = math.nan


@pytest.fixture
def classifier():
    """4 pixels, 3 hidden nodes, 2 classes, random energies."""
    return Classifier(LGM(zoo.dense((1, 2, 2), (3,), 2), init="paper"), Inference("lbp", "sweep", 2), ("no", "yes"))


@pytest.fixture
def x():
    return torch.tensor([[0.1, 0.9, NAN, 0.5], [1.0, NAN, NAN, 0.0], [0.2, 0.3, 0.4, 0.5]]).reshape(3, 1, 2, 2)


def test_probabilities_are_those_of_inference(classifier, x):
    expected = infer(classifier.model, {"inputs": x}, lbp(2, "sweep"))["classes"].probs[:, 0]
    torch.testing.assert_close(classifier.predict_proba(x), expected)


def test_complete_keeps_what_is_seen_and_fills_in_beliefs(classifier, x):
    filled = classifier.complete(x)
    believed = infer(classifier.model, {"inputs": x}, lbp(2, "sweep"))["inputs"].probs[..., 1]
    assert torch.equal(filled[~x.isnan()], x[~x.isnan()])
    torch.testing.assert_close(filled[x.isnan()], believed[x.isnan()])


def test_complete_with_more_labels_takes_the_middle_of_bins():
    model = LGM(zoo.dense((1, 2, 1), (2,), 2, input_labels=4), init="paper")
    classifier = Classifier(model, Inference(iterations=3), ("a", "b"))
    x = torch.tensor([[0.6, NAN]]).reshape(1, 1, 2, 1)
    probs = infer(model, {"inputs": torch.tensor([[2.0, NAN]]).reshape(1, 1, 2, 1)}, exact())["inputs"].probs
    expected = (probs[0, 0, 1, 0] * torch.tensor([0.125, 0.375, 0.625, 0.875])).sum()
    torch.testing.assert_close(classifier.complete(x)[0, 0, 1, 0], expected, atol=0.05, rtol=0)
    assert classifier.complete(x)[0, 0, 0, 0] == x[0, 0, 0, 0]


def test_batches_make_no_difference(classifier, monkeypatch):
    x = torch.rand(7, 1, 2, 2).masked_fill(torch.rand(7, 1, 2, 2) < 0.4, NAN)
    whole = classifier.predict_proba(x), classifier.complete(x)
    monkeypatch.setattr("torchlgm.cli.classifier.MOST_EDGES", 2 * classifier.model.graph.edges)
    assert classifier.batch == 2
    torch.testing.assert_close((classifier.predict_proba(x), classifier.complete(x)), whole)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(3, 2, 2), r"samples shaped \(N, 1, 2, 2\), N > 0, got \(3, 2, 2\)"),
        (torch.zeros(0, 1, 2, 2), "N > 0"),
        (torch.full((1, 1, 2, 2), 1.5), "got 1.5 to 1.5; scale"),
        (torch.full((1, 1, 2, 2), -0.25), "got -0.25 to -0.25; scale"),
        (torch.full((1, 1, 2, 2), math.inf), "got inf to inf; scale"),
        (torch.ones(1, 1, 2, 2, dtype=torch.uint8), "floating point"),
    ],
)
def test_other_data_is_refused(classifier, x, message):
    for method in (classifier.predict_proba, classifier.complete):
        with pytest.raises((DataError, EvidenceError), match=message):
            method(x)


def test_classes_and_method_must_fit():
    model = LGM(zoo.dense(2, (3,), 2))
    with pytest.raises(DataError, match="one node with 3 labels"):
        Classifier(model, Inference(), ("a", "b", "c"))
    with pytest.raises(DataError, match="expected one of lbp, trw, mean_field"):
        Classifier(model, Inference("magic"), ("a", "b"))


class TestSaved:
    @pytest.mark.parametrize("name", ["lbp", "trw", "mean_field"])
    def test_comes_back_the_same(self, tmp_path, name):
        inference = Inference(name, "parallel", 3, damping=0.25)
        before = Classifier(LGM(zoo.dense(2, (3,), 2), init="paper"), inference, ("a", "b"), temperature=0.7)
        after = Classifier.load(before.save(tmp_path / "model"))
        assert (after.inference, after.classes, after.temperature) == (inference, ("a", "b"), 0.7)
        x = torch.tensor([[0.5, NAN]])
        assert torch.equal(before.predict_proba(x), after.predict_proba(x))

    def test_a_model_without_classes(self, tmp_path, classifier):
        save(classifier.model, tmp_path / "model")
        with pytest.raises(CheckpointError, match="not one with classes"):
            Classifier.load(tmp_path / "model")

    @pytest.mark.parametrize(
        ("field", "value"),
        [("classes", ["a"]), ("classes", 7), ("inference", {"name": "magic"}), ("input", "nowhere")],
    )
    def test_a_damaged_description(self, tmp_path, classifier, field, value):
        classifier.save(tmp_path / "model")
        head = json.loads((tmp_path / "model/model.json").read_text())
        head["card"][field] = value
        (tmp_path / "model/model.json").write_text(json.dumps(head))
        with pytest.raises(CheckpointError, match="the description of the classifier is damaged"):
            Classifier.load(tmp_path / "model")


def test_the_command_line_knows_the_methods_of_the_library():
    assert {name.value for name in MethodName} <= set(METHODS)
