"""Exact inference: elimination and enumeration against plain enumeration, their gradients and their limits."""

import time
from itertools import pairwise

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn.functional import softplus
from torch.testing import assert_close

import torchlgm as lgm
from helpers import problems
from helpers.problems import BY_NAME, CASES, DOUBLE, Case, as_function, by_case, evidence_for, model_of
from torchlgm import zoo
from torchlgm.inference.elimination import enumerate_labellings

WAYS = pytest.mark.parametrize("by", ["elimination", "enumeration"])


@pytest.mark.pairs
@WAYS
@pytest.mark.parametrize(**by_case(CASES + DOUBLE))
def test_marginals_and_log_z(case, by):
    beliefs = lgm.infer(case.model, case.evidence, lgm.exact(by))
    for layer in case.problem.graph.layers:
        assert_close(beliefs[layer.name].probs.flatten(1, -2), problems.probs_of(case.truth, layer.name))
    log_z = torch.tensor([truth.log_z for truth in case.truth])
    assert_close(beliefs.log_z, log_z)
    assert_close(beliefs.log_z_lower, log_z)
    assert_close(beliefs.log_z_upper, log_z)
    assert beliefs.converged.all()


@pytest.mark.pairs
@WAYS
@pytest.mark.parametrize(**by_case(CASES + DOUBLE))
def test_edge_marginals(case, by):
    beliefs = lgm.infer(case.model, case.evidence, lgm.exact(by))
    joints = {c.name: beliefs.edges(c.name) for c in case.problem.graph.connections}
    for sample, (spelled, truth) in enumerate(zip(case.spelled, case.truth, strict=True)):
        for edge, table in zip(spelled.edges, truth.edges, strict=True):
            assert_close(joints[edge.connection][(sample, *edge.at)], torch.tensor(table))


@pytest.mark.pairs
@WAYS
@pytest.mark.parametrize(**by_case(CASES + DOUBLE))
def test_best_labelling(case, by):
    best = lgm.infer(case.model, case.evidence, lgm.exact(by)).map()
    for sample, truth in enumerate(case.truth):
        assert_close(best.energy[sample], torch.tensor(truth.energy))
        for (layer, i), label in truth.best.items():
            assert best.labels[layer][sample].flatten()[i] == label


@pytest.mark.parametrize("name", ["rbm", "loop", "local"])
def test_best_labelling_with_ties_is_one_of_them(name):
    """Whole energies make many labellings equally good; the labels found must go together."""
    problem = BY_NAME[name]
    for seed in range(5):
        model = model_of(problem, seed)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.round_()
        evidence = evidence_for(problem, "missing")
        best = lgm.infer(model, evidence, lgm.exact()).map()
        for sample in range(3):
            spelled = problems.spell_out(model, evidence, sample)
            labels = {(n, i): int(best.labels[n][sample].flatten()[i]) for n, i in spelled.free}
            least = problems.enumerate_all(spelled).energy
            assert_close(problems.energy_of(spelled, labels), least)
            assert_close(best.energy[sample].item(), least)


def test_all_labels_equal_without_energies():
    graph = zoo.grid(2, 3, labels=3)
    beliefs = lgm.infer(lgm.LGM(graph, init="zero"), {}, lgm.exact())
    assert_close(beliefs["cells"].probs, torch.full((1, 1, 2, 3, 3), 1 / 3))
    assert beliefs.map().energy.item() == 0


@WAYS
@pytest.mark.parametrize("name", ["skip", "twin", "conv-tree"])
def test_gradients(name, by):
    problem = BY_NAME[name]
    mrf, parameters = as_function(model_of(problem), evidence_for(problem, "missing"))
    first, last = problem.graph.layer_names[0], problem.graph.layer_names[-1]

    def answer(*values):
        beliefs = lgm.solve(mrf(*values), lgm.exact(by))
        edges = beliefs.edges(problem.graph.connections[0].name)
        return beliefs.log_z, beliefs[first].probs, beliefs[last].probs, edges

    assert gradcheck(answer, parameters, fast_mode=True)


def test_second_derivatives_of_log_z_are_the_gradients_of_the_marginals():
    problem = BY_NAME["skip"]
    model = model_of(problem)
    probs = lgm.infer(model, {}, lgm.exact())["c"].probs[0, 0, 1:]
    direct = torch.stack([torch.autograd.grad(p, model.unary["h"], retain_graph=True)[0] for p in probs])
    log_z = lgm.infer(model, {}, lgm.exact("enumeration")).log_z.sum()
    (first,) = torch.autograd.grad(-log_z, model.unary["c"], create_graph=True)
    twice = torch.stack([torch.autograd.grad(g, model.unary["h"], retain_graph=True)[0] for g in first[0]])
    assert_close(direct, twice)


def test_answers_ask_for_gradients_only_where_the_model_does():
    case = Case(BY_NAME["skip"], "missing")
    model = case.model
    with torch.no_grad():
        assert not lgm.infer(model, case.evidence, lgm.exact())["c"].probs.requires_grad
    assert lgm.infer(model, case.evidence, lgm.exact())["c"].probs.requires_grad
    model.requires_grad_(False)
    frozen = lgm.infer(model, case.evidence, lgm.exact())
    assert not frozen["c"].probs.requires_grad
    assert not frozen.edges("v-h").requires_grad
    assert not frozen.log_z.requires_grad


