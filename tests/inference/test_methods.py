"""Methods: what each promises on trees and stars, and what they refuse to be."""

import dataclasses

import numpy as np
import pytest
import torch
from torch.nn.functional import pad, softplus
from torch.testing import assert_close

import torchlgm as lgm
from helpers import problems
from helpers.problems import BY_NAME, TREES, Case, by_case, evidence_for, model_of
from torchlgm import zoo
from torchlgm.inference import METHODS
from torchlgm.inference.rules import BeliefPropagation, MeanField, Message
from torchlgm.inference.schedule import parallel, sweep

SCHEDULES = ("parallel", "sequential", "sweep")
ENOUGH = {"parallel": 5, "sequential": 40, "sweep": 3}  # the sequential order only comes near, geometrically


def assert_exact(case, beliefs, atol=1e-10):
    for name in case.problem.graph.layer_names:
        assert_close(beliefs[name].probs.flatten(1, -2), problems.probs_of(case.truth, name), rtol=0, atol=atol)


@pytest.mark.pairs
@pytest.mark.parametrize(**by_case(TREES))
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_belief_propagation_is_exact_on_trees(case, schedule):
    assert_exact(case, lgm.infer(case.model, case.evidence, lgm.lbp(ENOUGH[schedule], schedule)))


@pytest.mark.pairs
@pytest.mark.parametrize(**by_case(TREES))
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_max_product_finds_the_best_labelling_of_trees(case, schedule):
    best = lgm.infer(case.model, case.evidence, lgm.lbp(ENOUGH[schedule], schedule, product="max")).map()
    for sample, truth in enumerate(case.truth):
        assert_close(best.energy[sample], torch.tensor(truth.energy))
        for (layer, i), label in truth.best.items():
            assert best.labels[layer][sample].flatten()[i] == label


@pytest.mark.parametrize("method", [lgm.lbp(50, product="max"), lgm.trw(50, product="max")])
def test_labels_that_are_equally_good_go_together(method):
    """A chain in which neighbours repel each other: each of two labellings has every node at either label."""
    model = lgm.LGM(zoo.grid(1, 4), "zero").double()
    with torch.no_grad():
        model.table["across"].fill_(4.0)
        model.unary["cells"].copy_(torch.tensor([[-2.0], [-4.0], [-4.0], [-2.0]]))
    assert lgm.infer(model, {}, lgm.exact()).map().energy.item() == -6
    assert lgm.infer(model, {}, method).map().energy.item() == -6


@pytest.mark.parametrize("seed", range(5))
def test_no_node_of_the_best_labelling_can_be_bettered(seed):
    graph = zoo.grid(4, 5)
    model = lgm.LGM(graph, lgm.Init(3.0, scale="energy"), generator=torch.Generator().manual_seed(seed)).double()
    mrf = model.condition()
    best = lgm.infer(model, {}, lgm.lbp(1, "parallel", product="max")).map()
    for layer in graph.layer_names:
        for node in range(graph.layer(layer).nodes):
            other = {name: labels.clone() for name, labels in best.labels.items()}
            other[layer].view(-1)[node] ^= 1
            assert lgm.energy(mrf, other) >= best.energy


ONE_PARENT = [c for c in TREES if c.problem.name in ("path", "tree", "local-tree", "conv-tree", "star", "rbm", "skip")]
RHO_ONE = [
    c for c in TREES if all(e.rho == 1 for s in c.spelled for e in s.edges if not {e.left, e.right} & set(s.seen))
]


@pytest.mark.parametrize(**by_case(ONE_PARENT))
def test_one_sweep_is_exact_with_one_neighbour_toward_the_root(case):
    assert_exact(case, lgm.infer(case.model, case.evidence, lgm.lbp(1, "sweep")))


@pytest.mark.parametrize("kind", ["none", "missing"])
def test_other_trees_take_a_few_sweeps(kind):
    case = Case(BY_NAME["fan"], kind)
    first, second = (lgm.infer(case.model, case.evidence, lgm.lbp(t, "sweep")) for t in (1, 2))
    assert_exact(case, second)
    truth = problems.probs_of(case.truth, "bottom")
    assert not torch.allclose(first["bottom"].probs, truth, atol=1e-6)


