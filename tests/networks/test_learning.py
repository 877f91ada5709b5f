"""Pairs, the most probable labelling, gradients and EM against plain sums over the joint distribution."""

import itertools

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import torchlgm as lgm
from helpers.networks import LABELS, conditioned, hard, joint_of, random_network
from torchlgm.errors import DataError, EvidenceError, InferenceError, TooLargeError, TrainingError
from torchlgm.networks import Network, network_of
from torchlgm.networks.solvers.junction import junction_tree
from torchlgm.networks.solvers.passes import Pass, clique_tables


def bayesian(seed=0, labels=(2, 3, 2, 2, 3), parents=((), (0,), (0, 1), (2,), (1, 3)), zeros=0.0):
    """Random conditional tables, and their joint distribution."""
    rng = np.random.default_rng(seed)
    factors = []
    for child, above in enumerate(parents):
        table = rng.dirichlet(np.full(labels[child], 0.7), [labels[v] for v in above])
        table = np.where(rng.random(table.shape) < zeros, 0.0, table)
        table[..., 0] += table.sum(-1) == 0
        with np.errstate(divide="ignore"):
            factors.append(((*above, child), -np.log(table / table.sum(-1, keepdims=True))))
    network = network_of(labels, factors, list(range(len(labels))))
    return network, joint_of(labels, factors)


@pytest.mark.parametrize("seed", range(3))
def test_pairs_are_those_of_the_joint(backend, seed):
    labels, factors = random_network(seed)
    joint, codes = joint_of(labels, factors), hard(labels, 6, seed)
    soft = np.random.default_rng(seed).random((6, labels[3]))
    pairs = [(0, 1), (5, 0), (3, 2), (4, 1)]
    result = network_of(labels, factors).posteriors(codes, [0], pairs, {3: soft})
    assert result.exact.all()
    assert list(result) == [0]
    for row, labelling in enumerate(codes):
        for a, b in pairs:
            for label in range(labels[a]):
                given = labelling.copy()
                allowed = given[a] in (-1, label)
                given[a] = label
                expected = 0.0
                if allowed:
                    with_a, log_z = conditioned(joint, given, {3: soft[row]})
                    expected = with_a[b] * np.exp(log_z - result.log_evidence[row].item())
                np.testing.assert_allclose(result.pairs[a, b][row, label].numpy(), expected, atol=1e-9)


def test_pairs_by_message_passing_on_a_tree():
    labels, scopes = (2, 3, 4, 2), [(0, 1), (1, 2), (1, 3), (0,)]
    network, codes = network_of(*random_network(3, labels=labels, scopes=scopes)), hard(labels, 9)
    truth = network.posteriors(codes, pairs=[(0, 2), (3, 1)])
    ours = network.posteriors(codes, pairs=[(0, 2), (3, 1)], method=lgm.lbp(20, tolerance=1e-9))
    assert not ours.exact.any()
    for pair, p in truth.pairs.items():
        assert_close(ours.pairs[pair], p, rtol=0, atol=1e-7)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_not_asked_about_is_summed_out_rightly(backend, seed):
    network, joint = bayesian(seed, zeros=0.2)
    codes = hard(network.labels, 5, seed, share=0.3)
    codes[:, 4] = -1  # nothing below it
    for asked in ([0], [3], [2, 1]):
        possible = [row for row, labelling in enumerate(codes) if conditioned_mass(joint, labelling) > 0]
        result = network.posteriors(codes[possible], asked)
        for row, labelling in enumerate(codes[possible]):
            expected, log_z = conditioned(joint, labelling)
            assert result.log_evidence[row].item() == pytest.approx(log_z, abs=1e-9)
            for v in asked:
                np.testing.assert_allclose(result[v][row].numpy(), expected[v], atol=1e-9)


def conditioned_mass(joint, labelling):
    return joint[tuple(slice(None) if label < 0 else label for label in labelling)].sum()


def test_variables_without_factors_count_too(backend):
    network = network_of([2, 3, 4], [((1,), np.zeros(3))])
    result = network.posteriors([[-1, -1, 2]], [0])
    assert_close(result.log_evidence.exp().item(), 6.0)
    assert_close(result[0], torch.full((1, 2), 0.5, dtype=torch.float64))


