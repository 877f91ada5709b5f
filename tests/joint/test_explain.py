"""Influence against enumeration, and traces against longer runs."""

from dataclasses import replace

import pytest
import torch

import torchlgm as lgm
from helpers.problems import BY_NAME, KINDS, enumerate_all, evidence_for, model_of, spell_out
from torchlgm import explain
from torchlgm.errors import InferenceError

CASES = {"star": ("inputs", "classes"), "skip": ("v", "c"), "conv": ("v", "c"), "rbm": ("visible", "hidden")}


def brute_odds(model, evidence, sample, target, node):
    """log p - log(1 - p) of each label by enumeration of all labellings."""
    spelled = spell_out(model, evidence, sample)
    share = torch.tensor(enumerate_all(spelled).nodes[target, node])
    return share.log() - (1 - share).log()


def hidden_at(values, sample, node):
    """The values, as soft ones, without one node of one sample."""
    values = values.double().clone()
    values[sample].view(-1)[node] = torch.nan
    return values


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "none"])
@pytest.mark.parametrize("name", CASES)
def test_influence_is_the_change_of_log_odds_by_enumeration(name, kind):
    source, target = CASES[name]
    model, evidence = model_of(BY_NAME[name]), evidence_for(BY_NAME[name], kind)
    node = model.graph.layer(target).nodes - 1
    moved = explain.influence(model, evidence, source, target, lgm.exact(), node=node, batch_size=2)
    values = evidence[source].double()
    assert moved.shape == (*values.shape, model.graph.layer(target).labels)
    for sample in range(len(values)):
        whole = brute_odds(model, evidence, sample, target, node)
        for i in range(values[sample].numel()):
            said = moved[sample].flatten(0, -2)[i]
            if values[sample].view(-1)[i].isnan():
                assert not said.any()
            else:
                without = {**evidence, source: hidden_at(values, sample, i)}
                torch.testing.assert_close(said, whole - brute_odds(model, without, sample, target, node))


def test_influence_of_a_hard_label_is_the_weight_of_evidence():
    """log p(x_i | k, rest) - log p(x_i | not k, rest), which asks the model the other way round."""
    model, evidence = model_of(BY_NAME["star"]), evidence_for(BY_NAME["star"], "hard", batch=1)
    moved = explain.influence(model, evidence, "inputs", "classes", lgm.exact())
    for i in range(3):
        rest = hidden_at(evidence["inputs"], 0, i)
        belief = lgm.infer(model, {"inputs": rest}, lgm.exact())["classes"].probs[0, 0]
        label = int(evidence["inputs"][0, i])
        given = torch.stack(
            [
                lgm.infer(model, {"inputs": rest, "classes": torch.tensor([[k]])}, lgm.exact())["inputs"].probs[
                    0, i, label
                ]
                for k in range(3)
            ]
        )
        for k in range(3):
            others = torch.arange(3) != k
            against = (given * belief)[others].sum() / belief[others].sum()
            torch.testing.assert_close(moved[0, i, k], given[k].log() - against.log())


def test_influence_of_labels_beyond_two():
    model = model_of(BY_NAME["chain"])
    labels = torch.tensor([[2, 0]])
    moved = explain.influence(model, {"v": labels}, "v", "c", lgm.exact())
    whole = brute_odds(model, {"v": labels}, 0, "c", 0)
    vectors = torch.nn.functional.one_hot(labels, 3).double()
    vectors[0, 0] = torch.nan
    torch.testing.assert_close(moved[0, 0], whole - brute_odds(model, {"v": vectors}, 0, "c", 0))


def weak_star():
    model = model_of(BY_NAME["star"], scale=0.05)
    return model, {"inputs": torch.rand(4, 3)}


@pytest.mark.parametrize("method", [lgm.lbp(1), lgm.lbp(5), lgm.mean_field(8, "sweep")], ids=["one", "five", "field"])
def test_quick_influence_is_right_to_first_order(method):
    """At weak energies, the error is an order smaller than the influence."""
    model, evidence = weak_star()
    slow = explain.influence(model, evidence, "inputs", "classes", method)
    quick = explain.quick_influence(model, evidence, "inputs", "classes", method)
    assert quick.shape == slow.shape
    assert (quick - slow).abs().max() < 0.1 * slow.abs().max()


