"""What hidden nodes respond to, for every kind of connection."""

import pytest
import torch

from torchlgm import LGM, Graph, Layer, Sparse, zoo
from torchlgm.cli.classifier import Classifier, Inference
from torchlgm.cli.pictures import hidden_fields

CLASSES = ("a", "b")


def classifier(graph):
    return Classifier(LGM(graph, init="paper"), Inference(), CLASSES)


def sorted_by_size(maps):
    return maps[maps.flatten(1).norm(dim=1).argsort(descending=True)]


def test_dense_is_minus_the_table_as_images_those_that_say_most_first():
    made = classifier(zoo.dense((1, 3, 4), (5,), 2))
    table = made.model.table["inputs-hidden"].detach().reshape(3, 4, 5)
    speaks = -made.model.energies("hidden-classes").detach()[:, 0, 0, 0]  # for the second class against the first
    order = speaks.abs().argsort(descending=True)
    maps, titles = hidden_fields(made)
    torch.testing.assert_close(maps, -table.permute(2, 0, 1)[order])
    assert titles == ["for b" if speaks[node] > 0 else "for a" for node in order]


def test_conv_is_minus_the_kernel():
    made = classifier(zoo.windows("conv", (1, 8, 8), (3, 2), (3, 3), (1, 2), hidden=4, classes=2))
    table = made.model.table["inputs-edges"].detach().reshape(3, 3, 3)
    torch.testing.assert_close(hidden_fields(made)[0], sorted_by_size(-table))


def test_local_is_minus_the_kernel_in_the_middle():
    made = classifier(zoo.windows("local", (1, 8, 8), (3, 2), (3, 3), (1, 2), hidden=4, classes=2))
    table = made.model.table["inputs-edges"].detach()[0, :, :, :, 3, 3, 0, 0]  # of 7x7 positions
    torch.testing.assert_close(hidden_fields(made)[0], sorted_by_size(-table))


def test_colours_are_averaged():
    made = classifier(zoo.dense((3, 2, 2), (5,), 2))
    table = made.model.table["inputs-hidden"].detach().reshape(3, 2, 2, 5)
    maps, _ = hidden_fields(made)
    torch.testing.assert_close(sorted_by_size(maps), sorted_by_size(-table.mean(0).permute(2, 0, 1)))


@pytest.mark.filterwarnings("ignore::torchlgm.errors.GraphWarning")
def test_other_connections_have_no_images():
    layers = (Layer("inputs", (1, 2, 2)), Layer("classes", 1))
    assert hidden_fields(classifier(Graph(layers, (Sparse("inputs", "classes", ((0, 0), (3, 0))),)))) is None
