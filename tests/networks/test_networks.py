"""Networks: answers do not depend on the order of labels; zeros stay zeros; factors of any size are exact."""

import gzip
import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from torch.testing import assert_close

import torchlgm as lgm
from helpers.networks import conditioned, hard, joint_of, random_network
from torchlgm import networks, viz
from torchlgm.errors import DataError, EvidenceError, TooLargeError
from torchlgm.networks import Network, network_of

METHODS = {"lbp": lgm.lbp, "trw": lgm.trw, "mean_field": lgm.mean_field}


def permuted(factors, orders):
    return [(scope, energies[np.ix_(*[orders[v] for v in scope])]) for scope, energies in factors]


WIDE = {"labels": (4, 5, 4, 5, 3, 2), "scopes": [(0, 1, 2, 3, 4), (4, 5), (5, 0), (2,)]}


@pytest.mark.parametrize("iterations", [1, 2, 5])
@pytest.mark.parametrize("schedule", ["parallel", "sequential", "sweep"])
@pytest.mark.parametrize("name", ["lbp", "trw", "mean_field", "max"])
@pytest.mark.parametrize("shape", [{}, WIDE], ids=["", "wide"])
def test_permuted_labels_permute_beliefs(shape, name, schedule, iterations):
    labels, factors = random_network(**shape)
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
        with pytest.raises(EvidenceError, match=r"probability 0 in 1 row \(1\)"):
            network.log_z(lgm.infer(network.model, network.evidence({1: 0}, {1: 1}), method))


@pytest.mark.parametrize(
    ("factor", "message"),
    [
        (((0, 0), np.zeros((2, 2))), "expected a tuple of different ones, numbered 0 to 1"),
        (((0, 5), np.zeros((2, 2))), "expected a tuple of different ones, numbered 0 to 1"),
        (((0,), np.array([np.inf, np.inf])), "no labelling"),
        (((0,), np.array([np.nan, 0])), "NaN or -inf"),
    ],
)
def test_bad_factors(factor, message):
    with pytest.raises(DataError, match=message):
        network_of([2, 2], [factor])


def test_factors_of_one_scope_are_multiplied():
    rng = np.random.default_rng(0)
    a, b, c = rng.random((2, 3)), rng.random((3, 2)), rng.random((2, 3))
    twice = network_of([2, 3], [((0, 1), a), ((1, 0), b), ((0, 1), c)])
    assert len(twice.factors) == 1
    assert twice.factors[0][1].flags.c_contiguous  # as optimisers of PyTorch want parameters to be
    assert network_of([2, 3], [((1, 0), b)]).factors[0][1].flags.c_contiguous
    assert_close(twice.posteriors({})[1], network_of([2, 3], [((0, 1), a + b.T + c)]).posteriors({})[1])


