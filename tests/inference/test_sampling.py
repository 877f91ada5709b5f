"""Gibbs sampling: frequencies against exact marginals, evidence, chains that go on."""

from itertools import islice

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import torchlgm as lgm
from helpers import problems
from helpers.problems import BY_NAME, Case, by_case, evidence_for, model_of
from torchlgm.inference.sampling import conditional, draw

CHAINS, SWEEPS = 1500, 12
SAMPLED = [Case(BY_NAME[name], "missing") for name in ("rbm", "skip", "conv", "local-tree", "twin", "ring", "grid")]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def repeated(evidence, times):
    return {name: values.repeat_interleave(times, 0) for name, values in evidence.items()}


@pytest.mark.parametrize(**by_case(SAMPLED))
def test_frequencies_are_the_exact_marginals(case):
    """Many independent chains for each sample: each frequency is within five standard errors."""
    model = model_of(case.problem)
    labels = lgm.sample(model, repeated(case.evidence, CHAINS), sweeps=SWEEPS, generator=seeded())
    for name, drawn in labels.items():
        exact = problems.probs_of(case.truth, name)
        drawn = drawn.flatten(1).unflatten(0, (-1, CHAINS))
        clamp = model.condition(case.evidence).clamps.get(name)
        free = torch.ones(exact.shape[:2], dtype=torch.bool) if clamp is None else clamp.free
        for label in range(exact.shape[-1]):
            p = exact[..., label]
            error = ((drawn == label).double().mean(1) - p).abs()[free]
            assert (error <= 5 * ((p * (1 - p))[free] / CHAINS).sqrt()).all()


def test_one_long_chain_visits_labellings_as_often_as_they_are_probable():
    """Pairs of labels, so that dependence between layers shows."""
    case = Case(BY_NAME["rbm"], "none")
    mrf = case.model.condition({})
    with torch.no_grad():
        states = list(islice(lgm.gibbs(mrf, seeded()), 200, 3200))
    visible, hidden = (torch.cat([s[n] for s in states])[:, 0] for n in ("visible", "hidden"))
    joint = torch.zeros(2, 3)
    joint.index_put_((visible, hidden), torch.ones(len(states)), accumulate=True)
    edge = next(i for i, e in enumerate(case.spelled[0].edges) if e.at == (0, 0))
    assert_close(joint / len(states), torch.tensor(case.truth[0].edges[edge]), rtol=0, atol=0.04)


def test_observed_nodes_keep_what_was_seen():
    problem = BY_NAME["rbm"]
    seen = {"visible": torch.tensor([[1.0, torch.nan, 0.3], [0.0, 0.9, torch.nan]])}
    for _ in range(3):
        labels = lgm.sample(model_of(problem), seen, sweeps=2, generator=seeded())
        assert labels["visible"][0, [0, 2]].tolist() == [1, 0]
        assert labels["visible"][1, :2].tolist() == [0, 1]
    everything = lgm.sample(model_of(problem), evidence_for(problem, "hard"), sweeps=2, generator=seeded())
    assert torch.equal(everything["visible"], evidence_for(problem, "hard")["visible"].long())


def test_shapes_and_labels():
    case = Case(BY_NAME["conv"], "none")
    unseen = {"v": torch.full((50, 1, 3), torch.nan)}
    labels = lgm.sample(case.model, unseen, sweeps=1, generator=seeded())
    assert {name: tuple(x.shape) for name, x in labels.items()} == {"v": (50, 1, 3), "h": (50, 2, 2), "c": (50, 1)}
    assert set(labels["c"].flatten().tolist()) == {0, 1, 2}
    assert labels["c"].dtype == torch.int64


