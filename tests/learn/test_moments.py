"""The analytic gradient: exact where inference is, and how far off where it is not."""

import pytest
import torch
from torch import Tensor

from helpers.problems import BY_NAME, PROBLEMS, Problem, model_of
from torchlgm import LGM, Graph, Init, Posterior, exact, lbp, mean_field, solve, trw, zoo
from torchlgm.errors import TrainingError
from torchlgm.learn import Likelihood, MomentMatching, Objective

CONVERGED = lbp(200, "sweep", tolerance=1e-13)
TREES = ("path", "tree", "local-tree", "conv-tree", "star")
SINGLE = [p for p in PROBLEMS if p.graph.layers[-1].nodes == 1 and p.observe == ""]


MOMENTS, LIKELIHOOD = MomentMatching(), Likelihood()


def _gradient(objective: Objective, posterior: Posterior, x: Tensor, y: Tensor) -> Tensor:
    posterior.zero_grad()
    objective.loss(posterior, x, y).backward()
    return torch.cat(
        [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in posterior.parameters()]
    )


def _data(graph: Graph, missing: bool = False) -> tuple[Tensor, Tensor]:
    first, last = graph.layers[0], graph.layers[-1]
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(6, *first.sizes, generator=generator)
    if missing:
        x[torch.rand(x.shape, generator=generator) < 0.4] = torch.nan
    return x, torch.randint(last.labels, (6,), generator=generator)


def _posterior(problem: Problem, method) -> Posterior:
    return Posterior(model_of(problem), method, target=problem.graph.layers[-1].name)


def _difference(a: Tensor, b: Tensor) -> float:
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("missing", [False, True], ids=["seen", "missing"])
@pytest.mark.parametrize("problem", SINGLE, ids=lambda p: p.name)
def test_exact_moments_are_the_gradient_of_the_exact_likelihood(problem: Problem, missing: bool):
    posterior, (x, y) = _posterior(problem, exact()), _data(problem.graph, missing)
    gradient = _gradient(LIKELIHOOD, posterior, x, y)
    assert _difference(_gradient(MOMENTS, posterior, x, y), gradient) < 1e-8
    torch.testing.assert_close(MOMENTS.loss(posterior, x, y), LIKELIHOOD.loss(posterior, x, y))


@pytest.mark.parametrize("name", TREES)
def test_converged_propagation_on_trees(name: str):
    problem = BY_NAME[name]
    x, y = _data(problem.graph)
    truth = _gradient(LIKELIHOOD, _posterior(problem, exact()), x, y)
    assert _difference(_gradient(MOMENTS, _posterior(problem, CONVERGED), x, y), truth) < 1e-8


@pytest.mark.parametrize("scale", ["energy", "rho"])
@pytest.mark.parametrize("schedule", ["sequential", "parallel", "sweep"])
def test_on_a_star_it_is_backpropagation_once_all_beliefs_are_exact(schedule: str, scale: str):
    """One hidden layer, one output node, inputs observed. The output is exact from T = 2 in the paper's schedules, and
    so is backpropagation; the hidden nodes hear from the output one iteration later, and so does this gradient."""
    model = LGM(zoo.dense(4, (5,), classes=3), "paper", scale)
    x, y = _data(model.graph)
    truth = _gradient(LIKELIHOOD, Posterior(model, exact()), x, y)
    first = 1 if schedule == "sweep" else 2
    for iterations in (first, first + 1, 5):
        posterior = Posterior(model, lbp(iterations, schedule))
        assert _difference(_gradient(LIKELIHOOD, posterior, x, y), truth) < 1e-10
        difference = _difference(_gradient(MOMENTS, posterior, x, y), truth)
        if iterations == 2 and schedule != "sweep":
            assert difference > 0.01
        else:
            assert difference < 1e-10