def test_quick_influence_hears_the_rest():
    """Many pixels of the model's own, where what the others say about a pixel matters."""
    generator = torch.Generator().manual_seed(0)
    model = lgm.LGM(lgm.zoo.dense(inputs=40, hidden=[3], classes=3), lgm.Init(table=1.0), generator=generator)
    drawn = lgm.sample(model, {"classes": torch.zeros(5, 1).long()}, sweeps=30, generator=generator)
    evidence, method = {"inputs": drawn["inputs"].double()}, lgm.lbp(8)
    slow = explain.influence(model, evidence, "inputs", "classes", method)
    quick = explain.quick_influence(model, evidence, "inputs", "classes", method)
    assert torch.corrcoef(torch.stack([quick.flatten(), slow.flatten()]))[0, 1] > 0.9


def test_quick_influence_of_what_is_missing_is_0():
    model, evidence = model_of(BY_NAME["star"]), evidence_for(BY_NAME["star"], "missing")
    quick = explain.quick_influence(model, evidence, "inputs", "classes")
    free = evidence["inputs"].isnan()
    assert not quick[free].any()
    assert quick[~free].all()


METHODS = {
    "lbp": lgm.lbp(6),
    "parallel": lgm.lbp(6, "parallel"),
    "damped": lgm.trw(6, "sequential", damping=0.3),
    "field": lgm.mean_field(6),
    "field sweep": lgm.mean_field(6, "sweep"),
}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("kind", ["none", "missing"])
def test_a_trace_has_the_beliefs_of_shorter_runs(name, kind):
    model, evidence = model_of(BY_NAME["loop"]), evidence_for(BY_NAME["loop"], kind)
    rows = explain.trace(model, evidence, METHODS[name], ["c", "b"])
    for steps in (1, 2, 6):
        beliefs = lgm.infer(model, evidence, replace(METHODS[name], iterations=steps))
        for layer in ("c", "b"):
            torch.testing.assert_close(rows[layer][steps - 1], beliefs[layer].probs)
    assert rows["c"].shape[0] == 6


def test_a_trace_where_nothing_is_left_to_send():
    model = model_of(BY_NAME["star"])
    rows = explain.trace(model, {"hidden": torch.ones(2, 3)}, lgm.lbp(3), ["classes"])
    assert rows["classes"].shape == (3, 2, 1, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": "hidden"}, "source='hidden' has no evidence to weigh; there is some about inputs"),
        ({"target": "inputs"}, "target='inputs' is unknown or observed; expected one of hidden, class"),
        ({"target": "digits"}, "target='digits' is unknown"),
        ({"node": 1}, "node=1; layer 'classes' has nodes 0 to 0"),
    ],
)
@pytest.mark.parametrize("weigh", [explain.influence, explain.quick_influence])
def test_bad_questions(weigh, change, message):
    model, evidence = weak_star()
    with pytest.raises(InferenceError, match=message):
        weigh(**{"model": model, "evidence": evidence, "source": "inputs", "target": "classes"} | change)


def test_only_what_iterates_has_a_trace():
    model, evidence = weak_star()
    with pytest.raises(InferenceError, match=r"method=Exact.* has no iterations; expected lbp\(\)"):
        explain.trace(model, evidence, lgm.exact(), ["classes"])
    with pytest.raises(InferenceError, match="has no iterations"):
        explain.quick_influence(model, evidence, "inputs", "classes", lgm.exact())


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_quick_influence_needs_no_mode(mode):
    problem = BY_NAME["star"]
    model, evidence = model_of(problem), evidence_for(problem, "soft")
    expected = explain.quick_influence(model, evidence, "inputs", "classes")
    with mode():
        made_here = {name: values.clone() for name, values in evidence.items()}
        torch.testing.assert_close(explain.quick_influence(model, made_here, "inputs", "classes"), expected)


def test_batches_of_nothing():
    problem = BY_NAME["star"]
    with pytest.raises(InferenceError, match="batch_size=0; expected at least 1"):
        explain.influence(model_of(problem), evidence_for(problem, "soft"), "inputs", "classes", batch_size=0)
