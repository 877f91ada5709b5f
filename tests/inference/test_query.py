"""Questions: log p(labels | evidence), brackets around probabilities, and what is refused."""

from itertools import product

import pytest
import torch
from torch.testing import assert_close

import torchlgm as lgm
from helpers.problems import BY_NAME, PROBLEMS, Case, by_case, enumerate_all, evidence_for, model_of, spell_out

CLASSIFIERS = [
    Case(BY_NAME[name], kind) for name in ("star", "chain", "skip", "conv", "local") for kind in ("soft", "missing")
]


def exact_log_prob(model, evidence, labels, sample):
    """log Z with the labels seen minus log Z without, both enumerated."""
    joint, alone = (enumerate_all(spell_out(model, e, sample)).log_z for e in ({**evidence, **labels}, evidence))
    return joint - alone


@pytest.mark.parametrize(**by_case(CLASSIFIERS))
def test_log_prob_is_exact_with_exact_inference(case):
    model, evidence = case.model, case.evidence
    output = case.problem.graph.layers[-1]
    total = torch.zeros(3)
    for label in range(output.labels):
        labels = {output.name: torch.full((3, 1), label)}
        mine = lgm.log_prob(model, evidence, labels, lgm.exact())
        assert_close(mine, torch.tensor([exact_log_prob(model, evidence, labels, b) for b in range(3)]))
        assert_close(mine, lgm.infer(model, evidence, lgm.exact())[output.name].probs[:, 0, label].log())
        total = total + mine.exp()
    assert_close(total, torch.ones(3))


def test_log_prob_of_several_nodes_and_layers():
    problem = BY_NAME["skip"]
    model, evidence = model_of(problem), evidence_for(problem, "soft")
    total = 0.0
    for a, b, c in product(range(2), range(2), range(3)):
        labels = {"h": torch.tensor([[a, b]] * 3), "c": torch.full((3, 1), c)}
        mine = lgm.log_prob(model, evidence, labels, lgm.exact())
        assert_close(mine[1].item(), exact_log_prob(model, evidence, labels, 1))
        total = total + mine.exp()
    assert_close(total, torch.ones(3))


@pytest.mark.parametrize("make", [lgm.lbp, lgm.trw], ids=["lbp", "trw"])
def test_log_prob_agrees_with_the_belief_on_a_star(make):
    """One hidden layer and one output node: rho is 1 and both ways to ask are exact."""
    case = Case(BY_NAME["star"], "soft")
    for label in range(3):
        labels = {"classes": torch.full((3, 1), label)}
        mine = lgm.log_prob(case.model, case.evidence, labels, make(3))
        belief = lgm.infer(case.model, case.evidence, make(3))["classes"].probs[:, 0, label]
        assert_close(mine, belief.log())


def test_log_prob_without_evidence_and_by_default():
    model = model_of(BY_NAME["tree"])
    labels = {"a_root": torch.ones(1, 1)}
    assert_close(lgm.log_prob(model, None, labels, lgm.exact()), lgm.log_prob(model, {}, labels, lgm.exact()))
    assert_close(lgm.log_prob(model, None, labels), lgm.log_prob(model, None, labels, lgm.lbp()))
    many = lgm.log_prob(model, None, {"a_root": torch.tensor([[0], [1], [1]])}, lgm.exact())
    assert_close(many.exp()[:2].sum(), torch.ones(()))
    assert many[1] == many[2]


def test_log_prob_of_everything_there_is():
    """All layers seen: minus the energy minus log Z."""
    model = model_of(BY_NAME["rbm"])
    labels = {"visible": torch.tensor([[0, 1, 1]]), "hidden": torch.tensor([[2, 0]])}
    expected = -lgm.energy(model.condition(), labels) - lgm.infer(model, {}, lgm.exact()).log_z
    assert_close(lgm.log_prob(model, None, labels, lgm.exact()), expected)


def test_log_prob_of_what_is_given():
    case = Case(BY_NAME["skip"], "soft")
    with pytest.raises(lgm.errors.InferenceError, match="layer 'v' is in the evidence and in the labels asked about"):
        lgm.log_prob(case.model, case.evidence, {"v": torch.zeros(3, 2)})


@pytest.mark.each
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "problem", [p for p in PROBLEMS if p.name not in ("fan", "twin", "rbm", "ring")], ids=lambda p: p.name
)
def test_brackets_hold_the_exact_probability(problem, seed):
    model, evidence = model_of(problem, seed), evidence_for(problem, "missing")
    output = problem.graph.layers[-1]
    found = lgm.bracket(model, evidence, output.name)
    exact = lgm.infer(model, evidence, lgm.exact())[output.name].probs
    assert found.lower.shape == found.upper.shape == exact.shape
    assert (found.lower <= exact + 1e-6).all()
    assert (exact <= found.upper + 1e-6).all()
    assert (found.lower >= 0).all()
    assert (found.upper <= 1).all()
    assert_close(found.width, found.upper - found.lower)
    assert (found.width < 0.999).any()


