"""What labels cost: one kernel against plain PyTorch."""

import pytest
import torch
from torch.func import vmap
from torch.testing import assert_close

from helpers.kernel_cases import (
    DEVICE,
    EXACT,
    KERNELS,
    MARK,
    assert_same,
    cases,
    numbers,
    only_triton,
)
from torchlgm.ops.backend import backend
from torchlgm.ops.nll import label_nll

pytestmark = MARK


# What labels cost


def cost_and_gradients(name, inflow, labels, unary=None):
    unary = torch.zeros_like(inflow[:1]) if unary is None else unary
    given = [x.detach().clone().requires_grad_() for x in (inflow, unary)]
    with backend(name):
        cost = label_nll(*given, labels)
    found = torch.autograd.grad(2 * cost, given)
    return {"cost": cost, "gradient of inflow": found[0], "gradient of unary": found[1]}


@only_triton
@cases(
    ("shape", "k"),
    [((3, 1), 9), ((65, 2), 1), ((300, 1), 9)],
    [((1, 1), 9), ((20, 1), 9), ((4096, 1), 9), ((130, 3), 2)],
)
def test_cost_of_labels(shape, k):
    inflow, unary = 3 * numbers(*shape, k), numbers(1, shape[1], k, seed=1)
    labels = torch.arange(1, shape[0] * shape[1] + 1, device=DEVICE).reshape(shape) % (k + 2) - 1  # -1 is unknown
    turned = inflow.permute(1, 2, 0).contiguous().permute(2, 0, 1)
    for given in ((inflow, labels, unary), (turned, labels, unary), (inflow, labels, numbers(*shape, k, seed=2))):
        assert_same(*(cost_and_gradients(name, *given) for name in (KERNELS, "eager")), **EXACT)


@only_triton
def test_cost_of_labels_without_a_gradient_for_all():
    given, labels = [numbers(3, 1, 2), numbers(1, 1, 2, seed=1)], torch.tensor([[0], [2], [1]], device=DEVICE)
    both = cost_and_gradients("eager", given[0], labels, given[1])
    for i, name in enumerate(["gradient of inflow", "gradient of unary"]):
        wanted = [x.clone().requires_grad_(i == j) for j, x in enumerate(given)]
        with backend(KERNELS):
            (found,) = torch.autograd.grad(2 * label_nll(*wanted, labels), wanted[i])
        assert_close(found, both[name], **EXACT)


@only_triton
def test_cost_of_labels_far_apart():
    belief = torch.tensor([[[800.0, -800.0]], [[-800.0, 0.0]], [[-1e30, 3.0]]], device=DEVICE)
    labels = torch.tensor([[0], [1], [2]], device=DEVICE)
    found = cost_and_gradients(KERNELS, belief, labels)
    assert_same(found, cost_and_gradients("eager", belief, labels), **EXACT)
    assert found["cost"].isfinite()


@only_triton
def test_labels_without_a_sign():
    belief, labels = numbers(3, 1, 4), torch.tensor([[0], [4], [2]], device=DEVICE)
    assert_same(*(cost_and_gradients(KERNELS, belief, labels.to(t)) for t in (torch.uint8, torch.long)), rtol=0, atol=0)


@only_triton
def test_a_label_that_does_not_exist_costs_no_number():
    belief = numbers(2, 1, 2)
    assert cost_and_gradients(KERNELS, belief, torch.tensor([[0], [3]], device=DEVICE))["cost"].isnan()


@only_triton
@pytest.mark.parametrize("axis", [None, 0])
@pytest.mark.parametrize("times", [1, 400])  # in one block of samples, and in several
def test_cost_of_labels_under_several_models(axis, times):
    inflow, unary = numbers(2, 3 * times, 1, 4).requires_grad_(), numbers(2, 1, 1, 4).requires_grad_()
    labels = torch.tensor([[[0], [4], [2]], [[1], [-1], [3]]], device=DEVICE).repeat(1, times, 1)
    labels = labels[0] if axis is None else labels
    with backend(KERNELS):
        mine = vmap(label_nll, (0, 0, axis))(inflow, unary, labels)
    each = [label_nll(inflow[i], unary[i], labels if axis is None else labels[i]) for i in range(2)]

    def found(cost):
        grads = torch.autograd.grad(cost @ numbers(2), [inflow, unary])
        return {"cost": cost, "gradient of inflow": grads[0], "gradient of unary": grads[1]}

    assert_same(found(mine), found(torch.stack(each)), **EXACT)