def test_the_papers_sequential_order_may_not_settle_even_on_a_tree():
    """Old beliefs less new messages: a node with several neighbours in later layers can swing for ever."""
    graph = lgm.Graph([lgm.Layer("centre", 1), lgm.Layer("leaf", 5)], [lgm.Dense("centre", "leaf")])
    model = lgm.LGM(graph, init="zero")
    with torch.no_grad():
        model.table["centre-leaf"].fill_(-2.0)
        model.unary["leaf"].fill_(1.0)
        model.unary["centre"].fill_(5.2)
    exact = lgm.infer(model, {}, lgm.exact())["centre"].probs
    assert_close(lgm.infer(model, {}, lgm.lbp(3, "parallel"))["centre"].probs, exact)
    assert_close(lgm.infer(model, {}, lgm.lbp(3, "sweep"))["centre"].probs, exact)
    swinging = lgm.infer(model, {}, lgm.lbp(300, "sequential", tolerance=1e-6))
    assert not swinging.converged.any()
    assert (swinging["centre"].probs - exact).abs().max() > 0.1
    damped = lgm.infer(model, {}, lgm.lbp(300, "sequential", damping=0.5, tolerance=1e-10))
    assert_close(damped["centre"].probs, exact, rtol=0, atol=1e-8)


def test_rho_is_one_on_the_trees_of_this_file():
    assert {case.problem.name for case in RHO_ONE} >= {"path", "tree", "local-tree", "conv-tree", "star"}


@pytest.mark.pairs
@pytest.mark.parametrize(**by_case(RHO_ONE))
@pytest.mark.parametrize("product", ["sum", "max"])
def test_reweighted_is_plain_where_rho_is_one(case, product):
    """Bit for bit, so exact on these trees."""
    for schedule in SCHEDULES:
        for iterations in (1, 3):
            mine, theirs = (
                lgm.infer(case.model, case.evidence, make(iterations, schedule, product=product))
                for make in (lgm.trw, lgm.lbp)
            )
            assert all(torch.equal(mine[name].probs, theirs[name].probs) for name in mine)


@pytest.mark.parametrize("name", ["chain", "clique", "conv", "local", "twin"])
@pytest.mark.parametrize("product", ["sum", "max"])
def test_undivided_is_reweighted_for_energies_times_rho(name, product):
    problem = BY_NAME[name]
    mrf = model_of(problem).condition(evidence_for(problem, "missing"))
    weaker = mrf._replace(
        links=tuple(
            link._replace(table=link.layout.expand(link.table) * link.rho[..., None, None]) for link in mrf.links
        )
    )
    for schedule in SCHEDULES:
        mine = lgm.solve(mrf, lgm.trw(4, schedule, product, divide_by_rho=False))
        theirs, other = (lgm.solve(m, lgm.trw(4, schedule, product)) for m in (weaker, mrf))
        for layer in mine:
            assert_close(mine[layer].probs, theirs[layer].probs, rtol=0, atol=1e-12)
        assert any((mine[layer].probs - other[layer].probs).abs().max() > 1e-4 for layer in mine)


def test_undivided_has_no_log_z():
    problem = BY_NAME["chain"]
    beliefs = lgm.infer(model_of(problem), {}, lgm.trw(500, divide_by_rho=False, damping=0.3, tolerance=1e-6))
    assert beliefs.converged.all()
    with pytest.raises(
        lgm.errors.InferenceError, match=r"no log Z is known for trw\(divide_by_rho=False\); use trw\(\)"
    ):
        _ = beliefs.log_z


@pytest.mark.parametrize("name", ["chain", "clique", "conv", "local", "twin"])
def test_reweighted_with_rho_set_to_one_is_plain_on_loops(name):
    problem = BY_NAME[name]
    mrf = model_of(problem).condition(evidence_for(problem, "missing"))
    ones = mrf._replace(links=tuple(link._replace(rho=torch.ones_like(link.rho)) for link in mrf.links))
    for schedule in SCHEDULES:
        mine, theirs, other = (
            lgm.solve(m, make(4, schedule)) for m, make in ((ones, lgm.trw), (mrf, lgm.lbp), (mrf, lgm.trw))
        )
        assert_close(mine.log_z, theirs.log_z, rtol=0, atol=1e-12)
        assert (mine.log_z - other.log_z).abs().max() > 1e-6
        for layer in mine:
            assert_close(mine[layer].probs, theirs[layer].probs, rtol=0, atol=1e-12)


def closed_form(model, pixels):
    """log p(y|v) = -E_y + sum_j softplus(-E_j - W_j v - V_jy) - log-normaliser: `(B, labels)`."""
    hidden = -model.unary["hidden"][:, 0] - pixels @ model.table["inputs-hidden"][..., 0, 0]
    output = pad(-model.unary["classes"][0], (1, 0))
    energies = pad(model.table["hidden-classes"][:, 0, 0], (1, 0))
    return (output + softplus(hidden.unsqueeze(-1) - energies, threshold=40).sum(1)).log_softmax(-1)


