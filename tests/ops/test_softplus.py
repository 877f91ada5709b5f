"""Sums of softplus: compiled code and plain PyTorch agree with the formula, gradients included."""

import pytest
import torch

import torchlgm as lgm
from torchlgm.ops.backend import KERNELS
from torchlgm.ops.softplus import softplus_sum


def formula(a, w):
    return torch.nn.functional.softplus(a.unsqueeze(2) + w.unsqueeze(-1), threshold=40).sum(1)


def numbers(size, scale, dtype):
    generator = torch.Generator().manual_seed(0)
    models, hidden, samples, labels = size
    a = torch.randn(models, hidden, samples, generator=generator, dtype=dtype) * scale
    w = torch.randn(models, hidden, labels, generator=generator, dtype=dtype) * scale
    return a.requires_grad_(True), w.requires_grad_(True)


def test_gradients():
    assert torch.autograd.gradcheck(softplus_sum, numbers((2, 3, 4, 5), 2.0, torch.float64))


@pytest.mark.parametrize("backend", ["native", "eager"])
@pytest.mark.parametrize(("size", "scale"), [((1, 1, 1, 1), 1.0), ((3, 70, 37, 3), 3.0), ((2, 130, 128, 2), 40.0)])
def test_float32_is_as_good_as_its_numbers(backend, size, scale):
    a, w = numbers(size, scale, torch.float32)
    if backend == "native" and KERNELS["native"].lacking(a) is not None:
        pytest.skip("no compiler")
    with lgm.backend(backend):
        found = softplus_sum(a, w)
        outer = torch.linspace(-1, 1, found.numel()).view_as(found)
        found.backward(outer)
    b, v = (x.detach().double().requires_grad_(True) for x in (a, w))
    expected = formula(b, v)
    expected.backward(outer.double())
    torch.testing.assert_close(found.double(), expected, rtol=2e-6, atol=2e-6)
    for got, want in ((a.grad, b.grad), (w.grad, v.grad)):
        torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("backend", ["native", "eager"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_finite_stays_so(backend, bad):
    a, w = (x.detach() for x in numbers((2, 70, 37, 3), 1.0, torch.float32))
    if backend == "native" and KERNELS["native"].lacking(a) is not None:
        pytest.skip("no compiler")
    a[1, 3, 5] = bad
    with lgm.backend(backend):
        found = softplus_sum(a, w)
    wrong = torch.zeros_like(found, dtype=torch.bool)
    wrong[1, :, 5] = True
    assert torch.equal(~found.isfinite(), wrong)
