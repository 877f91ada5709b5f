"""Propagation between clusters, and the rows that it says are not to be trusted."""

from functools import partial

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import torchlgm as lgm
from helpers.networks import conditioned, hard, joint_of, random_network
from torchlgm.networks import learning, network_of
from torchlgm.networks.solvers import clusters, elimination
from torchlgm.ops import Buckets


def grid(size, strength, seed):
    """A grid of binary variables with random tables."""
    rng = np.random.default_rng(seed)
    nodes = np.arange(size * size).reshape(size, size)
    pairs = [
        *zip(nodes[:-1].ravel(), nodes[1:].ravel(), strict=True),
        *zip(nodes[:, :-1].ravel(), nodes[:, 1:].ravel(), strict=True),
    ]
    factors = [((int(a), int(b)), strength * rng.standard_normal((2, 2))) for a, b in pairs]
    return network_of([2] * size**2, factors + [((v,), rng.standard_normal(2)) for v in range(size**2)])


@pytest.fixture
def narrow(monkeypatch):
    """No row is solved exactly, and clusters are small."""
    monkeypatch.setattr(elimination, "ROW_ENTRIES", 2)
    monkeypatch.setattr(clusters, "ENTRIES", 2)


def test_what_is_not_split_is_exact(backend, monkeypatch):
    monkeypatch.setattr(elimination, "ROW_ENTRIES", 2)
    labels, factors = random_network(2)
    joint, codes = joint_of(labels, factors), hard(labels, 5, 2)
    soft = {3: np.random.default_rng(0).random((5, labels[3]))}
    result = network_of(labels, factors).posteriors(codes, likelihoods=soft)
    assert result.exact.all()
    for row, labelling in enumerate(codes):
        expected, log_z = conditioned(joint, labelling, {3: soft[3][row]})
        assert result.log_evidence[row].item() == pytest.approx(log_z, abs=1e-9)
        np.testing.assert_allclose(result[0][row], expected[0], atol=1e-9)


def test_on_a_tree_clusters_of_one_factor_are_exact(backend, narrow):
    labels, scopes = (2, 3, 4, 2, 3), [(0, 1), (1, 2), (1, 3), (3, 4), (0,)]
    network, codes = network_of(*random_network(3, labels=labels, scopes=scopes)), hard(labels, 9)
    soft = {1: np.random.default_rng(1).random((9, 3))}
    truth = network.posteriors(codes, pairs=[(0, 2)], likelihoods=soft, method=lgm.exact())
    solver = clusters.ByClusters(labels, network.factors, torch.device("cpu"), narrower=20)
    asked = [(v,) for v in range(5)] + [(0, 2)]
    answer = solver.solve(torch.from_numpy(codes), {1: torch.from_numpy(soft[1])}, asked)
    assert len(solver._inner[1].origins) > len(labels)  # variables were split
    assert answer.converged.all()
    assert_close(answer.log_z, truth.log_evidence, rtol=0, atol=0.01)
    for p, expected in zip(answer.marginals, [*truth.values(), truth.pairs[0, 2]], strict=True):
        assert_close(p, expected, rtol=0, atol=0.005)


def test_larger_clusters_are_nearer_to_the_truth_than_propagation():
    errors = {1: [], 8: []}
    for seed in range(3):
        network = grid(5, 1.5, seed)
        codes = torch.from_numpy(hard(network.labels, 5, seed, share=0.1))
        truth = network.posteriors(codes)
        for width, into in errors.items():
            solver = clusters.ByClusters(network.labels, network.factors, torch.device("cpu"), narrower=20 - width)
            answer = solver.solve(codes, {}, [(v,) for v in range(25)])
            into.append(max((p - truth[v]).abs().mean().item() for v, p in enumerate(answer.marginals)))
    assert np.mean(errors[8]) < 0.5 * np.mean(errors[1])


@pytest.mark.parametrize("method", ["lbp", "trw", "mean_field"])
def test_nine_of_ten_wrong_posteriors_are_in_rows_that_are_not_trusted(method):
    bad, found = 0, 0
    for seed in range(4):
        network = grid(5, 5.0, seed) if method == "lbp" else grid(4, 1.2, seed)
        codes = hard(network.labels, 20, seed, share=0.1)
        truth = network.posteriors(codes)
        ours = network.posteriors(codes, method=getattr(lgm, method)(50, damping=0.1, tolerance=1e-4))
        assert not ours.exact.any()
        wrong = torch.stack([(ours[v] - truth[v]).abs().amax(1) > 0.05 for v in truth], 1)
        bad += wrong.sum().item()
        found += wrong[~ours.trusted].sum().item()
        assert truth.trusted.all()
        doubtful = torch.stack(list(ours.doubtful.values()), 1)
        assert torch.equal(doubtful, wrong)  # the second opinion is exact here: no false alarm
        assert torch.equal(ours.trusted, ours.converged & ~doubtful.any(1))
    assert bad > 10
    assert found >= 0.9 * bad