STAR = zoo.dense(5, (4,), 3)


@pytest.mark.parametrize("make", [lgm.lbp, lgm.trw], ids=["lbp", "trw"])
@pytest.mark.parametrize(("schedule", "least"), [("parallel", 2), ("sequential", 2), ("sweep", 1)])
def test_a_star_is_exact_in_value_and_gradient(make, schedule, least):
    model, pixels = lgm.LGM(STAR, init="paper"), torch.rand(6, 5)
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    parameters = list(model.parameters())

    def gradients(log_probs):
        loss = -log_probs.gather(1, labels[:, None]).mean()
        return torch.autograd.grad(loss, parameters, allow_unused=True)

    for iterations in range(least, least + 4):
        exact = closed_form(model, pixels)
        probs = lgm.infer(model, {"inputs": pixels}, make(iterations, schedule), want=["classes"])["classes"].probs[
            :, 0
        ]
        assert_close(probs.log(), exact)
        for (name, _), mine, theirs in zip(
            model.named_parameters(), gradients(probs.log()), gradients(exact), strict=True
        ):
            assert (mine is None) == (theirs is None) == (name == "unary.inputs")
            if mine is not None:
                assert_close(mine, theirs)


@pytest.mark.parametrize("schedule", ["parallel", "sequential"])
def test_a_star_is_uninformed_after_one_iteration(schedule):
    model, pixels = lgm.LGM(STAR, init="paper"), torch.rand(6, 5)
    probs = lgm.infer(model, {"inputs": pixels}, lgm.lbp(1, schedule))["classes"].probs
    assert torch.equal(probs, probs[:1].expand_as(probs))
    assert not torch.allclose(probs[:, 0].log(), closed_form(model, pixels), atol=1e-3)


def test_soft_evidence_at_its_ends_is_hard_evidence():
    for name in ("skip", "chain"):
        hard = Case(BY_NAME[name], "hard")
        labels = hard.evidence["v"]
        k = hard.problem.graph.layers[0].labels
        soft = labels.double() if k == 2 else torch.nn.functional.one_hot(labels, k).double()
        for method in (lgm.lbp(3), lgm.trw(3), lgm.mean_field(3), lgm.exact()):
            mine, theirs = (lgm.infer(hard.model, {"v": v}, method) for v in (labels, soft))
            assert all(torch.equal(mine[layer].probs, theirs[layer].probs) for layer in mine)


@pytest.mark.parametrize("make", [lgm.lbp, lgm.trw, lgm.mean_field])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"iterations": 0}, r"iterations=0; expected a whole number >= 1"),
        ({"iterations": 2.5}, r"iterations=2.5; expected a whole number"),
        ({"iterations": True}, r"iterations=True; expected a whole number"),
        ({"damping": 1.0}, r"damping=1.0; expected 0 <= damping < 1"),
        ({"damping": -0.1}, r"damping=-0.1; expected"),
        ({"damping": float("nan")}, r"damping=nan; expected"),
        ({"damping": "0.3"}, r"damping='0.3'; expected"),
        ({"tolerance": 0.0}, r"tolerance=0.0; expected a positive number or None"),
        ({"tolerance": "1e-3"}, r"tolerance='1e-3'; expected"),
        ({"tolerance": float("inf")}, r"tolerance=inf; expected"),
        ({"tolerance": float("nan")}, r"tolerance=nan; expected"),
        ({"gradient": "magic"}, r"gradient='magic'; known: unroll, checkpoint"),
        ({"schedule": "random"}, r"schedule='random'; known: parallel, sequential, sweep, or a function"),
    ],
    ids=str,
)
def test_settings_that_make_no_sense(make, options, message):
    with pytest.raises(lgm.errors.InferenceError, match=message):
        make(**options)


def test_what_is_divided_is_checked():
    with pytest.raises(lgm.errors.InferenceError, match="divide_by_rho='no'; expected True or False"):
        lgm.trw(divide_by_rho="no")
    with pytest.raises(lgm.errors.InferenceError, match="without rho there is nothing to divide by"):
        BeliefPropagation(divide_by_rho=False)


def test_whole_numbers_of_numpy():
    assert lgm.lbp(np.int64(3)) == lgm.lbp(3)
    assert repr(lgm.lbp(np.int64(3))) == repr(lgm.lbp(3))
    assert repr(lgm.exact(limit=np.int64(9))) == repr(lgm.exact(limit=9))
    assert lgm.zoo.Stage(np.int64(3)) == lgm.zoo.Stage(3)


