"""What to observe next, rows drawn from a network, and its picture."""

import numpy as np
import pytest
import torch

from helpers.networks import hard, joint_of
from torchlgm import viz
from torchlgm.errors import DataError, EvidenceError
from torchlgm.networks import Network, acquire, network_of

LABELS = (2, 3, 2, 2)
SCOPES = [(0,), (1, 0), (2, 0, 1), (3, 2)]


def bayesian(seed=0):
    """Each variable is the child of its scope's first."""
    rng = np.random.default_rng(seed)
    factors = []
    for child, *parents in SCOPES:
        table = rng.dirichlet(np.ones(LABELS[child]), [LABELS[v] for v in parents])
        factors.append(((child, *parents), -np.log(np.moveaxis(table, -1, 0))))
    return network_of(LABELS, factors, [scope[0] for scope in SCOPES])


def test_the_gain_is_the_expected_fall_of_entropy(backend):
    network = bayesian()
    joint, codes = joint_of(LABELS, network.factors), hard(LABELS, 6, 1)
    codes[:, 0] = -1
    gains = acquire(network, codes, 0)
    assert list(gains) == [1, 2, 3]
    entropy = lambda p: -np.sum(p * np.log(np.where(p > 0, p, 1)))  # noqa: E731
    for row, labelling in enumerate(codes):
        given = joint[tuple(slice(None) if x < 0 else slice(x, x + 1) for x in labelling)]
        given = given / given.sum()
        for v in (1, 2, 3):
            table = given.sum(tuple(u for u in (1, 2, 3) if u != v))
            expected = entropy(table.sum(1)) - sum(entropy(c / c.sum()) * c.sum() for c in table.T if c.sum() > 0)
            assert gains[v][row].item() == pytest.approx(expected, abs=1e-9)
            assert labelling[v] < 0 or gains[v][row] == pytest.approx(0, abs=1e-9)
    with pytest.raises(EvidenceError, match="leave it out"):
        acquire(network, codes, 0, [0, 1])


def test_rows_are_drawn_as_often_as_they_are_probable():
    network = bayesian()
    rows = network.sample(20_000, seed=3)
    joint = joint_of(LABELS, network.factors)
    counts = np.zeros(LABELS)
    np.add.at(counts, tuple(rows.T), 1)
    assert np.abs(counts / len(rows) - joint).max() < 0.015
    assert (rows == network.sample(20_000, seed=3)).all()
    with pytest.raises(DataError, match="only rows of Bayesian networks"):
        network_of([2], [((0,), np.zeros(2))]).sample(3)


def test_the_picture_has_every_variable_and_what_is_believed():
    rain, wet = -np.log([0.8, 0.2]), -np.log([[0.9, 0.1], [0.25, 0.75]])
    network = Network({"$rain": ["no", "yes"], "grass": ["dry", "wet"]}, [((0,), rain), ((0, 1), wet)], [0, 1])
    figure = viz.draw_network(network, network.posteriors({"grass": ["dry", "wet"]}), row=1)
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.texts if text.get_text()] == ["$rain", "yes 65 %", "grass", "wet 100 %"]
    figure.draw_without_rendering()
    assert len(viz.draw_network(network).axes[0].patches) == 2
    with pytest.raises(DataError, match="expected a Bayesian network"):
        viz.draw_network(network_of([2], [((0,), torch.zeros(2).numpy())]))
