"""Warnings name the line of the user's program that led to them."""

import pytest

import torchlgm as lgm
from torchlgm.errors import DataWarning, GraphWarning, warn


def test_a_warning_from_here():
    with pytest.warns(DataWarning, match="odd") as caught:
        warn("odd", DataWarning)
    assert caught[0].filename == __file__


def test_a_warning_from_within_the_package():
    layers = [lgm.Layer("a", (1, 6, 6)), lgm.Layer("b", (1, 2, 2))]
    with pytest.warns(GraphWarning, match="have no edge") as caught:
        lgm.Graph(layers, [lgm.Conv("a", "b", kernel=2, stride=3)])
    assert caught[0].filename == __file__