@pytest.mark.parametrize("labels", [(2,) * 15, (3, 4, 5, 6, 7, 2), (40, 2, 11)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_large_factor_becomes_two_nodes_with_few_labels(labels, dtype):
    labels, factors = random_network(3, zeros=0.3, labels=labels, scopes=[tuple(range(len(labels))), (0,), (2,)])
    network = network_of(labels, factors)
    assert max(layer.labels for layer in network.model.graph.layers) <= 256
    possible = np.argwhere(joint_of(labels, factors))[::97][:5]
    codes = np.where(np.random.default_rng(0).random(possible.shape) < 0.2, possible, -1)
    truth = network.posteriors(codes)
    model = network.model.to(dtype)
    for method in (lgm.lbp(5), lgm.exact()):
        marginals = network.marginals(lgm.infer(model, network.observed(codes), method))
        for v, p in enumerate(marginals):
            assert_close(p.double(), truth[v], rtol=0, atol=1e-9 if dtype == torch.float64 else 1e-3)
            assert (p[truth[v] == 0] == 0).all()


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


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("method", [None, lgm.exact()])
def test_posteriors_are_those_of_the_joint(backend, seed, method):
    labels, factors = random_network(seed)
    network, joint = network_of(labels, factors), joint_of(labels, factors)
    codes = hard(labels, 7, seed)
    soft = np.random.default_rng(seed).random((7, labels[3]))
    result = network.posteriors(codes, likelihoods={3: soft}, method=method)
    assert result.method == "exact()"
    for row, labelling in enumerate(codes):
        expected, log_z = conditioned(joint, labelling, {3: soft[row]})
        assert result.log_evidence[row].item() == pytest.approx(log_z, abs=1e-9)
        for v, p in enumerate(expected):
            np.testing.assert_allclose(result[v][row].numpy(), p, atol=1e-9)


def test_message_passing_is_exact_on_trees_with_soft_evidence_too():
    labels, scopes = (2, 3, 4, 2), [(0, 1), (1, 2), (1, 3), (0,)]
    network = network_of(*random_network(3, labels=labels, scopes=scopes))
    codes, soft = hard(labels, 9), np.random.default_rng(1).random((9, 3))
    truth = network.posteriors(codes, likelihoods={1: soft})
    ours = network.posteriors(codes, likelihoods={1: soft}, method=lgm.lbp(20, tolerance=1e-9))
    assert ours.converged.all()
    assert ours.method.startswith("lbp")
    free = torch.from_numpy(codes[:, 1] < 0)
    for v in range(4):
        assert_close(ours[v][free], truth[v][free], rtol=0, atol=1e-7)


@pytest.mark.parametrize("scale", [50.0, 400.0])
def test_what_underflows_is_computed_by_logarithms(backend, scale):
    """The only possible state has a likelihood of exp(-20 scale) before the last evidence comes."""
    tables = [((0, v), np.array([[scale, 2 * scale], [0.0, 0.0]])) for v in range(1, 11)]
    network = network_of([2] * 12, [*tables, ((0, 11), np.array([[0.0, np.inf], [np.inf, 0.0]]))])
    result = network.posteriors({**{v: [1, 0] for v in range(1, 11)}, 11: [0, 1]})
    assert result[0].tolist() == [[1, 0], [0, 1]]
    assert_close(result.log_evidence, torch.tensor([-20 * scale, 0.0], dtype=torch.float64))


@pytest.mark.parametrize("leaves", [700, 1500])
def test_many_neighbours_do_not_add_up_to_an_underflow(leaves):
    """Products of hundreds of messages are smaller than any number of 64 bits."""
    rng = np.random.default_rng(0)
    pairs = rng.random((leaves, 2, 2))
    star = network_of([2] * (leaves + 1), [((0, v + 1), e) for v, e in enumerate(pairs)])
    logs = np.logaddexp(-pairs[..., 0], -pairs[..., 1]).sum(0)
    answer = star.posteriors(np.full((1, leaves + 1), -1), [0])
    assert_close(answer.log_evidence.item(), float(np.logaddexp(*logs)))
    assert_close(answer[0][0, 1].item(), float(1 / (1 + np.exp(logs[0] - logs[1]))))
    assert answer.exact.all()


@pytest.mark.parametrize("features", [100, 4000])
@pytest.mark.parametrize("prior", [[0.3, 0.7], [1.0, 0.0]])
def test_a_class_of_thousands_of_features_is_told_and_learnt(features, prior):
    rng = np.random.default_rng(0)
    tables = {"class": prior, **{v: rng.dirichlet([2, 2], 2) for v in range(features)}}
    variables = {"class": ["a", "b"], **{v: [0, 1] for v in range(features)}}
    network = networks.bayesian_network(variables, {v: ["class"] for v in range(features)}, tables)
    codes = network.sample(20, seed=1)
    codes[:10, 1:] = 1 - codes[:10, 1:]  # hardly possible
    codes[:, 0] = -1
    each = np.stack([tables[v] for v in range(features)])[np.arange(features), :, codes[:, 1:]]
    with np.errstate(divide="ignore"):
        logs = np.log(each).sum(1) + np.log(prior)
    total = np.logaddexp(*logs.T)
    answer = network.posteriors(codes, ["class"])
    assert_close(answer.log_evidence, torch.from_numpy(total))
    assert_close(answer["class"], torch.from_numpy(np.exp(logs - total[:, None])), rtol=1e-7, atol=1e-12)
    assert network.map(codes).labels[:, 0].tolist() == logs.argmax(1).tolist()
    learnt = np.exp(-network.fit(codes, iterations=1, tolerance=0).network.factors[0][1])
    np.testing.assert_allclose(learnt, np.exp(logs - total[:, None]).mean(0), atol=1e-12)


@pytest.mark.parametrize("method", [None, lgm.lbp(5)])
def test_rows_of_probability_zero_are_named(backend, method):
    network = network_of([2, 2], [((0, 1), np.array([[0.0, np.inf], [0.0, np.inf]]))])
    with pytest.raises(EvidenceError, match=r"probability 0 in 2 rows \(0, 2\)"):
        network.posteriors({1: [1, 0, 1]}, method=method)


def test_evidence_that_only_the_second_opinion_knows_to_be_impossible_is_an_error():
    """Three binary variables of which any two differ; messages of loopy belief propagation stay uniform."""
    differ = np.array([[np.inf, 0.0], [0.0, np.inf]])
    network = network_of([2] * 4, [(pair, differ) for pair in ((0, 1), (1, 2), (0, 2))] + [((2, 3), np.zeros((2, 2)))])
    with pytest.raises(EvidenceError, match=r"probability 0 in 1 row \(0\)"):
        network.posteriors({3: [0]}, method=lgm.lbp(20, tolerance=1e-3))


def test_a_network_of_variables_of_one_state_has_one_labelling(backend):
    assert Network({"a": ["x"], "b": [0]}, [((0,), [0.5])]).map({"a": ["x", None]}).states() == {
        "a": ["x", "x"],
        "b": [0, 0],
    }


def test_blocks_of_rows_chosen_variables_frames_and_progress():
    pandas = pytest.importorskip("pandas")
    network = networks.read_bif(SPRINKLER)
    frame = pandas.DataFrame({"grass": ["wet", None, "dry"] * 500, "rain": [None, "yes", np.nan] * 500})
    done = []
    result = network.posteriors(frame, ["sprinkler"], progress=lambda rows, total: done.append((rows, total)))
    assert list(result) == ["sprinkler"]
    assert result["sprinkler"].shape == (1500, 2)
    assert_close(result["sprinkler"][:3], result["sprinkler"][-3:])
    assert done[-1] == (1500, 1500)
    assert len(done) > 1
    assert result.most_probable()["sprinkler"][:2] == ["on", "off"]
    assert_close(result.log_evidence[1].exp().item(), 0.2)


def test_a_network_too_wide_is_answered_by_message_passing_and_says_so():
    pairs = [(a, b) for a in range(28) for b in range(a)]
    rng = np.random.default_rng(0)
    network = network_of([2] * 28, [(pair, 0.1 * rng.standard_normal((2, 2))) for pair in pairs])
    result = network.posteriors({0: [1, None]})
    assert result.method == "propagation between clusters"
    assert not result.exact.any()
    assert result.trusted.all()
    with pytest.raises(TooLargeError, match="exact inference needs more than"):
        network.posteriors({0: [1, None]}, method=lgm.exact(limit=2**20))


SPRINKLER = """network unknown { property author someone; }
// three variables
variable rain { type discrete [ 2 ] { no, yes }; property position = (1, 2); }
variable sprinkler { type discrete [ 2 ] { off, on }; }
variable grass { type discrete [ 2 ] { dry, wet }; }
probability ( rain ) { table 0.8, 0.2; }
probability ( sprinkler | rain ) { (no) 0.6, 0.4; (yes) 0.99, 0.01; }
probability ( grass | sprinkler, rain ) { (off, no) 1.0, 0.0; (off, yes) 0.2, 0.8;
  default 0.1, 0.9; (on, yes) 0.01, 0.99; }
"""


def test_bif_files_are_read(tmp_path):
    network = networks.read_bif(SPRINKLER)
    (tmp_path / "network.bif.gz").write_bytes(gzip.compress(SPRINKLER.encode()))
    assert networks.read_bif(tmp_path / "network.bif.gz").variables == network.variables
    assert network.variables == {"rain": ("no", "yes"), "sprinkler": ("off", "on"), "grass": ("dry", "wet")}
    wet = 0.8 * 0.4 * 0.9 + 0.2 * 0.99 * 0.8 + 0.2 * 0.01 * 0.99
    result = network.posteriors({"grass": ["wet"]})
    assert result.log_evidence.exp().item() == pytest.approx(wet)
    assert result["rain"][0, 1].item() == pytest.approx((0.2 * 0.99 * 0.8 + 0.2 * 0.01 * 0.99) / wet)
    table = SPRINKLER.replace("(no) 0.6, 0.4; (yes) 0.99, 0.01;", "table 0.6, 0.99, 0.4, 0.01;")
    again = networks.read_bif(table).posteriors({"grass": ["wet"]})
    assert_close(again["sprinkler"], result["sprinkler"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0.8, 0.2;", "0.8, 0.3;", "table of 'rain': expected probabilities that sum to 1"),
        ("0.8, 0.2;", "0.8;", "1 numbers, expected 2"),
        ("(yes) 0.99", "(maybe) 0.99", "'maybe' is no state of 'rain'"),
        ("(yes) 0.99, 0.01;", "", "no numbers for 1 labellings"),
        ("[ 2 ] { off", "[ 3 ] { off", "2 states where 3 are announced"),
        ("( rain )", "( rain | grass )", "table of 'rain'"),
        ("probability ( rain ) { table 0.8, 0.2; }", "", "'rain' has no table"),
        (SPRINKLER[-60:], "", "expected a complete network, variable or probability block"),
        ("| rain )", "| snow )", "'snow'"),
        ("(yes) 0.99, 0.01;", "(yes) 0.99, 0.01; (yes) 0.5, 0.5;", r"\(yes\) is there twice"),
        ("0.8, 0.2;", "0.8, 0.2; table 0.7, 0.3;", "table of 'rain': table is there twice"),
        ("(yes) 0.99, 0.01;", "(yes) 0.99, 0.01; (no 0.5, 0.5;", r"expected table, .* got '\(no 0.5, 0.5;'"),
        ("{ no, yes }", "{ no, no }", "variable 'rain' has the states"),
        ("probability ( rain ) { table 0.8, 0.2; }", "probability ( rain | grass ) { default 0.8, 0.2; }", "a cycle"),
    ],
)
def test_bad_bif_files(old, new, message):
    assert old in SPRINKLER
    with pytest.raises(DataError, match=message):
        networks.read_bif(SPRINKLER.replace(old, new))
    with pytest.raises(DataError, match="not a readable BIF file"):
        networks.read_bif("nowhere.bif")


class Table:
    """What a table of pgmpy offers."""

    def __init__(self, names, values, states):
        self.variables, self.values, self.state_names = names, np.asarray(values), states


class Pgmpy:
    def __init__(self, tables):
        self.tables = tables

    def get_cpds(self):
        return self.tables

    def nodes(self):
        return ["grass", "rain"]


class Variable:
    def __init__(self, name, states):
        self.name, self.labels = lambda: name, lambda: states


class PyAgrum:
    """What a network of pyAgrum offers; its arrays have the axes of `names` in reverse."""

    variables = (Variable("grass", ("dry", "wet")), Variable("rain", ("no", "yes")))

    def nodes(self):
        return {0, 1}

    def variable(self, number):
        return self.variables[number]

    def cpt(self, number):
        class Cpt:
            names = (("grass", "rain"), ("rain",))[number]
            toarray = lambda self: (np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([0.8, 0.2]))[number]  # noqa: E731

        return Cpt()


def test_networks_of_other_libraries():
    states = {"grass": ["dry", "wet"], "rain": ["no", "yes"]}
    tables = [Table(["grass", "rain"], [[0.9, 0.2], [0.1, 0.8]], states), Table(["rain"], [0.8, 0.2], states)]
    for network in (networks.from_pgmpy(Pgmpy(tables)), networks.from_pyagrum(PyAgrum())):
        result = network.posteriors({"grass": ["wet"]})
        assert result.log_evidence.exp().item() == pytest.approx(0.24)
        assert result["rain"][0, 1].item() == pytest.approx(0.16 / 0.24)
    with pytest.raises(DataError, match="variable 'rain' of the model has no table"):
        networks.from_pgmpy(Pgmpy([Table(["grass"], [0.5, 0.5], states)]))
    with pytest.raises(DataError, match="expected tables of discrete variables, got object"):
        networks.from_pgmpy(Pgmpy([object()]))
    for convert in (networks.from_pgmpy, networks.from_pyagrum):
        with pytest.raises(DataError, match="got int"):
            convert(3)


def test_clique_trees_and_factor_graphs_of_pgmpy_are_their_factors():
    states = {"grass": ["dry", "wet"], "rain": ["no", "yes"]}
    table = Table(["grass", "rain"], [[0.9, 0.2], [0.1, 0.8]], states)

    class CliqueTree:
        get_factors = lambda self: [table]  # noqa: E731
        nodes = lambda self: [("rain", "grass")]  # noqa: E731

    class FactorGraph(CliqueTree):
        nodes = lambda self: ["rain", "grass", "phi_0"]  # noqa: E731
        get_factor_nodes = lambda self: ["phi_0"]  # noqa: E731

    for model in (CliqueTree(), FactorGraph()):
        assert networks.from_pgmpy(model).posteriors({"grass": "wet"})["rain"][0, 1].item() == pytest.approx(0.8 / 0.9)


def test_an_influence_diagram_is_no_network():
    class Diagram(PyAgrum):
        def utility(self, number):
            raise AssertionError(number)

    with pytest.raises(DataError, match="got Diagram"):
        networks.from_pyagrum(Diagram())


def test_evidence_may_be_a_frame_a_mapping_or_one_query():
    network, nan = networks.read_bif(SPRINKLER), float("nan")
    rows = [{"rain": "no", "grass": "wet"}, {"rain": None, "grass": "dry"}, {"rain": "yes", "grass": nan}]
    frame = pd.DataFrame(rows)
    codes = network.codes({name: [row[name] for row in rows] for name in ("rain", "grass")})
    assert codes.tolist() == [[0, -1, 1], [-1, -1, 0], [1, -1, -1]]
    kinds = (frame, frame.astype("category"), frame.astype("string"), frame.replace({None: pd.NA}).to_dict("list"))
    for kind in kinds:
        assert (network.codes(kind) == codes).all()
    assert network.codes({"rain": "no", "grass": "wet"}).tolist() == codes[:1].tolist()
    assert network.codes({}).tolist() == [[-1, -1, -1]]
    assert network.codes(frame[[]]).tolist() == [[-1, -1, -1]] * 3
    assert network.states(codes) == {
        "rain": ["no", None, "yes"],
        "sprinkler": [None] * 3,
        "grass": ["wet", "dry", None],
    }
    numbered = network_of([2, 3], [((0, 1), np.zeros((2, 3)))])
    assert numbered.codes({0: list(np.array([1, 0])), 1: pd.Series([2, None])}).tolist() == [[1, 2], [0, -1]]
    with pytest.raises(EvidenceError, match="column 'rain' is there twice"):
        network.codes(pd.concat([frame, frame[["rain"]]], axis=1))
    with pytest.raises(EvidenceError, match="no state 'maybe'"):
        network.codes(pd.DataFrame({"rain": pd.Categorical(["no", "maybe"])}))
    with pytest.raises(EvidenceError, match="read the table with dtype=str"):
        network.codes(pd.DataFrame({"rain": [True, False]}))
    with pytest.raises(lgm.errors.InferenceError, match="cannot be used here"):
        network.posteriors(frame, device="gpu")


VARIABLES = {"rain": ["no", "yes"], "sprinkler": ["off", "on"], "grass": ["dry", "wet"]}
PARENTS = {"sprinkler": ["rain"], "grass": ["sprinkler", "rain"]}
TABLES = {
    "rain": [0.8, 0.2],
    "sprinkler": [[0.6, 0.4], [0.99, 0.01]],
    "grass": [[[1.0, 0.0], [0.2, 0.8]], [[0.1, 0.9], [0.01, 0.99]]],
}


def test_networks_from_tables_in_python(tmp_path):
    network = networks.bayesian_network(VARIABLES, PARENTS, TABLES)
    assert network.is_bayesian
    again = networks.read_bif(networks.write_bif(network, tmp_path / "network.bif"))
    for other in (networks.read_bif(SPRINKLER), again):
        ours, theirs = (each.posteriors({"grass": "wet"}) for each in (network, other))
        assert_close(ours.log_evidence, theirs.log_evidence)
        assert_close(ours["rain"], theirs["rain"])
    start = networks.bayesian_network(VARIABLES, PARENTS)
    assert start.posteriors({})["grass"].tolist() == [[0.5, 0.5]]
    learnt = start.fit(network.sample(5000)).network
    assert_close(learnt.posteriors({})["grass"], network.posteriors({})["grass"], rtol=0, atol=0.02)


@pytest.mark.parametrize(
    ("parents", "tables", "message"),
    [
        ({**PARENTS, "snow": ["rain"]}, TABLES, "'snow' is no variable"),
        ({**PARENTS, "rain": ["snow"]}, TABLES, "'snow' is no variable"),
        ({**PARENTS, "rain": ["grass"]}, None, "a cycle among"),
        ({**PARENTS, "sprinkler": "rain"}, TABLES, "a list of names"),
        (PARENTS, {**TABLES, "snow": [1.0]}, "'snow' is no variable"),
        (PARENTS, {**TABLES, "rain": [0.8, 0.1]}, "table of 'rain': expected probabilities that sum to 1"),
        (PARENTS, {**TABLES, "rain": [0.8, 0.1, 0.1]}, r"shape \(3,\), expected \(2,\) for 'rain'"),
        (PARENTS, {"rain": [0.8, 0.2]}, "'sprinkler' has no table"),
    ],
)
def test_bad_tables_in_python(parents, tables, message):
    with pytest.raises(DataError, match=message):
        networks.bayesian_network(VARIABLES, parents, tables)


def test_a_network_with_children_holds_conditional_tables_without_a_cycle():
    half = -np.log(np.full((2, 2), 0.5))
    for scopes in ([(0, 1), (1, 2), (0, 2)], [(1, 0), (0, 1), (2, 1)]):
        with pytest.raises(DataError, match="a cycle among"):
            network_of([2] * 3, [(scope, half) for scope in scopes], [0, 1, 2])
    with pytest.raises(DataError, match="the table of 1 has to hold probabilities that sum to 1"):
        network_of([2, 2], [((0,), half[0]), ((0, 1), 0 * half)], [0, 1])


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        ({"grass": ["wet"], "rain": ["no", "yes"]}, "all of one length"),
        ({"grass": "wet", "rain": ["no"]}, "one column of states"),
        ([[0, 1]], r"expected a DataFrame, a mapping"),
        ([[0, 1, 2]], "below the number of states"),
        ([[0.5, 1, 1]], "whole numbers"),
        ([[0], [0, 1, 1]], "evidence of type list; expected a DataFrame"),
        (None, "evidence of type NoneType; expected a DataFrame"),
        ({"grass": [["wet"], "dry"]}, "column 'grass' has something else than states"),
        (pd.DataFrame({"grass": [["wet"], "dry"]}), "column 'grass' has something else than states"),
    ],
)
def test_bad_evidence(evidence, message):
    with pytest.raises(EvidenceError, match=message):
        networks.read_bif(SPRINKLER).posteriors(evidence)


