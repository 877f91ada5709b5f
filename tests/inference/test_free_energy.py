"""log Z: exact on trees, bounds elsewhere, stationary at fixed points."""

from itertools import pairwise

import pytest
import torch
from torch.autograd import gradcheck
from torch.testing import assert_close

import torchlgm as lgm
from helpers import problems
from helpers.problems import BY_NAME, PROBLEMS, TREES, Case, Problem, as_function, by_case, evidence_for, model_of
from torchlgm.inference.run import run

SCHEDULES = ("parallel", "sequential", "sweep")
LOOPS = [case for case in problems.LOOPY if case.kind in ("none", "missing")]


def exact_log_z(case):
    return torch.tensor([truth.log_z for truth in case.truth])


@pytest.mark.pairs
@pytest.mark.parametrize(**by_case(TREES))
@pytest.mark.parametrize("schedule", ["parallel", "sweep"])
def test_belief_propagation_is_exact_on_trees(case, schedule):
    beliefs = lgm.infer(case.model, case.evidence, lgm.lbp(5, schedule))
    assert_close(beliefs.log_z, exact_log_z(case), rtol=0, atol=1e-12)


@pytest.mark.parametrize(**by_case([case for case in problems.CASES if case.kind != "hard"]))
def test_mean_field_is_below_at_any_number_of_iterations(case):
    exact = exact_log_z(case)
    for schedule in SCHEDULES:
        for iterations in (1, 3):
            beliefs = lgm.infer(case.model, case.evidence, lgm.mean_field(iterations, schedule))
            assert (beliefs.log_z_lower <= exact + 1e-12).all()
            assert beliefs.log_z is beliefs.log_z_lower
            assert beliefs.log_z_upper is None


def test_mean_field_improves_with_every_sequential_iteration():
    for case in LOOPS:
        steps = [lgm.infer(case.model, case.evidence, lgm.mean_field(t, "sequential")).log_z for t in range(1, 5)]
        for before, after in pairwise(steps):
            assert (after >= before - 1e-12).all()


CONVERGED = lgm.trw(2000, "sweep", damping=0.3, tolerance=1e-10)


@pytest.mark.each
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)
def test_reweighted_is_above_once_converged(problem, seed):
    """Also with a root of several nodes, a root in the middle, and loops of layers."""
    model, evidence = model_of(problem, seed, scale=1.5), evidence_for(problem, "missing")
    with torch.no_grad():
        beliefs = lgm.infer(model, evidence, CONVERGED)
        exact = lgm.infer(model, evidence, lgm.exact()).log_z
    assert beliefs.converged.all()
    assert (beliefs.log_z_upper >= exact - 1e-10).all()
    assert torch.equal(beliefs.log_z_upper, beliefs.log_z)
    assert beliefs.log_z_lower is None


def test_reweighted_is_no_bound_before_it_has_converged():
    """Truncated values can fall below the exact one, so they are not called bounds."""
    violated = 0
    for problem in PROBLEMS:
        for seed in range(4):
            model = model_of(problem, seed, scale=1.5)
            beliefs = lgm.infer(model, {}, lgm.trw(1, "parallel"))
            assert beliefs.log_z_upper.isinf().all()
            violated += int(beliefs.log_z < lgm.infer(model, {}, lgm.exact()).log_z - 1e-6)
    assert violated > 0


def test_only_samples_that_have_converged_get_an_upper_bound():
    case = Case(BY_NAME["clique"], "missing")
    together = lgm.infer(case.model, case.evidence, lgm.trw(300, "parallel", tolerance=1e-8))
    counts = sorted(together.iterations.tolist())
    assert counts[0] < counts[-1]
    beliefs = lgm.infer(case.model, case.evidence, lgm.trw(counts[0], "parallel", tolerance=1e-8))
    assert beliefs.converged.any()
    assert not beliefs.converged.all()
    assert torch.equal(beliefs.log_z_upper.isfinite(), beliefs.converged)
    assert beliefs.log_z.isfinite().all()


def test_loopy_belief_propagation_gives_no_bounds():
    case = Case(BY_NAME["loop"], "soft")
    beliefs = lgm.infer(case.model, case.evidence, lgm.lbp(50))
    assert beliefs.log_z_lower is None
    assert beliefs.log_z_upper is None


def test_belief_propagation_errs_on_both_sides():
    signs = set()
    for seed in range(6):
        model = model_of(BY_NAME["clique"], seed, scale=1.5)
        answers = [lgm.infer(model, {}, m) for m in (lgm.lbp(200, "sweep", tolerance=1e-6), lgm.exact())]
        signs.add(bool(answers[0].log_z > answers[1].log_z))
    assert signs == {True, False}


@pytest.mark.parametrize("make", [lgm.lbp, lgm.trw])
def test_max_product_has_no_log_z(make):
    case = Case(BY_NAME["tree"], "hard")
    beliefs = lgm.infer(case.model, case.evidence, make(5, product="max"))
    with pytest.raises(lgm.errors.InferenceError, match=r"max-product has no log Z; use product='sum'"):
        _ = beliefs.log_z