@pytest.mark.parametrize("seed", range(4))
def test_the_most_probable_labelling_is_that_of_the_joint(backend, seed):
    labels, factors = random_network(seed, zeros=0.1)
    network, joint = network_of(labels, factors), joint_of(labels, factors)
    codes = hard(labels, 8, seed, share=0.3)
    codes = codes[[conditioned_mass(joint, row) > 0 for row in codes]]
    soft = np.random.default_rng(seed).random((len(codes), labels[3]))
    found = network.map(codes, likelihoods={3: soft})
    assert found.exact.all()
    for row, labelling in enumerate(codes):
        weighted = joint * soft[row].reshape(1, 1, 1, -1, 1, 1)
        states = [range(k) if label < 0 else [label] for k, label in zip(labels, labelling.tolist(), strict=True)]
        agrees = itertools.product(*states)
        best = max(agrees, key=lambda x: weighted[x])
        assert tuple(found.labels[row].tolist()) == best
        assert found.log_prob[row].item() == pytest.approx(np.log(weighted[best]), abs=1e-9)


def test_labellings_have_the_names_of_states():
    rain, wet = -np.log([0.8, 0.2]), -np.log([[0.9, 0.1], [0.25, 0.75]])
    network = Network({"rain": ["no", "yes"], "grass": ["dry", "wet"]}, [((0,), rain), ((0, 1), wet)])
    found = network.map({"grass": ["wet", None]})
    assert found.states() == {"rain": ["yes", "no"], "grass": ["wet", "dry"]}
    assert found["rain"] == ["yes", "no"]
    with pytest.raises(InferenceError, match="finds marginals; use product='max'"):
        network.map({"grass": ["wet"]}, method=lgm.lbp(5))
    with pytest.raises(InferenceError, match=r"use network\.map"):
        network.posteriors({"grass": ["wet"]}, method=lgm.lbp(5, product="max"))
    with np.errstate(divide="ignore"):
        certain = network_of([2, 2], [((0, 1), -np.log([[1.0, 0.0], [0.5, 0.5]]))])
    with pytest.raises(EvidenceError, match=r"probability 0 in 1 row \(1\)"):
        certain.map([[1, 1], [0, 1]])
    with pytest.raises(EvidenceError, match="expected the names of two different variables"):
        network.posteriors({"grass": ["wet"]}, pairs=[("rain", "rain")])


def test_a_clique_too_wide_gets_its_labelling_by_max_product():
    pairs = [(a, b) for a in range(12) for b in range(a)]
    rng = np.random.default_rng(0)
    network = network_of([2] * 12, [(pair, 0.1 * rng.standard_normal((2, 2))) for pair in pairs])
    found = network.map({0: [1, 0]}, method=lgm.lbp(20, product="max"))
    assert found.labels[:, 0].tolist() == [1, 0]
    assert not found.exact.any()
    with pytest.raises(TooLargeError, match="needs more than 1,024 numbers for a row"):
        network.map({0: [1, 0]}, method=lgm.exact(limit=2**10))


def test_gradients_of_posteriors_and_log_evidence(backend):
    labels, factors = random_network(1, zeros=0.1)
    network, codes = network_of(labels, factors), hard(labels, 4, 1, 0.3)
    impossible = [torch.from_numpy(np.isinf(e)) for _, e in network.factors]
    finite = [torch.from_numpy(np.where(np.isinf(e), 0, e)).requires_grad_() for _, e in network.factors]
    soft = torch.rand(4, labels[3], dtype=torch.float64, requires_grad=True)

    def answers(soft, *finite):
        energies = [torch.where(no, torch.inf, e) for no, e in zip(impossible, finite, strict=True)]
        found = network.posteriors(codes, [0, 3], [(0, 1), (3, 5)], {3: soft}, energies=energies)
        assert_close(network.log_evidence(codes, {3: soft}, energies), found.log_evidence)
        return (*found.values(), *found.pairs.values(), found.log_evidence)

    assert torch.autograd.gradcheck(answers, (soft, *finite), atol=1e-8, rtol=1e-6, fast_mode=True)
    with torch.no_grad():
        plain = network.posteriors(codes, [0, 3], [(0, 1), (3, 5)], {3: soft})
        for ours, expected in zip(answers(soft, *finite)[:4], [*plain.values(), *plain.pairs.values()], strict=True):
            assert_close(ours, expected)


def test_tables_and_a_detector_are_learnt_from_a_loss_on_posteriors():
    """Nothing but p(class | what is seen) is trained; what is seen is soft, from a layer of PyTorch."""
    network, truth = bayesian()[0], bayesian(7)[0]
    codes = truth.sample(100, seed=1)
    wanted, seen = torch.from_numpy(codes[:, 0].copy()), torch.nn.functional.one_hot(torch.from_numpy(codes[:, 4]))
    codes[:, [0, 4]] = -1
    detector = torch.nn.Linear(3, 3, dtype=torch.float64)
    logits = [torch.from_numpy(-e).requires_grad_() for _, e in network.factors]
    optimiser = torch.optim.Adam([*logits, *detector.parameters()], lr=0.1)
    losses = []
    for _ in range(40):
        energies = [-x.log_softmax(x.dim() - 1) for x in logits]  # here each child is last
        likelihoods = {4: detector(seen.double()).softmax(1)}
        found = network.posteriors(codes, [0], likelihoods=likelihoods, energies=energies)
        losses.append(torch.nn.functional.nll_loss(found[0].log(), wanted))
        optimiser.zero_grad()
        losses[-1].backward()
        optimiser.step()
    assert losses[-1] < 0.8 * losses[0]