@pytest.mark.parametrize("limit", [0, True, "x", 2.5])
def test_a_limit_that_makes_no_sense(limit):
    with pytest.raises(lgm.errors.InferenceError, match=f"limit={limit!r}; expected a whole number >= 1"):
        lgm.exact(limit=limit)


@pytest.mark.parametrize("make", [lgm.lbp, lgm.trw])
def test_unknown_product(make):
    with pytest.raises(
        lgm.errors.InferenceError, match=r"product='mean'; expected 'sum' \(marginals\) or 'max' \(MAP\)"
    ):
        make(product="mean")


def test_unknown_exact_way():
    with pytest.raises(lgm.errors.InferenceError, match=r"by='luck'; expected 'elimination' or 'enumeration'"):
        lgm.exact("luck")


@pytest.mark.parametrize("rule", ["lbp", MeanField, lgm.lbp()])
def test_what_is_no_rule(rule):
    with pytest.raises(
        lgm.errors.InferenceError, match=r"rule=.*; expected an instance of Rule, such as MeanField\(\)"
    ):
        lgm.Method(rule, sweep, 3)


def test_names_of_schedules_are_for_those_who_know_them():
    with pytest.raises(
        lgm.errors.InferenceError, match=r"schedule='sweep'; expected a function of the wiring; only lbp\(\)"
    ):
        lgm.Method(MeanField(), "sweep", 3)


def test_unknown_options_are_errors():
    with pytest.raises(TypeError, match="temperature"):
        lgm.lbp(temperature=1.0)


def test_methods_are_frozen_records():
    method = lgm.trw(7, "sweep", damping=0.1)
    assert method == lgm.trw(7, "sweep", damping=0.1)
    assert hash(method) == hash(lgm.trw(7, "sweep", damping=0.1))
    assert len({lgm.lbp(), lgm.trw(), lgm.mean_field(), lgm.lbp(product="max"), lgm.exact()}) == 5
    assert dataclasses.replace(method, iterations=9) == lgm.trw(9, "sweep", damping=0.1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        method.iterations = 3


@pytest.mark.parametrize("wrong", ["lbp", lgm.lbp])
def test_a_method_is_made_by_calling(wrong):
    model = lgm.LGM(lgm.zoo.rbm(2, 2))
    with pytest.raises(lgm.errors.InferenceError, match=r"expected lbp\(\), trw\(\), mean_field\(\) or exact\(\)"):
        lgm.infer(model, {}, wrong)


def test_a_model_is_not_called():
    with pytest.raises(lgm.errors.InferenceError, match=r"torchlgm.infer\(model, evidence, method\)"):
        lgm.LGM(lgm.zoo.rbm(2, 2))({"visible": [[0, 1]]})


def test_methods_are_shown_as_they_are_written():
    def mine(wiring):
        yield from ()

    shown = {
        "lbp(3, 'sweep')": lgm.lbp(3),
        "trw(5, 'sequential', product='max')": lgm.trw(5, "sequential", product="max"),
        "mean_field(2, 'sweep', damping=0.1)": lgm.mean_field(2, "sweep", damping=0.1),
        "lbp(2, mine, tolerance=0.001)": lgm.lbp(2, mine, tolerance=1e-3),
    }
    assert {words: repr(method) for words, method in shown.items()} == {words: words for words in shown}


class Halved(BeliefPropagation):
    def send(self, link, side, belief, reverse):
        edges, inflow = super().send(link, side, belief, reverse)
        return Message(edges / 2, inflow / 2)


def test_a_subclass_that_sends_other_messages_is_not_replaced_by_kernels():
    model = lgm.LGM(lgm.zoo.rbm(3, 2))
    method = lgm.Method(Halved(), parallel, 3)
    with lgm.backend("eager"):
        expected = lgm.infer(model, {}, method)["hidden"].probs
    with lgm.backend("native"):
        torch.testing.assert_close(lgm.infer(model, {}, method)["hidden"].probs, expected)
    assert (lgm.infer(model, {}, lgm.lbp(3, "parallel"))["hidden"].probs - expected).abs().max() > 1e-3


def test_a_method_whose_rule_has_no_function_shows_the_rule():
    assert repr(lgm.Method(Halved(maximise=True), parallel, 3)).startswith("Method(Halved(")


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_known_by_the_name_that_they_show(name):
    assert repr(METHODS[name](2)).startswith(f"{name}(2, ")
    assert getattr(lgm, name) is METHODS[name]
