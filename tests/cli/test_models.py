"""Graphs for given data, and networks of the same shape."""

import pytest
import torch

from torchlgm.cli.config import Config
from torchlgm.cli.models import make_classifier, make_graph, make_network
from torchlgm.data import Data
from torchlgm.errors import DataError
from torchlgm.spec.zoo import windows_for


def test_the_paper_on_its_images():
    assert windows_for(28, 28) == ((5, 5), (2, 2), 1)
    graph = make_graph(Config(model="local").for_images(), (1, 28, 28), 10)
    assert [layer.sizes for layer in graph.layers] == [(1, 28, 28), (6, 13, 13), (16, 5, 5), (100,), (1,)]


@pytest.mark.parametrize("model", ["dense", "conv", "local"])
@pytest.mark.parametrize("shape", [(1, 3, 3), (1, 8, 8), (3, 9, 13), (1, 27, 21), (1, 32, 32)])
def test_any_image_has_a_graph_without_lonely_pixels_and_a_network(model, shape):
    config = Config(model=model, hidden=5)
    graph = make_graph(config, shape, 4)  # a pixel without an edge would warn
    assert graph.layers[0].sizes == shape
    data = Data(torch.rand(4, *shape, dtype=torch.float32), torch.arange(4), tuple("abcd"))
    network = make_network(config, tuple(data.inputs.shape[1:]), len(data.classes), 0).double()
    assert network(data.inputs.double()).shape == (4, 4)


def test_images_that_are_too_small_or_none():
    with pytest.raises(DataError, match="1x9 pixels are too small for windows; use --model dense"):
        make_graph(Config(model="conv"), (1, 1, 9), 2)
    with pytest.raises(DataError, match=r"takes images, but a sample is shaped \(7,\)"):
        make_graph(Config(model="local"), (7,), 2)


@pytest.mark.parametrize("colours", [2, 4])
def test_inputs_start_at_the_mean_of_the_data(colours):
    data = Data(torch.rand(50, 6, dtype=torch.float32) ** 2, torch.arange(50) % 2, ("a", "b"))
    classifier = make_classifier(Config(colours=colours).for_images(), data, seed=0)
    unary = classifier.model.unary["inputs"]
    believed = torch.softmax(torch.nn.functional.pad(-unary, (1, 0)), -1)
    values = torch.tensor([0.0, 1.0]) if colours == 2 else (torch.arange(4) + 0.5) / 4
    torch.testing.assert_close((believed * values).sum(-1), data.inputs.mean(0).double(), atol=0.05, rtol=0)


def test_seeds():
    data = Data(torch.rand(20, 6, dtype=torch.float32), torch.arange(20) % 2, ("a", "b"))
    tables = [make_classifier(Config().for_images(), data, s).model.table["inputs-hidden"] for s in (0, 0, 1)]
    assert torch.equal(tables[0], tables[1])
    assert not torch.equal(tables[0], tables[2])
    shape, classes = tuple(data.inputs.shape[1:]), len(data.classes)
    weights = [next(make_network(Config().for_images(), shape, classes, s).parameters()) for s in (0, 0, 1)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
