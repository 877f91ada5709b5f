"""Networks: answers do not depend on the order of labels; zeros stay zeros; factors of any size are exact."""

import itertools

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import torchlgm as lgm
from torchlgm.errors import DataError, EvidenceError
from torchlgm.interop import Network, network_of

METHODS = {"lbp": lgm.lbp, "trw": lgm.trw, "mean_field": lgm.mean_field}
LABELS = (2, 3, 2, 4, 1, 2)
SCOPES = [(0, 1), (1, 2), (2, 0), (0, 3), (1, 3, 5), (3, 5), (4, 2, 5), (5,)]


def random_network(seed=0, zeros=0.0, labels=LABELS, scopes=SCOPES):
    rng = np.random.default_rng(seed)
    factors = []
    for scope in scopes:
        shape = [labels[v] for v in scope]
        energies = 2 * rng.standard_normal(shape)
        impossible = rng.random(shape) < zeros
        impossible.reshape(-1)[rng.integers(impossible.size)] = False
        factors.append((scope, np.where(impossible, np.inf, energies)))
    return labels, factors


def permuted(factors, orders):
    return [(scope, energies[np.ix_(*[orders[v] for v in scope])]) for scope, energies in factors]


def joint_of(labels, factors):
    joint = np.zeros(labels)
    for scope, energies in factors:
        order = np.argsort(scope)
        shape = [labels[v] if v in scope else 1 for v in range(len(labels))]
        joint = joint - energies.transpose(order).reshape(shape)
    return np.exp(joint)


@pytest.mark.parametrize("iterations", [1, 2, 5])
@pytest.mark.parametrize("schedule", ["parallel", "sequential", "sweep"])
@pytest.mark.parametrize("name", ["lbp", "trw", "mean_field", "max"])
def test_permuted_labels_permute_beliefs(name, schedule, iterations):
    labels, factors = random_network()
    rng = np.random.default_rng(1)
    orders = [rng.permutation(k) for k in labels]
    method = METHODS.get(name, lgm.lbp)(iterations, schedule, **({"product": "max"} if name == "max" else {}))
    network, other = network_of(labels, factors), network_of(labels, permuted(factors, orders))
    for seen in ({}, {0: 1, 3: 2}):
        elsewhere = {v: orders[v].tolist().index(label) for v, label in seen.items()}
        samples = [(seen, elsewhere), ({}, {})]
        ours = network.marginals(lgm.infer(network.model, network.evidence(*[a for a, _ in samples]), method))
        theirs = other.marginals(lgm.infer(other.model, other.evidence(*[b for _, b in samples]), method))
        for a, b, order in zip(ours, theirs, orders, strict=True):
            assert_close(a[:, order], b, rtol=0, atol=1e-9)


def test_the_start_is_saved_with_the_model(tmp_path):
    labels, factors = random_network()
    model = network_of(labels, factors).model
    again = lgm.load(lgm.save(model, tmp_path / "model"))
    assert again.state_dict().keys() == model.state_dict().keys()
    ours, theirs = (lgm.infer(m, {}, lgm.lbp(1)) for m in (model, again))
    assert all(torch.equal(ours[layer].probs, theirs[layer].probs) for layer in model.graph.layer_names)