def test_brackets_of_layers_with_many_nodes_and_labels():
    problem = BY_NAME["rbm"]
    for seed in range(3):
        model = model_of(problem, seed)
        for layer in ("visible", "hidden"):
            found = lgm.bracket(model, None, layer)
            exact = lgm.infer(model, None, lgm.exact())[layer].probs
            assert found.lower.shape == exact.shape
            assert (found.lower - 1e-6 <= exact).all()
            assert (exact <= found.upper + 1e-6).all()


def test_a_bracket_is_tight_where_both_bounds_are():
    case = Case(BY_NAME["star"], "soft")
    exact = lgm.infer(case.model, case.evidence, lgm.exact())["classes"].probs
    found = lgm.bracket(case.model, case.evidence, "classes", below=lgm.exact(), above=lgm.exact())
    assert_close(found.lower, exact)
    assert_close(found.upper, exact)
    default = lgm.bracket(case.model, case.evidence, "classes")
    assert default.width.max() < 1e-6, "given the output, the hidden nodes of a star are independent"


def test_a_bracket_without_convergence_says_nothing():
    """An upper bound that is not reached is infinite: the bracket is everything, and holds."""
    case = Case(BY_NAME["chain"], "missing")
    found = lgm.bracket(case.model, case.evidence, "c", above=lgm.trw(2))
    assert_close(found.lower, torch.zeros_like(found.lower))
    assert_close(found.upper, torch.ones_like(found.upper))


@pytest.mark.parametrize("options", [{"below": lgm.lbp(9)}, {"above": lgm.lbp(9)}, {"above": lgm.mean_field(9)}])
def test_a_bracket_needs_bounds(options):
    case = Case(BY_NAME["chain"], "soft")
    with pytest.raises(lgm.errors.InferenceError, match=r"a lower bound \(mean_field\) and one with an upper \(trw\)"):
        lgm.bracket(case.model, case.evidence, "c", **options)


@pytest.mark.parametrize("layer", ["v", "unknown"])
@pytest.mark.parametrize("kind", ["soft", "missing"])
def test_a_bracket_is_about_free_layers(kind, layer):
    case = Case(BY_NAME["chain"], kind)
    with pytest.raises(
        lgm.errors.InferenceError, match=f"bracket needs a layer without evidence; '{layer}' is unknown or observed"
    ):
        lgm.bracket(case.model, case.evidence, layer)


def test_infer_is_solve_of_what_the_model_conditions():
    case = Case(BY_NAME["conv"], "missing")
    asked, solved = lgm.infer(case.model, case.evidence), lgm.solve(case.model.condition(case.evidence), lgm.lbp())
    assert all(torch.equal(asked[name].probs, solved[name].probs) for name in asked)
    nothing_seen = lgm.infer(case.model)
    assert nothing_seen["c"].probs.shape == (1, 1, 3)


QUESTIONS = {
    "lbp": lgm.lbp(4),
    "trw": lgm.trw(4, "sweep"),
    "mean-field": lgm.mean_field(4),
    "checkpoint": lgm.lbp(4, gradient="checkpoint"),
    "tolerance": lgm.lbp(40, tolerance=1e-6),
    "elimination": lgm.exact(),
    "enumeration": lgm.exact("enumeration"),
}


@pytest.mark.parametrize("method", QUESTIONS.values(), ids=QUESTIONS)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_answers_are_the_same_without_gradients(method, mode):
    case = Case(BY_NAME["skip"], "missing")
    model = case.model
    expected = lgm.infer(model, case.evidence, method)
    with mode():
        beliefs = lgm.infer(model, case.evidence, method)
        assert_close(beliefs.log_z, expected.log_z)
        assert_close(beliefs.edges("h-c"), expected.edges("h-c"))
        assert_close(beliefs["c"].probs, expected["c"].probs)
        assert not beliefs["c"].probs.requires_grad


@pytest.mark.each
@pytest.mark.parametrize("method", QUESTIONS.values(), ids=QUESTIONS)
@pytest.mark.parametrize("name", ["chain", "clique", "local"])
def test_single_precision_is_enough(name, method):
    """With observed nodes held in place by huge energies, too; gradients stay finite."""
    case = Case(BY_NAME[name], "missing")
    model, double = case.model.float(), case.model
    mine, theirs = lgm.infer(model, case.evidence, method), lgm.infer(double, case.evidence, method)
    assert mine.log_z.dtype == torch.float32
    assert_close(mine.log_z.double(), theirs.log_z, rtol=0, atol=1e-4)
    for layer in mine:
        assert_close(mine[layer].probs.double(), theirs[layer].probs, rtol=0, atol=1e-4)
    (mine.log_z.sum() + sum(b.probs.square().sum() for b in mine.values())).backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("method", QUESTIONS.values(), ids=QUESTIONS)
def test_samples_of_a_batch_do_not_meet(method):
    case = Case(BY_NAME["conv"], "missing")
    together = lgm.infer(case.model, case.evidence, method)
    for b in range(3):
        alone = lgm.infer(case.model, {"v": case.evidence["v"][b : b + 1]}, method)
        assert_close(alone.log_z[0], together.log_z[b])
        for layer in together:
            assert_close(alone[layer].probs[0], together[layer].probs[b])
