import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchlgm.data import hide, requantise, smooth_labels, threshold
from torchlgm.errors import DataError

NAN = math.nan


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_threshold():
    x = torch.tensor([0.0, 0.5, 0.6, 1.0, NAN])
    assert threshold(x).nan_to_num(9).tolist() == [0, 0, 1, 1, 9]
    assert threshold(x, at=0.0).nan_to_num(9).tolist() == [0, 1, 1, 1, 9]
    assert threshold(x).dtype == x.dtype


@pytest.mark.parametrize("bits", range(1, 9))
def test_requantise_keeps_the_leading_bits_of_a_byte(bits):
    byte = torch.arange(256)
    labels = requantise(byte.float() / 255, 2**bits)
    assert labels.dtype == torch.int64
    assert labels.equal(byte >> (8 - bits))


def test_requantise_keeps_missing():
    labels = requantise(torch.tensor([0.0, NAN, 1.0]), 4)
    assert labels.nan_to_num(9).tolist() == [0, 9, 3]


@pytest.mark.parametrize("colours", [0, 1, 3, -2])
def test_requantise_refuses_other_numbers_of_colours(colours):
    with pytest.raises(DataError, match="2, 4, 8"):
        requantise(torch.zeros(1), colours)


def test_requantise_refuses_unscaled_values():
    with pytest.raises(DataError, match="got 0 to 16"):
        requantise(torch.tensor([0.0, NAN, 16.0]), 4)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(["random", "block", "band"]),
    st.integers(1, 3),
    st.integers(1, 9),
    st.integers(1, 9),
    st.floats(0, 1),
    st.integers(0, 1000),
)
def test_hide_shapes(like, channels, height, width, visible, seed):
    x = torch.rand(4, channels, height, width, generator=seeded())
    hidden = hide(x, visible, seeded(seed), like).isnan()
    assert hidden.equal(hidden[:, :1].expand_as(hidden))
    assert hide(x, 1.0, seeded(seed), like).equal(x)
    assert hide(x, 0.0, seeded(seed), like).isnan().all()
    if like != "random":
        rows, columns = hidden[:, 0].any(2), hidden[:, 0].any(1)
        assert hidden[:, 0].equal(rows[:, :, None] & columns[:, None, :])
        for run in (*rows, *columns):
            places = run.nonzero().flatten()
            assert len(places) == 0 or len(places) == places[-1] - places[0] + 1
    if like == "band":
        full = (rows.all(1) & columns.any(1)) | (columns.all(1) & rows.any(1))
        assert (full | ~rows.any(1)).all()


@pytest.mark.parametrize("like", ["random", "block", "band"])
@pytest.mark.parametrize("visible", [0.15, 0.5, 0.9])
def test_hide_keeps_the_expected_share(like, visible):
    x = torch.zeros(4000, 1, 12, 10)
    seen = (~hide(x, visible, seeded(1), like).isnan()).float().mean((1, 2, 3))
    error = seen.std() / math.sqrt(len(x))
    assert abs(seen.mean() - visible) < 4 * error + 1e-6


@pytest.mark.parametrize("like", ["random", "block", "band"])
def test_every_pixel_can_be_hidden(like):
    hidden = hide(torch.zeros(2000, 1, 7, 5), 0.6, seeded(), like).isnan().float().mean((0, 1))
    assert hidden.min() > 0.05
    assert hidden.flip(0, 1).allclose(hidden, atol=0.08)


def test_hide_per_sample_and_any_shape():
    x = torch.rand(3, 50, generator=seeded())
    hidden = hide(x, torch.tensor([1.0, 0.0, 0.5]), seeded()).isnan()
    assert hidden.sum(1)[:2].tolist() == [0, 50]
    assert 0 < hidden[2].sum() < 50


def test_hide_leaves_its_input_and_what_was_missing():
    x = torch.tensor([[0.2, NAN], [NAN, 0.4]])
    before = x.clone()
    hidden = hide(x, 0.5, seeded(3))
    assert x.nan_to_num(9).equal(before.nan_to_num(9))
    assert hidden[x.isnan()].isnan().all()
    assert hidden[~hidden.isnan()].tolist() == x[~hidden.isnan()].tolist()


def test_hide_depends_on_the_generator_alone():
    x = torch.zeros(5, 1, 8, 8)
    first = hide(x, 0.5, seeded(1), "block").isnan()
    torch.manual_seed(99)
    assert first.equal(hide(x, 0.5, seeded(1), "block").isnan())
    assert not first.equal(hide(x, 0.5, seeded(2), "block").isnan())


def test_arrays_become_tensors():
    x, y = torch.rand(3, 4, generator=seeded()), torch.tensor([0, 2, 1])
    assert hide(x.numpy(), 0.5, seeded()).isnan().equal(hide(x, 0.5, seeded()).isnan())
    assert threshold(x.numpy()).equal(threshold(x))
    assert requantise(x.numpy(), 4).equal(requantise(x, 4))
    assert smooth_labels(y.numpy(), 3, 0.1).equal(smooth_labels(y, 3, 0.1))


def test_integers_cannot_be_hidden():
    for x in (torch.ones(2, 3).long(), np.ones((2, 3), dtype=bool)):
        with pytest.raises(DataError, match=r"expected floats.*pass x\.float"):
            hide(x, 0.5, seeded())


@pytest.mark.parametrize(
    ("shape", "visible", "like", "message"),
    [
        ((2, 3), 1.2, "random", r"shares in \[0, 1\]"),
        ((2, 3), NAN, "random", r"shares in \[0, 1\]"),
        ((2, 3), torch.tensor([0.5] * 3), "random", "one visible share or 2"),
        ((2, 3), 0.5, "block", r"needs images \(N, C, H, W\)"),
        ((2, 3), 0.5, "stripe", "'stripe'"),
    ],
)
def test_hide_refuses(shape, visible, like, message):
    with pytest.raises(DataError, match=message):
        hide(torch.zeros(shape), visible, seeded(), like)


def test_smooth_labels_as_in_the_paper():
    probs = smooth_labels(torch.tensor([3, 0]), 10, 0.1)
    expected = torch.full((2, 10), 0.01)
    expected[0, 3] = expected[1, 0] = 1 - 9 * 0.1 / 10
    assert probs.allclose(expected)
    assert probs.sum(1).allclose(torch.ones(2))
    assert smooth_labels(torch.tensor([1]), 3, 0.0).tolist() == [[0, 1, 0]]


@pytest.mark.parametrize(("label", "epsilon"), [(3, 0.1), (-1, 0.1), (0, 1.5), (0, -0.1)])
def test_smooth_labels_refuses(label, epsilon):
    with pytest.raises(DataError, match=r"expected (labels|a number in \[0, 1\])"):
        smooth_labels(torch.tensor([label]), 3, epsilon)
