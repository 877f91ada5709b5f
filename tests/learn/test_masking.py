"""Which entries training hides."""

import pytest
import torch

import torchlgm as lgm
from torchlgm import learn
from torchlgm.errors import TrainingError
from torchlgm.learn.masking import RandomMask, mask_for


def hidden(visible, blocks, samples=400):
    return RandomMask(visible, blocks)(torch.zeros(samples, 2, 20, 20), torch.Generator().manual_seed(0)).isnan()


def is_rectangle(mask):
    rows, columns = mask.any(1), mask.any(0)
    return bool((mask == rows[:, None] & columns).all()) and all(
        int(side.int().diff().abs().sum()) <= 2 for side in (rows, columns)
    )


def test_blocks_are_rectangles_of_the_share_that_is_hidden():
    masks = hidden((0.5, 0.5), 1.0)
    assert torch.equal(masks[:, 0], masks[:, 1]), "channels of a pixel go together"
    assert all(map(is_rectangle, masks[:, 0]))
    assert abs(masks.float().mean().item() - 0.5) < 0.02
    halves = [m for m in masks[:, 0] if int(m.sum()) == 200 and (m[:, 0].all() or m[0].all() or m[-1].all())]
    assert len(halves) > 50, "halves and bands are among them"
    assert any(m.any() and not (m[0] | m[-1]).any() and not (m[:, 0] | m[:, -1]).any() for m in masks[:, 0])


def test_a_share_of_the_samples_hides_blocks_and_the_others_are_scattered():
    masks = hidden((0.2, 0.8), 0.25)[:, 0]
    rectangles = sum(map(is_rectangle, masks))
    assert 0.18 < rectangles / len(masks) < 0.32
    shares = masks.float().mean((1, 2))
    assert shares.min() < 0.25
    assert shares.max() > 0.75


def test_without_blocks_the_same_entries_are_hidden_as_ever():
    x = torch.zeros(5, 1, 4, 4)
    generator = torch.Generator().manual_seed(3)
    share = 0.3 + 0.5 * torch.rand(5, generator=generator)
    expected = torch.rand(5, 1, 4, 4, generator=generator) >= share.reshape(5, 1, 1, 1)
    assert torch.equal(RandomMask((0.3, 0.8))(x, torch.Generator().manual_seed(3)).isnan(), expected)


def test_what_cannot_be():
    with pytest.raises(TrainingError, match=r"blocks=2; expected the share of samples that hide a block, 0 to 1"):
        learn.Settings(blocks=2)
    with pytest.raises(TrainingError, match=r"blocks=0.5, but visible=None hides nothing; give the shares"):
        mask_for(learn.Settings(blocks=0.5, visible=None))
    with pytest.raises(TrainingError, match=r"rectangles of images \(channels, height, width\).* shaped \(7,\)"):
        RandomMask((0.5, 0.5), 1.0)(torch.zeros(3, 7), None)


def test_a_model_trains_with_blocks(single_precision):
    x, y = torch.rand(20, 1, 6, 6), torch.arange(20) % 2
    posterior = lgm.Posterior(lgm.LGM(lgm.zoo.dense((1, 6, 6), [4], 2)), lgm.lbp(1))
    settings = learn.Settings(epochs=1, visible=(0.3, 1.0), blocks=0.5)
    result = lgm.fit(posterior, (x, y), (x, y), learn.JointLikelihood(), settings, reporters=[])
    assert len(result.history) == 1