@pytest.mark.each
@pytest.mark.parametrize(**by_case(LOOPS))
@pytest.mark.parametrize("make", [lgm.lbp, lgm.trw], ids=["lbp", "trw"])
def test_at_a_fixed_point_the_gradient_is_the_beliefs(case, make):
    """The value is stationary in the messages: with these held fixed, d log Z / dE_i(x) = -b_i(x)."""
    mrf = case.model.condition(case.evidence)
    method = make(1000, "sweep", damping=0.3, tolerance=1e-13)
    with torch.no_grad():
        messages = run(mrf, method).messages
    unary = {name: u.detach().expand(mrf.batch, -1, -1).clone().requires_grad_() for name, u in mrf.unary.items()}
    outcome = run(mrf._replace(unary=unary), make(1, "sweep", damping=0.3), start=messages)
    fixed = torch.ones(mrf.batch, dtype=torch.bool)
    value = method.rule.log_z(mrf._replace(unary=unary), outcome, fixed).estimate
    grads = torch.autograd.grad(value.sum(), list(unary.values()))
    beliefs = lgm.solve(mrf, method, start=messages)
    for name, grad in zip(unary, grads, strict=True):
        expected = beliefs[name].probs.flatten(1, -2)[..., 1:].detach()
        clamp = mrf.clamps.get(name)
        if clamp is not None and clamp.free is not None:
            grad, expected = grad[clamp.free], expected[clamp.free]
        assert_close(-grad, expected, rtol=0, atol=1e-7)


GRADIENTS = {"lbp": lgm.lbp(3), "trw": lgm.trw(3, "parallel"), "mean-field": lgm.mean_field(3, "sweep")}


@pytest.mark.parametrize("method", GRADIENTS.values(), ids=GRADIENTS)
@pytest.mark.parametrize("name", ["chain", "local", "twin"])
def test_gradients_of_log_z(name, method):
    problem = BY_NAME[name]
    mrf, parameters = as_function(model_of(problem), evidence_for(problem, "missing"))
    assert gradcheck(lambda *values: lgm.solve(mrf(*values), method).log_z, parameters, fast_mode=True)


ANY = {
    "lbp": lgm.lbp(3),
    "trw": lgm.trw(3),
    "mean-field": lgm.mean_field(3),
    "elimination": lgm.exact(),
    "enumeration": lgm.exact("enumeration"),
}


@pytest.mark.parametrize("method", ANY.values(), ids=ANY)
def test_a_constant_shifts_log_z_and_no_belief(method):
    case = Case(BY_NAME["skip"], "missing")
    mrf = case.model.condition(case.evidence)
    shift = torch.tensor([0.5, -2.0, 30.0])
    shifted = mrf._replace(observed=(*mrf.observed, (torch.ones(3, 1, 1), shift.reshape(3, 1, 1))))
    mine, theirs = lgm.solve(mrf, method), lgm.solve(shifted, method)
    assert_close(theirs.log_z, mine.log_z - shift)
    for layer in mine:
        assert_close(mine[layer].probs, theirs[layer].probs, rtol=0, atol=1e-14)


def folded(table):
    """A table with energies for label 0 as well -> what a model keeps of it, and what goes to both ends and away."""
    corner, left, right = table[..., :1, :1], table[..., 1:, :1], table[..., :1, 1:]
    kept = table[..., 1:, 1:] - left - right + corner
    return kept, (left - corner).squeeze(-1), (right - corner).squeeze(-2), corner.sum()


@pytest.mark.parametrize("method", ANY.values(), ids=ANY)
def test_a_constant_on_a_whole_table_changes_no_belief(method):
    """Any table can be written with label 0 at 0; a constant on all its entries only shifts log Z."""
    problem = Problem("pair", lgm.Graph([lgm.Layer("a", 2), lgm.Layer("b", 3, 3)], [lgm.Dense("a", "b")]))
    table = torch.randn(2, 3, 2, 3)
    answers = []
    for shift in (0.0, 1.7):
        model = model_of(problem)
        kept, to_left, to_right, away = folded(table + shift)
        with torch.no_grad():
            model.table["a-b"].copy_(kept)
            model.unary["a"].add_(to_left.sum(1))
            model.unary["b"].add_(to_right.sum(0))
        beliefs = lgm.infer(model, {}, method)
        answers.append((beliefs["a"].probs, beliefs["b"].probs, beliefs.log_z - away))
    assert_close(answers[0][:2], answers[1][:2], rtol=0, atol=1e-12)
    assert_close(answers[0][2] - 1.7 * 6, answers[1][2])


def test_folding_a_table_is_exact():
    """Energies with label 0 and without describe the same distribution, by enumeration of the unfolded ones."""
    problem = Problem("pair", lgm.Graph([lgm.Layer("a", 2), lgm.Layer("b", 1, 3)], [lgm.Dense("a", "b")]))
    model, table = model_of(problem), torch.randn(2, 1, 2, 3)
    spelled = problems.spell_out(model, {})
    edges = [edge._replace(table=table[edge.at].tolist()) for edge in spelled.edges]
    truth = problems.enumerate_all(spelled._replace(edges=edges))
    kept, to_left, to_right, away = folded(table)
    with torch.no_grad():
        model.table["a-b"].copy_(kept)
        model.unary["a"].add_(to_left.sum(1))
        model.unary["b"].add_(to_right.sum(0))
    beliefs = lgm.infer(model, {}, lgm.exact())
    assert_close(beliefs["a"].probs, problems.probs_of([truth], "a"))
    assert_close(beliefs.log_z - away, torch.tensor([truth.log_z]))