def test_labels_may_be_masked_or_tensors():
    network = networks.read_bif(SPRINKLER)
    codes, known = np.array([[0, 1, 1], [1, 0, 1]]), np.array([[True, False, True], [False, True, False]])
    expected = np.where(known, codes, -1)
    holes = torch.from_numpy(np.where(known, codes, np.nan)).requires_grad_()
    for given in (
        np.ma.masked_array(codes, ~known),
        np.ma.masked_array(codes * 1.0, ~known),
        torch.tensor(expected),
        holes,
    ):
        assert (network.codes(given) == expected).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda network: network.posteriors({}, likelihoods={"rain": [["a", "b"]]}), "must be numbers"),
        (lambda network: network.posteriors({}, "rain"), "variables='rain'; expected a list of names"),
        (lambda network: network.fit({"rain": "no"}, iterations=-1), "iterations=-1; expected a whole number >= 0"),
        (lambda network: network.fit({"rain": "no"}, tolerance="small"), "tolerance='small'"),
        (lambda _: Network(None, []), "expected a mapping"),
        (lambda _: Network({"rain": [["no"], ["yes"]]}, []), "variable 'rain' has the states"),
        (lambda _: networks.bayesian_network(VARIABLES, None), "a mapping from variables to their parents"),
        (lambda _: networks.bayesian_network(VARIABLES, PARENTS, {**TABLES, "rain": "half"}), "table of 'rain'"),
        (
            lambda _: networks.bayesian_network(VARIABLES, PARENTS, {**TABLES, "sprinkler": [[1, 0], [1]]}),
            "inhomogeneous",
        ),
        (lambda network: network.posteriors({}, likelihoods=[1]), "likelihoods of type list; expected a mapping"),
        (lambda network: network.posteriors({}, 3), "variables=3; expected a list of names"),
        (lambda network: network.posteriors({}, pairs=3), "pairs=3; expected a list of pairs of names"),
        (lambda network: network.posteriors({}, energies=3), "energies of type int; expected tensors"),
        (lambda network: network.posteriors({}, energies=[1, 2, 3]), "energies of type list; expected tensors"),
        (lambda network: network.fit({"rain": "no"}, weights="ab"), "weights need a number >= 0 for each of 1 rows"),
        (lambda network: networks.acquire(network, {}, "rain", "grass"), "variables='grass'; expected a list"),
        (lambda network: network.sample(1, seed=-1), "seed=-1; expected a whole number >= 0"),
        (lambda _: networks.write_bif(None, "a.bif"), "expected a network, got NoneType"),
        (lambda _: networks.write_uai(None, "a.uai"), "expected a network, a model or an MRF, got NoneType"),
        (lambda _: Network({}, []), "a network without variables"),
        (lambda _: Network({"rain": [0, 1]}, [3]), "factors are pairs"),
        (lambda _: Network({"rain": [0, 1]}, [(("rain",), [0, 0])]), "a tuple of different ones, numbered 0 to 0"),
        (lambda _: Network({"rain": [0, 1]}, [((0,), [[0], [1, 2]])]), "needs an array of energies"),
        (lambda _: Network({"rain": [0, 1]}, [((0,), [1, 1])], 3), "children 3; expected a list"),
        (lambda _: network_of(3, []), "labels=3; expected a list"),
        (lambda _: network_of([2, "x"], []), "labels='x' of variable 1; expected a whole number"),
        (lambda _: network_of([10**12], []), "has 1,000,000,000,000 states"),
        (lambda network: viz.draw_network(network, 3), "beliefs=3"),
        (
            lambda _: networks.bayesian_network(VARIABLES, {"rain": 3}),
            "the parents of 'rain' are a list of names, got 3",
        ),
        (lambda network: networks.acquire(None, {}, "rain"), "expected a network, got NoneType"),
        (lambda network: networks.acquire(network, {}, ["rain"]), r"no variable \['rain'\]; the network has"),
        (lambda network: networks.read_uai_evidence("1 0 1", 3), "expected a network, got int"),
        (lambda network: network.evidence("rain"), "expected a mapping from names to states for each sample"),
        (lambda network: network.observed("rain"), "evidence of type str"),
        (lambda network: network.marginals(3), "beliefs of type int; expected what torchlgm.infer"),
        (lambda network: network.map_labels({}), "beliefs of type dict; expected what torchlgm.infer"),
        (lambda network: network.log_z(None), "beliefs of type NoneType; expected what torchlgm.infer"),
        (lambda network: viz.draw_network(network, network.posteriors({}), row=1), "row=1 of 1"),
    ],
)
def test_odd_arguments_are_one_clear_error(make, message):
    with pytest.raises(lgm.errors.LGMError, match=message):
        make(networks.read_bif(SPRINKLER))


def test_answers_that_do_not_fit_memory_are_refused_before_they_are_made(monkeypatch):
    network = networks.read_bif(SPRINKLER)
    monkeypatch.setattr(networks.posteriors, "physical_memory", lambda: 1000.0)
    with pytest.raises(TooLargeError, match="name fewer variables="):
        network.posteriors(np.full((100, 3), -1))
    assert network.posteriors(np.full((10, 3), -1), ["rain"])["rain"].shape == (10, 2)
