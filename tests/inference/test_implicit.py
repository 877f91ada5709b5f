"""Gradients through the fixed point instead of through the iterations."""

import pytest
import torch

import torchlgm as lgm
from torchlgm.errors import InferenceError

LOOPY = lgm.Graph(
    (lgm.Layer("x", 3), lgm.Layer("h", 4), lgm.Layer("g", 3, 3), lgm.Layer("y", 1, 3)),
    (lgm.Dense("x", "h"), lgm.Dense("h", "g"), lgm.Dense("g", "y"), lgm.Dense("h", "y")),
)
RULES = {"lbp": lgm.lbp, "trw": lgm.trw, "mean field": lgm.mean_field}


def loss_and_gradients(make, gradient, tolerance=1e-13, **options):
    model = lgm.LGM(LOOPY, lgm.Init(0.5, 0.5), generator=torch.Generator().manual_seed(3))
    x = torch.tensor([[0.2, 1.0, torch.nan], [0.0, 0.7, 0.4], [torch.nan, torch.nan, 1.0]])
    beliefs = lgm.infer(model, {"x": x}, make(400, gradient=gradient, tolerance=tolerance, **options))
    loss = -beliefs["y"].log_probs[:, 0, 1].sum() - beliefs["x"].log_probs[0, 2, 0] + 0.1 * beliefs.log_z.sum()
    return loss, torch.autograd.grad(loss, list(model.parameters()))


@pytest.mark.parametrize("schedule", ["parallel", "sequential", "sweep"])
@pytest.mark.parametrize("rule", RULES)
def test_equals_the_unrolled_gradient_at_convergence(rule, schedule):
    loss, mine = loss_and_gradients(RULES[rule], "implicit", schedule=schedule, damping=0.2)
    same, unrolled = loss_and_gradients(RULES[rule], "unroll", schedule=schedule, damping=0.2)
    torch.testing.assert_close(loss, same)
    assert max(float(g.abs().max()) for g in unrolled) > 0.01
    torch.testing.assert_close(mine, unrolled, rtol=1e-7, atol=1e-9)


def test_a_second_derivative_is_refused():
    """It would have to go through the fixed point as well."""
    model = lgm.LGM(LOOPY, lgm.Init(0.5, 0.5), generator=torch.Generator().manual_seed(3))
    method = lgm.lbp(400, damping=0.2, tolerance=1e-10, gradient="implicit")
    loss = lgm.infer(model, {"x": torch.rand(2, 3)}, method)["y"].log_probs[:, 0, 1].sum()
    grads = torch.autograd.grad(loss, list(model.parameters()), create_graph=True, allow_unused=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        sum((g**2).sum() for g in grads if g is not None).backward()


def test_stores_one_iteration_however_many_are_needed():
    def stored(gradient, tolerance):
        sizes = []
        hooks = torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.numel()) or x, lambda x: x)
        with hooks:
            loss_and_gradients(lgm.trw, gradient, tolerance, damping=0.5)
        return sum(sizes)

    assert stored("unroll", 1e-12) > 3 * stored("unroll", 1e-3)
    assert stored("implicit", 1e-12) == stored("implicit", 1e-3)


def test_refuses_without_a_tolerance():
    with pytest.raises(InferenceError, match="set a tolerance"):
        lgm.lbp(5, gradient="implicit")


def test_refuses_without_convergence():
    model = lgm.LGM(LOOPY, init="paper")
    with pytest.raises(InferenceError, match=r"2 of 2 samples have not converged within 2 iterations"):
        lgm.infer(model, {"x": torch.rand(2, 3)}, lgm.lbp(2, gradient="implicit", tolerance=1e-9))


def test_without_gradients_it_is_plain_inference():
    model = lgm.LGM(LOOPY, lgm.Init(0.5))
    x = {"x": torch.rand(2, 3)}
    with torch.no_grad():
        mine = lgm.infer(model, x, lgm.lbp(100, gradient="implicit", tolerance=1e-9))
        plain = lgm.infer(model, x, lgm.lbp(100, tolerance=1e-9))
    assert torch.equal(mine["y"].probs, plain["y"].probs)