def test_differs_from_backpropagation_on_loopy_graphs():
    """Two hidden layers: where inference is not exact, the two are different gradients even at convergence."""
    differences = {}
    for scale in (0.1, 1.0, 3.0):
        problem = Problem("deep", zoo.dense(4, (4, 4), classes=3))
        model, (x, y) = model_of(problem, scale=scale), _data(problem.graph)
        analytic = _gradient(MOMENTS, Posterior(model, CONVERGED), x, y)
        unrolled = _gradient(LIKELIHOOD, Posterior(model, lbp(100, "sweep")), x, y)
        differences[scale] = _difference(analytic, unrolled)
    assert 0 < differences[0.1] < 1e-3
    assert differences[1.0] > 1e-3
    assert differences[3.0] > differences[1.0] > differences[0.1]


@pytest.mark.parametrize(("std", "low", "high"), [(1.0, 0.1, 1.0), (0.2, 0.001, 0.05)])
def test_how_far_off_it_is_depends_on_the_scale(std: float, low: float, high: float):
    """64-20-20-10 with the paper's T = 5: tens of percent with energies of N(0, 1), a few with smaller ones."""
    model = LGM(zoo.dense(64, (20, 20), classes=10), Init(table=std))
    x, y = _data(model.graph)
    posterior = Posterior(model, lbp(5, "sequential"))
    analytic, unrolled = (_gradient(objective, posterior, x, y) for objective in (MOMENTS, LIKELIHOOD))
    assert low < _difference(analytic, unrolled) < high


@pytest.mark.parametrize("method", [lbp(3), trw(3), mean_field(3)], ids=["lbp", "trw", "mf"])
def test_nothing_is_differentiated_through_inference(method):
    """The gradient is linear in the energies' derivatives: clamped minus free expectations, for any method."""
    model = model_of(BY_NAME["star"])
    x, y = _data(model.graph)
    posterior = Posterior(model, method)
    gradient = _gradient(MOMENTS, posterior, x, y)
    digit = model.unary["classes"].grad
    assert digit is not None
    clamped = torch.nn.functional.one_hot(y, 3).double().mean(0)[1:]
    free = posterior(x).exp().mean(0)[1:]
    torch.testing.assert_close(digit[0], clamped - free)
    assert bool(gradient.isfinite().all())


def test_missing_targets():
    """With one target node known, the likelihood of that node; with none known, nothing."""
    model = LGM(zoo.conditional_rbm(3, 2, 2), "paper")
    x = torch.rand(4, 3)
    posterior = Posterior(model, exact())
    y = torch.tensor([[1, -1], [-1, 0], [-1, -1], [0, -1]])
    assert _difference(_gradient(MOMENTS, posterior, x, y), _gradient(LIKELIHOOD, posterior, x, y)) < 1e-8


def test_several_targets_are_taken_jointly():
    model = LGM(zoo.conditional_rbm(3, 2, 2), "paper")
    x, y = torch.rand(4, 3), torch.randint(2, (4, 2))
    model.zero_grad()
    free = model.condition({"conditions": x})
    clamped = model.condition({"conditions": x, "outputs": y})
    (solve(free, exact()).log_z - solve(clamped, exact()).log_z).mean().backward()
    joint = torch.cat([p.grad.flatten() if p.grad is not None else torch.zeros(p.numel()) for p in model.parameters()])
    assert _difference(_gradient(MOMENTS, Posterior(model, exact()), x, y), joint) < 1e-8


def test_trw_that_does_not_divide_is_refused():
    with pytest.raises(TrainingError, match=r"no analytic gradient is known for trw\(divide_by_rho=False\)"):
        MOMENTS.check(Posterior(model_of(BY_NAME["star"]), trw(divide_by_rho=False)))


def test_networks_are_refused():
    with pytest.raises(TrainingError, match="MomentMatching needs a Posterior, got Linear; use Likelihood"):
        MOMENTS.check(torch.nn.Linear(3, 2))


def test_soft_targets_are_refused():
    model = model_of(BY_NAME["star"])
    with pytest.raises(TrainingError, match="needs labels as targets"):
        MOMENTS.loss(Posterior(model, exact()), torch.rand(2, 3), torch.full((2, 1, 3), 1 / 3))