def parity_checks(bits, checks, degree, seed):
    """Each bit takes part in as many checks, up to one."""
    rng = np.random.default_rng(seed)
    while True:
        ends = rng.permutation(np.repeat(np.arange(bits), checks * degree // bits)).reshape(checks, degree)
        if all(len(set(row)) == degree for row in ends.tolist()):
            return [tuple(row) for row in ends.tolist()]


def decoded(checks, ratios, method):
    """Bits that belief propagation believes in, given the log-odds of each bit being 1."""
    parity = np.array([np.inf if sum(x) % 2 else 0.0 for x in itertools.product((0, 1), repeat=len(checks[0]))])
    factors = [(scope, parity.reshape((2,) * len(scope))) for scope in checks]
    channel = [((v,), np.array([0.0, -ratio])) for v, ratio in enumerate(ratios)]
    network = network_of([2] * len(ratios), factors + channel)
    beliefs = lgm.infer(network.model, {}, method)
    return torch.stack(network.marginals(beliefs))[:, 0, 1]


def flooded(checks, ratios, iterations):
    """The same by the textbook: bits and checks take turns, messages start at 0."""
    edges = {(c, v): 0.0 for c, scope in enumerate(checks) for v in scope}
    for _ in range(iterations):
        total = ratios.copy()
        for (_, v), message in edges.items():
            total[v] -= message
        out = {(c, v): -total[v] - message for (c, v), message in edges.items()}
        for c, scope in enumerate(checks):
            tanh = {v: np.tanh(out[c, v] / 2) for v in scope}
            edges |= {(c, v): 2 * np.arctanh(np.prod([t for u, t in tanh.items() if u != v])) for v in scope}
    total = ratios.copy()
    for (_, v), message in edges.items():
        total[v] -= message
    return 1 / (1 + np.exp(-total))


def test_a_parity_check_code_is_decoded_as_by_the_textbook():
    checks = parity_checks(100, 50, 6, seed=0)
    rng = np.random.default_rng(3)
    ratios = -2 * (1 + 0.7 * rng.standard_normal(100)) / 0.7**2  # of the codeword 0 over a noisy channel
    assert (ratios > 0).sum() >= 10
    for iterations in (1, 2, 5):
        ours = decoded(checks, ratios, lgm.lbp(2 * iterations, "parallel")).detach().numpy()
        np.testing.assert_allclose(ours, flooded(checks, ratios, iterations), atol=1e-8)
    assert (decoded(checks, ratios, lgm.lbp(20, "parallel")) < 0.5).all()


@pytest.mark.parametrize("seed", range(6))
def test_factors_of_any_size_and_zeros_are_exact(seed):
    labels, factors = random_network(seed, zeros=0.3)
    joint = joint_of(labels, factors)
    network = network_of(labels, factors)
    for v, k in enumerate(labels):
        for label in range(k):
            rest = np.moveaxis(joint, v, 0)[label]
            beliefs = lgm.infer(network.model, network.evidence({v: label}), lgm.exact())
            if rest.sum() == 0:
                with pytest.raises(EvidenceError, match="probability 0"):
                    network.log_z(beliefs)
                continue
            assert network.log_z(beliefs).item() == pytest.approx(np.log(rest.sum()), abs=1e-9)
            others = [u for u in range(len(labels)) if u != v]
            for axis, u in enumerate(others):
                expected = rest.sum(tuple(a for a in range(rest.ndim) if a != axis)) / rest.sum()
                ours = network.marginals(beliefs)[u][0].detach().numpy()
                np.testing.assert_allclose(ours, expected, atol=1e-9)
                assert (ours[expected == 0] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", ["lbp", "trw", "exact"])
def test_an_impossible_class_stays_impossible_whatever_features_say(name, dtype):
    """Naive Bayes with prior (1, 0) and 50 features that favour the second class."""
    features = [((0, v), -np.log([[0.99, 0.01], [0.01, 0.99]])) for v in range(1, 51)]
    network = network_of([2] * 51, [((0,), np.array([0.0, np.inf])), *features])
    method = lgm.exact() if name == "exact" else METHODS[name](3)
    evidence = network.evidence(dict.fromkeys(range(1, 51), 1))
    beliefs = lgm.infer(network.model.to(dtype), evidence, method)
    assert network.marginals(beliefs)[0][0].tolist() == [1, 0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_what_is_hardly_possible_beats_what_is_not(dtype):
    network = network_of([3, 2], [((0, 1), np.array([[690.0, 690.0], [np.inf, 0.0], [np.inf, 0.0]]))])
    beliefs = lgm.infer(network.model.to(dtype), network.evidence({1: 0}), lgm.lbp(2))
    assert network.marginals(beliefs)[0][0].tolist() == [1, 0, 0]


def test_evidence_that_no_labelling_agrees_with_is_an_error():
    network = network_of([2, 2], [((0, 1), np.array([[0.0, np.inf], [0.0, np.inf]]))])
    for method in (lgm.lbp(3), lgm.exact()):
        with pytest.raises(EvidenceError, match=r"1 rows has probability 0 \(rows 1\)"):
            network.log_z(lgm.infer(network.model, network.evidence({1: 0}, {1: 1}), method))


@pytest.mark.parametrize(
    ("factor", "message"),
    [
        (((0, 0), np.zeros((2, 2))), "expected different ones, 0 to 1"),
        (((0, 5), np.zeros((2, 2))), "expected different ones, 0 to 1"),
        (((0,), np.array([np.inf, np.inf])), "no labelling"),
        (((0,), np.array([np.nan, 0])), "NaN or -inf"),
    ],
)
def test_bad_factors(factor, message):
    with pytest.raises(DataError, match=message):
        network_of([2, 2], [factor])


def test_a_factor_too_large_for_a_node_is_refused_before_it_is_made():
    network = network_of([2] * 15, [(tuple(range(15)), np.zeros((2,) * 15))])
    with pytest.raises(DataError, match="32,768 possible labellings"):
        network.model  # noqa: B018


def test_names_and_states():
    network = Network({"rain": ["no", "yes"], "grass": ["dry", "wet"]}, [((0, 1), -np.log([[0.7, 0.1], [0.05, 0.15]]))])
    beliefs = lgm.infer(network.model, network.evidence({"grass": "wet"}), lgm.lbp(2))
    assert network.marginals(beliefs)[0][0, 1].item() == pytest.approx(0.6)
    with pytest.raises(EvidenceError, match="no variable 'snow'; the network has 'rain', 'grass'"):
        network.evidence({"snow": "no"})
    with pytest.raises(EvidenceError, match=r"variable 'rain' has no state 'maybe'; expected one of \['no', 'yes'\]"):
        network.evidence({"rain": "maybe"})
    with pytest.raises(DataError, match="all different"):
        Network({"rain": ["no", "no"]}, [])
