"""The graph of a model for given data, and the neural network of the same shape."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from torchlgm import zoo
from torchlgm.baselines import network
from torchlgm.cli.classifier import Classifier, Inference
from torchlgm.cli.config import ImageConfig
from torchlgm.data import Data
from torchlgm.errors import DataError, GraphError
from torchlgm.learn import start_from_data
from torchlgm.model import LGM, Init
from torchlgm.spec import Graph

_WEAK = Init(table=0.1, scale="balanced")


def make_graph(config: ImageConfig, shape: tuple[int, ...], classes: int) -> Graph:
    if config.model == "dense":
        return zoo.dense(shape, (config.hidden,), classes, config.colours)
    return zoo.windows(
        config.model,
        _image_shape(config, shape),
        **_windows_for(shape)._asdict(),
        hidden=config.hidden,
        classes=classes,
        input_labels=config.colours,
    )


def make_classifier(config: ImageConfig, train: Data, seed: int) -> Classifier:
    """A classifier that has learned nothing yet but the data's mean."""
    graph = make_graph(config, tuple(train.inputs.shape[1:]), len(train.classes))
    iterations = config.iterations_for(len(graph.connections))
    inference = Inference(config.method, config.schedule, iterations, config.damping)
    model = start_weak(graph, config.method, seed)
    classifier = Classifier(model, inference, train.classes)
    inputs = train.inputs
    if config.colours > 2:
        inputs = (inputs * config.colours).floor().clamp(max=config.colours - 1)
    start_from_data(model, classifier.input, inputs)
    return classifier


def start_weak(graph: Graph, method: str, seed: int) -> LGM:
    """Energies so weak that beliefs about missing inputs start near the data's mean.

    They are N(0, 1 / edges of a node of the right layer); for tree-reweighted inference, which would hardly pass them
    on, weakly balanced.
    """
    generator = torch.Generator().manual_seed(seed)
    if method == "trw":
        return LGM(graph, _WEAK, generator=generator)
    model = LGM(graph, "zero", scale="energy")
    with torch.no_grad():
        for connection in graph.connections:
            left, right = graph.ends(connection)
            fan_in = connection.count_edges(left, right) / right.nodes
            model.table[connection.name].normal_(0, fan_in**-0.5, generator=generator)
    return model


def make_network(config: ImageConfig, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    """A network of the same shape that has learned nothing yet."""
    geometry: dict[str, Sequence] = {}
    if config.model != "dense":
        windows = _windows_for(_image_shape(config, shape))
        geometry = {"kernels": windows.kernels, "strides": windows.strides, "padding": ((windows.padding, 0), (0, 0))}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return network(config.model, shape, classes, config.hidden, **geometry)  # pyright: ignore


def _windows_for(shape: tuple[int, ...]) -> zoo.Windows:
    try:
        return zoo.windows_for(*shape[1:])
    except GraphError as error:
        raise DataError(f"{error}; use --model dense") from error


def _image_shape(config: ImageConfig, shape: tuple[int, ...]) -> tuple[int, int, int]:
    if len(shape) != 3:
        raise DataError(f"--model {config.model} takes images, but a sample is shaped {shape}; use --model dense")
    return shape
