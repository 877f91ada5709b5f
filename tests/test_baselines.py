import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from torchlgm.baselines import FillMissing, LocallyConnected2d, network, windows
from torchlgm.errors import DataError, GraphError

pytestmark = pytest.mark.usefixtures("single_precision")

SMALL = {"input_shape": (1, 8, 8), "kernels": (3, 3), "strides": (1, 1), "padding": ((0, 0), (0, 0))}


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("dense", 784 * 100 + 100 + 1010),
        ("conv", 6 * 25 + 6 + 16 * 150 + 16 + 400 * 100 + 100 + 1010),
        ("local", 169 * 6 * 26 + 25 * 16 * 151 + 400 * 100 + 100 + 1010),
    ],
)
def test_parameters_of_the_papers_networks(kind, expected):
    assert count(network(kind)) == expected


@pytest.mark.parametrize("kind", ["conv", "local"])
def test_image_sizes_28_13_5(kind):
    x, sizes = torch.rand(2, 1, 28, 28), []
    for module in network(kind):
        x = module(x)
        if isinstance(module, nn.Conv2d | LocallyConnected2d):
            sizes.append(tuple(x.shape[1:]))
    assert sizes == [(6, 13, 13), (16, 5, 5)]
    assert x.shape == (2, 10)


@pytest.mark.parametrize("kind", ["dense", "conv", "local"])
@pytest.mark.parametrize("mask_channel", [False, True])
@pytest.mark.parametrize("activation", ["sigmoid", "relu"])
def test_missing_inputs_give_finite_logits_and_gradients(kind, mask_channel, activation):
    torch.manual_seed(0)
    model = network(kind, classes=4, hidden=7, activation=activation, mask_channel=mask_channel, **SMALL)
    x = torch.rand(5, 1, 8, 8)
    x[torch.rand_like(x) < 0.5] = math.nan
    logits = model(x)
    assert logits.shape == (5, 4)
    assert logits.isfinite().all()
    F.cross_entropy(logits, torch.tensor([0, 1, 2, 3, 0])).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in model.parameters())


@pytest.mark.parametrize("kind", ["dense", "conv", "local"])
def test_missing_is_half_and_only_the_mask_tells(kind):
    torch.manual_seed(0)
    x = torch.rand(2, 1, 8, 8)
    holed, filled = x.clone(), x.clone()
    holed[:, :, 2:5, 2:5], filled[:, :, 2:5, 2:5] = math.nan, 0.5
    plain, masked = network(kind, **SMALL), network(kind, mask_channel=True, **SMALL)
    assert plain(holed).equal(plain(filled))
    assert not masked(holed).allclose(masked(filled))


def test_padding_is_before_only():
    model = network("conv")
    assert model[1](torch.ones(1, 1, 2, 2)).tolist() == [[[[0, 0, 0], [0, 1, 1], [0, 1, 1]]]]


def test_local_with_equal_weights_is_a_convolution():
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 4, 3, stride=2)
    local = LocallyConnected2d(3, 4, (9, 8), kernel=3, stride=2)
    with torch.no_grad():
        local.weight.copy_(conv.weight.flatten(1).expand_as(local.weight))
        local.bias.copy_(conv.bias[:, None].expand_as(local.bias))
    x = torch.rand(2, 3, 9, 8)
    assert local(x).shape == (2, 4, 4, 3)
    assert local(x).allclose(conv(x), atol=1e-6)


@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (3, 2), (2, 3), (5, 1)])
def test_windows_are_those_of_unfold(kernel, stride):
    x = torch.randn(2, 3, 7, 6)
    torch.testing.assert_close(windows(x, kernel, stride), F.unfold(x, kernel, stride=stride), rtol=0, atol=0)


def test_local_weights_act_on_their_own_position():
    torch.manual_seed(0)
    local = LocallyConnected2d(1, 2, (5, 5), kernel=3, stride=1)
    x = torch.rand(1, 1, 5, 5)
    before = local(x)
    with torch.no_grad():
        local.weight[4] += 1
    changed = (local(x) != before)[0].any(0)
    assert changed.nonzero().tolist() == [[1, 1]]


def test_local_starts_like_a_convolution():
    torch.manual_seed(0)
    local = LocallyConnected2d(4, 8, (20, 20), kernel=5)
    conv = nn.Conv2d(4, 64, 5)
    assert local.weight.abs().max() <= 0.1
    assert local.weight.std().item() == pytest.approx(conv.weight.std().item(), rel=0.05)


def test_flat_inputs():
    model = network("dense", input_shape=(6,), classes=3, mask_channel=True)
    assert model[2].in_features == 12
    assert model(torch.full((2, 6), math.nan)).shape == (2, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "conv", "input_shape": (1, 8, 8)}, "kernel of 5 does not fit an image side of 3"),
        ({"kind": "local", "input_shape": (1, 8, 3)}, "kernel of 5 does not fit an image side of 4"),
        ({"kind": "conv", "input_shape": (64,)}, r"\(channels, height, width\)"),
        ({"kind": "conv", "channels": (6, 16, 32)}, "got 3, 2, 2, 2"),
        ({"kind": "recurrent"}, "'recurrent'"),
        ({"activation": "tanh"}, "'tanh'"),
        ({"hidden": 0}, "whole numbers >= 1"),
    ],
)
def test_impossible_networks(options, message):
    with pytest.raises(GraphError, match=message):
        network(**options)


def test_wrong_input_shape():
    with pytest.raises(DataError, match=r"\(N, 1, 28, 28\), got \(2, 1, 8, 8\)"):
        network("dense")(torch.zeros(2, 1, 8, 8))


def test_mask_channels_are_one_where_observed():
    filled = FillMissing((2, 1, 2), mask_channel=True)(torch.tensor([[[[0.1, math.nan]], [[0.3, 0.4]]]]))
    assert filled.flatten().tolist() == pytest.approx([0.1, 0.5, 0.3, 0.4, 1, 0, 1, 1])