def test_enumeration_refuses_what_is_too_large():
    model = lgm.LGM(zoo.rbm(20, 20))
    with pytest.raises(
        lgm.errors.TooLargeError,
        match=r"1,099,511,627,776 labellings for each of 1 samples exceed .* or a larger exact\(limit=\.\.\.\)",
    ):
        _ = lgm.infer(model, {}, lgm.exact("enumeration")).log_z


def test_elimination_refuses_what_is_too_large():
    model = lgm.LGM(zoo.rbm(40, 40))
    with pytest.raises(
        lgm.errors.TooLargeError, match=r"a factor of 2,199,023,255,552 numbers .* use lbp, trw or mean_field"
    ):
        _ = lgm.infer(model, {}, lgm.exact()).log_z
    with pytest.raises(lgm.errors.TooLargeError, match=r"smaller batches, or a larger exact\(limit=\.\.\.\)"):
        lgm.infer(model, {}, lgm.exact()).map()


@WAYS
def test_the_limit_counts_samples(by):
    case = Case(BY_NAME["rbm"], "none")
    unseen = {"visible": torch.full((100, 3), torch.nan)}
    enough = 100 * (2**3 * 3**2)
    assert lgm.infer(case.model, unseen, lgm.exact(by, limit=enough)).log_z.shape == (100,)
    with pytest.raises(lgm.errors.TooLargeError, match="100 samples"):
        _ = lgm.infer(case.model, unseen, lgm.exact(by, limit=100 * 3)).log_z


def test_a_star_of_a_hundred_hidden_nodes_is_quick():
    """Equal to log p(y|v) = -E_y + sum_j softplus(-E_j - W_j v - V_jy) - log-normaliser."""
    model = lgm.LGM(zoo.dense(8, (100,), 10), init="paper")
    pixels = torch.rand(5, 8)
    began = time.process_time()
    probs = lgm.infer(model, {"inputs": pixels}, lgm.exact())["classes"].probs
    assert time.process_time() - began < 5
    hidden = -model.unary["hidden"].squeeze(1) - pixels @ model.table["inputs-hidden"][..., 0, 0]
    rows = torch.nn.functional.pad(model.table["hidden-classes"][:, 0, 0], (1, 0))
    scores = torch.nn.functional.pad(-model.unary["classes"][0], (1, 0))
    scores = scores + softplus(hidden.unsqueeze(-1) - rows, threshold=40).sum(1)
    assert_close(probs[:, 0], scores.softmax(-1))


def test_a_long_chain_of_small_layers():
    """Far beyond enumeration; equal to a product of transfer matrices, one for each connection."""
    names = [f"l{i}" for i in range(12)]
    layers = [lgm.Layer(n, 2) for n in names]
    connections = [lgm.Dense(a, b) for a, b in pairwise(names)]
    model = lgm.LGM(lgm.Graph(layers, connections), init="paper")
    states = torch.tensor([[a, b] for a in (0.0, 1.0) for b in (0.0, 1.0)])
    forward = -(states @ model.unary["l0"][:, 0])
    for c in connections:
        pair = -(states @ model.table[c.name][..., 0, 0] @ states.T) - states @ model.unary[c.right][:, 0]
        forward = torch.logsumexp(forward.unsqueeze(1) + pair, 0)
    assert_close(lgm.infer(model, {}, lgm.exact()).log_z, forward.logsumexp(0, keepdim=True))


@pytest.mark.parametrize("labels", [2, 3])
def test_a_grid(labels):
    model = lgm.LGM(zoo.grid(3, 3 if labels == 3 else 4, labels), init="paper")
    mine, theirs = (lgm.infer(model, {}, lgm.exact(by)) for by in ("elimination", "enumeration"))
    assert_close(mine.log_z, theirs.log_z)
    assert_close(mine["cells"].probs, theirs["cells"].probs)


def test_enumeration_lists_every_labelling_once():
    case = Case(BY_NAME["rbm"], "none")
    every = enumerate_labellings(case.model.condition({}))
    rows = torch.cat([every.labels["visible"], every.labels["hidden"]], 1)
    assert rows.shape == (2**3 * 3**2, 5)
    assert len(rows.unique(dim=0)) == len(rows)
    assert_close(every.log_probs.exp().sum(1), torch.ones(1))
    best = every.log_probs[0].argmax()
    assert dict(zip(case.spelled[0].free, rows[best].tolist(), strict=True)) == case.truth[0].best


def test_the_same_question_gets_the_same_answer_bit_for_bit():
    """The order in which factors are added up must not depend on where they lie in memory."""
    case = Case(BY_NAME["chain"], "hard")
    model = case.model
    answers = [lgm.infer(model, case.evidence, lgm.exact()) for _ in range(20)]
    for answer in answers:
        assert torch.equal(answer.log_z, answers[0].log_z)
        assert torch.equal(answer["h"].probs, answers[0]["h"].probs)


@WAYS
def test_nothing_left_to_infer(by):
    case = Case(BY_NAME["rbm"], "hard")
    everything = {**case.evidence, "hidden": torch.tensor([[0, 2], [1, 1], [2, 0]])}
    beliefs = lgm.infer(case.model, everything, lgm.exact(by))
    truth = [problems.enumerate_all(problems.spell_out(case.model, everything, b)) for b in range(3)]
    assert_close(beliefs.log_z, torch.tensor([t.log_z for t in truth]))
    assert_close(beliefs.map().energy, torch.tensor([t.energy for t in truth]))
    assert beliefs["hidden"].labels.tolist() == everything["hidden"].tolist()
    assert beliefs.edges("visible-hidden").sum((-2, -1)).allclose(torch.ones(3, 3, 2))