def test_an_approximate_second_opinion_doubts_whole_rows(narrow):
    bad, found = 0, 0
    for seed in range(2):
        network = grid(12, 3.0, seed)
        codes = hard(network.labels, 10, seed, share=0.1)
        ours, truth = network.posteriors(codes), network.posteriors(codes, method=lgm.exact())
        assert not ours.exact.any()
        wrong = torch.stack([(ours[v] - truth[v]).abs().amax(1) > 0.05 for v in truth], 1)
        doubtful = torch.stack(list(ours.doubtful.values()), 1)
        assert torch.equal(doubtful.any(1), doubtful.all(1))
        bad, found = bad + wrong.sum().item(), found + wrong[doubtful].sum().item()
    assert bad > 10
    assert found >= 0.9 * bad


def test_rows_of_which_only_pairs_are_asked_are_doubted_too(narrow):
    network, evidence = grid(12, 1.5, 0), np.full((1, 144), -1)
    alone = network.posteriors(evidence)
    doubted = max(alone.errors, key=lambda v: float(alone.errors[v]))
    assert not alone.trusted.any()
    assert not network.posteriors(evidence, [], [(doubted, 0 if doubted else 1)]).trusted.any()


def test_opinions_come_from_clusters_that_are_cut_elsewhere(narrow):
    """Much narrower clusters alone are too near to these by chance: a posterior is off by 0.052."""
    assert not grid(12, 1.5, 27).posteriors(np.full((1, 144), -1)).trusted.any()


def test_rows_too_large_are_said_to_be_approximate(narrow):
    network = grid(9, 1.0, 0)
    truth = network.posteriors(np.array([[1] + [-1] * 80, [-1] * 81]), method=lgm.exact())
    result = network.posteriors({0: [1, None]})
    assert result.method == "propagation between clusters"
    assert not result.exact.any()
    wrong = torch.stack([(result[v][1] - truth[v][1]).abs().amax() > 0.05 for v in truth])
    assert not wrong.any() or not result.trusted[1]
    assert "not to be trusted" in repr(result)


def test_clusters_become_narrower_for_a_wider_row_that_comes_late(narrow, monkeypatch):
    if not Buckets.available():
        pytest.skip("needs a C compiler")
    monkeypatch.setattr(clusters, "MOST_ENTRIES", 2)
    network = grid(12, 0.5, 0)
    codes = np.concatenate([hard(network.labels, clusters.TRIED, 0, share=0.8), np.full((1, 144), -1)])
    result, alone = network.posteriors(codes), network.posteriors(codes[-1:])
    assert not result.exact[-1]
    assert_close(result[70][-1:], alone[70], rtol=0, atol=0.02)


def test_a_table_too_large_for_a_node_of_a_layered_model_is_no_obstacle():
    rng = np.random.default_rng(0)
    network = network_of([2] * 15, [(tuple(range(15)), rng.standard_normal((2,) * 15)), ((0,), np.array([0.0, 1.0]))])
    assert network.posteriors({3: [1]}).exact.all()


def lattice(size, seed):
    """A grid of binary variables, each of which has the one above and the one to the left as parents."""
    rng = np.random.default_rng(seed)
    factors = []
    for v in range(size * size):
        parents = [v - size] * (v >= size) + [v - 1] * (v % size > 0)
        table = rng.dirichlet(np.full(2, 0.5), [2] * len(parents))
        factors.append(((*parents, v), -np.log(table)))
    return network_of([2] * size * size, factors, list(range(size * size)))


def test_tables_are_learnt_from_rows_too_large_to_be_counted_exactly(backend, monkeypatch):
    truth = lattice(4, 0)
    rows, new = np.where(np.random.default_rng(1).random((300, 16)) < 0.6, truth.sample(300), -1), truth.sample(300, 1)
    flat = truth.with_factors([(scope, np.full(e.shape, np.log(2))) for scope, e in truth.factors])
    exact = flat.fit(rows, smoothing=1.0, iterations=20)
    assert exact.exact.all()
    monkeypatch.setattr(elimination, "ROW_ENTRIES", 40)
    monkeypatch.setitem(elimination.TREE_ENTRIES, "cpu", 40)
    monkeypatch.setattr(learning, "ByClusters", partial(clusters.ByClusters, narrower=18))
    fitted = flat.fit(rows, smoothing=1.0, iterations=20)
    assert not fitted.exact.all()
    assert fitted.exact.any() == (backend == "native")  # by row, what observes much is still small enough
    monkeypatch.undo()
    flatly, exactly, nearly = (n.log_evidence(new).mean() for n in (flat, exact.network, fitted.network))
    assert exactly - nearly < 0.05 * (exactly - flatly)


@pytest.mark.parametrize("labels", [2, 32])
def test_a_second_opinion_is_another_one(labels, monkeypatch):
    """Clusters of variables with 32 labels are as large for a width of 14 bits as for one of 10."""
    monkeypatch.setattr(clusters, "ENTRIES", 2**14)
    rng = np.random.default_rng(0)
    pairs = [(a, b) for a in range(5) for b in range(a)]
    network = network_of([labels] * 5, [(pair, 3 * rng.standard_normal((labels, labels))) for pair in pairs])
    codes = torch.full((2, 5), -1)
    first, second = (clusters.ByClusters(network.labels, network.factors, torch.device("cpu"), n) for n in (None, 4))
    answer = clusters.Compared(first, [second]).solve(codes, {}, [(v,) for v in range(5)])
    if labels == 2:
        assert answer.exact.all()
    else:
        assert not answer.exact.any()
        assert (answer.errors.amax(1) > 0.02).all()