def test_what_gradients_need():
    labels, factors = random_network(1)
    network, codes = network_of(labels, factors), hard(labels, 4, 1)
    energies = [torch.from_numpy(e).requires_grad_() for _, e in network.factors]
    with pytest.raises(DataError, match="7 energies; expected one for each of 8"):
        network.log_evidence(codes, energies=energies[:-1])
    with pytest.raises(InferenceError, match="gives no gradients to tables"):
        network.posteriors(codes, energies=energies, method=lgm.lbp(3))
    with pytest.raises(EvidenceError, match="likelihoods with gradients must be > 0"):
        network.posteriors(codes, likelihoods={3: torch.eye(4).requires_grad_()})
    with pytest.raises(TooLargeError, match="needs more than 2 numbers"):
        network.posteriors(codes, energies=energies, method=lgm.exact(limit=2))


def test_the_junction_tree_stays_on_the_device_of_its_tables():
    labels, factors = random_network(1)
    tree = junction_tree(labels, tuple(scope for scope, _ in factors), 10**6)
    tables = clique_tables(tree, [(scope, torch.empty(e.shape, device="meta")) for scope, e in factors])
    found = Pass(tree, tables, {3: torch.empty(4, 5, device="meta")}, 5).marginals([(0,), (0, 1)])[0]
    assert [(p.shape, p.device.type) for p in found] == [((2, 5), "meta"), ((2, 3, 5), "meta")]


def test_em_without_holes_is_counting(backend):
    network, _ = bayesian()
    codes = np.random.default_rng(0).integers(0, 2, (200, 5))
    fitted = network.fit(codes, smoothing=0.5)
    assert fitted.converged
    scope, energies = fitted.network.factors[2]
    assert scope == (0, 1, 2)
    for a, b in itertools.product(range(2), range(2)):
        rows = codes[(codes[:, 0] == a) & (codes[:, 1] == b), 2]
        expected = (np.bincount(rows, minlength=2) + 0.5) / (len(rows) + 1)
        np.testing.assert_allclose(np.exp(-energies[a, b]), expected)
    assert_close(np.exp(-energies[0, 2]), np.array([0.5, 0.5]))  # never seen


def test_em_with_holes_climbs_to_where_the_gradient_is_zero(backend):
    network, joint = bayesian(3)
    flat = np.random.default_rng(1).choice(joint.size, 300, p=joint.ravel())
    codes = np.stack(np.unravel_index(flat, joint.shape), 1)
    codes = np.where(np.random.default_rng(2).random(codes.shape) < 0.7, codes, -1)
    fitted = network.fit(codes, iterations=400 if backend == "native" else 20, tolerance=1e-9)
    rises = np.diff(fitted.log_evidence)
    assert (rises > -1e-12).all()
    if backend == "eager":
        return
    energies = [torch.from_numpy(e).requires_grad_() for _, e in fitted.network.factors]
    tables = [torch.softmax(-e, e.dim() - 1) for e in energies]  # here each child is last
    fitted.network.log_evidence(codes, energies=[-t.log() for t in tables]).mean().backward()
    assert max(e.grad.abs().max().item() for e in energies) < 1e-3


def test_em_keeps_what_is_impossible_and_counts_rows_by_weight():
    with np.errstate(divide="ignore"):
        tables = [((0,), -np.log([0.5, 0.5])), ((0, 1), -np.log([[1.0, 0.0], [0.3, 0.7]]))]
    network = network_of([2, 2], tables, [0, 1])
    fitted = network.fit([[0, 0], [1, 1]], weights=[3, 1]).network
    assert np.exp(-fitted.factors[0][1]).tolist() == [0.75, 0.25]
    assert fitted.factors[1][1][0, 1] == np.inf
    with pytest.raises(EvidenceError, match="probability 0"):
        network.fit([[0, 1]])
    for options, message in (
        ({"smoothing": -1}, "smoothing=-1"),
        ({"weights": [1]}, "a number >= 0 for each of 2 rows"),
    ):
        with pytest.raises(TrainingError, match=message):
            network.fit([[0, 0], [1, 1]], **options)
    with pytest.raises(TrainingError, match="no rows"):
        network.fit(np.empty((0, 2)))
    with pytest.raises(TrainingError, match="factors that are none"):
        network_of(*random_network()).fit(np.zeros((1, len(LABELS))))