@pytest.mark.parametrize(**by_case([Case(BY_NAME["conv"], "missing"), Case(BY_NAME["skip"], "hard")]))
def test_the_same_seed_gives_the_same_samples(case):
    first, again, other = (
        lgm.sample(case.model, repeated(case.evidence, 20), sweeps=3, generator=seeded(seed)) for seed in (1, 1, 2)
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize(**by_case([Case(BY_NAME["conv"], "missing"), Case(BY_NAME["skip"], "hard")]))
def test_a_start_goes_on_with_the_same_chain(case):
    evidence = repeated(case.evidence, 20)
    uninterrupted = lgm.sample(case.model, evidence, sweeps=5, generator=seeded())
    generator = seeded()
    begun = lgm.sample(case.model, evidence, sweeps=2, generator=generator)
    finished = lgm.sample(case.model, evidence, sweeps=3, generator=generator, start=begun)
    assert all(torch.equal(uninterrupted[name], finished[name]) for name in uninterrupted)


def test_sampling_keeps_no_graph_and_touches_no_global_seed():
    case = Case(BY_NAME["rbm"], "none")
    before = torch.get_rng_state()
    labels = lgm.sample(case.model, {}, sweeps=2, generator=seeded())
    assert torch.equal(before, torch.get_rng_state())
    assert not any(x.requires_grad for x in labels.values())


@pytest.mark.parametrize("sweeps", [0, -1, 2.0, True])
def test_no_sweeps(sweeps):
    with pytest.raises(lgm.errors.InferenceError, match=f"sweeps={sweeps}; expected a whole number >= 1"):
        lgm.sample(Case(BY_NAME["rbm"], "none").model, {}, sweeps=sweeps, generator=seeded())


def test_a_start_must_know_every_free_layer():
    case = Case(BY_NAME["skip"], "none")
    start = {"v": torch.zeros(1, 2).long(), "c": torch.zeros(1, 1).long()}
    with pytest.raises(lgm.errors.EvidenceError, match="labels of layer 'h' must be a tensor"):
        lgm.sample(case.model, {}, sweeps=1, generator=seeded(), start=start)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (torch.full((1, 2), 9), "labels of layer 'v' must be 0 to 1, got 9 to 9"),
        (torch.zeros(1, 3).long(), r"must be a tensor \(batch, 2\), got \(1, 3\)"),
        (torch.full((1, 2), 0.5), "must be whole numbers, got torch.float32"),
    ],
)
def test_a_start_or_labelling_that_cannot_be(wrong, message):
    case = Case(BY_NAME["skip"], "none")
    labels = lgm.sample(case.model, {}, sweeps=1, generator=seeded()) | {"v": wrong}
    with pytest.raises(lgm.errors.EvidenceError, match=message):
        lgm.sample(case.model, {}, sweeps=1, generator=seeded(), start=labels)
    with pytest.raises(lgm.errors.EvidenceError, match=message):
        lgm.energy(case.model.condition(), labels)


def test_a_start_of_other_samples():
    case = Case(BY_NAME["skip"], "none")
    seen = repeated(evidence_for(case.problem, "missing"), 5)
    start = lgm.sample(case.model, seen, sweeps=np.int64(1), generator=seeded())
    with pytest.raises(lgm.errors.InferenceError, match=r"start= has labels of \d+ samples"):
        lgm.sample(case.model, None, sweeps=1, generator=seeded(), start=start)


def test_a_seed_is_no_generator():
    with pytest.raises(lgm.errors.InferenceError, match="generator=0; expected"):
        lgm.sample(Case(BY_NAME["rbm"], "none").model, {}, sweeps=1, generator=0)


@pytest.mark.parametrize("name", ["skip", "conv", "loop"])
def test_conditionals_are_ratios_of_energies(name):
    """The log-odds of one layer given the rest, from the energies of labellings that differ in one node."""
    case = Case(BY_NAME[name], "soft")
    mrf = case.model.condition(case.evidence)
    state = next(lgm.gibbs(mrf, seeded()))
    for layer in mrf.unary:
        logits = conditional(mrf, layer, state)
        for node, label in [(n, k) for n in range(logits.shape[1]) for k in range(logits.shape[2])]:
            zero, other = state[layer].clone(), state[layer].clone()
            zero[:, node], other[:, node] = 0, label + 1
            odds = lgm.energy(mrf, {**state, layer: zero}) - lgm.energy(mrf, {**state, layer: other})
            assert_close(logits[:, node, label], odds)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_draws_follow_their_probabilities(k):
    logits = 2 * torch.randn(1, 3, k)
    count = 20000
    drawn = draw(logits.expand(count, -1, -1), seeded())
    p = torch.softmax(torch.nn.functional.pad(logits[0], (1, 0)), -1)
    share = torch.nn.functional.one_hot(drawn, k + 1).double().mean(0)
    assert ((share - p).abs() <= 5 * (p * (1 - p) / count).sqrt()).all()


@pytest.mark.parametrize("k", [1, 3])
def test_impossible_labels_are_never_drawn(k):
    logits = torch.full((1000, 4, k), -1e30)
    assert draw(logits, seeded()).sum() == 0
    assert (draw(-logits[..., :1], seeded()) == 1).all()
    assert draw(torch.full((1000, 4, k), -1e30, dtype=torch.float32), seeded()).sum() == 0


def test_without_a_generator_the_default_one_draws():
    model = Case(BY_NAME["rbm"], "none").model
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(lgm.sample(model, {"hidden": torch.full((50, 2), torch.nan)}, sweeps=2)["visible"])
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
