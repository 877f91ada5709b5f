"""UAI files: what is read, written and read again has the distribution that enumeration gives."""

import itertools
import math

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import assume, given
from torch.testing import assert_close

import torchlgm as lgm
from torchlgm.errors import DataError
from torchlgm.networks import network_of, read_uai, read_uai_evidence, write_uai

CHAIN = """MARKOV
3
2 2 3
3
1 0
2 0 1
2 1 2

2
 0.436 0.564

4
 0.128 0.872
 0.920 0.080

6
 0.210 0.333 0.457
 0.811 0.000 0.189
"""


def joint_of(labels, factors):
    """The product of all tables by plain loops, an array with an axis for each variable."""
    joint = np.ones(labels)
    for x in itertools.product(*map(range, labels)):
        for scope, table in factors:
            joint[x] *= table[tuple(x[v] for v in scope)]
    return joint


def text_of(labels, factors, kind="MARKOV"):
    lines = [kind, str(len(labels)), " ".join(map(str, labels)), str(len(factors))]
    lines += [" ".join(map(str, [len(scope), *scope])) for scope, _ in factors]
    for _, table in factors:
        lines += [str(table.size), " ".join(map(repr, table.reshape(-1).tolist()))]
    return "\n".join(lines)


def check(network, joint, tolerance=1e-9):
    beliefs = lgm.infer(network.model, {}, lgm.exact())
    assert network.log_z(beliefs).item() == pytest.approx(math.log(joint.sum()), abs=tolerance)
    for v, marginal in enumerate(network.marginals(beliefs)):
        expected = joint.sum(tuple(a for a in range(joint.ndim) if a != v)) / joint.sum()
        assert_close(marginal[0], torch.from_numpy(expected), rtol=0, atol=tolerance)


@st.composite
def networks(draw, zeros=False):
    """Up to five variables with one to three labels, and factors of none to two of them, in any order and number."""
    labels = draw(st.lists(st.integers(1, 3), min_size=1, max_size=5).filter(lambda k: max(k) > 1))
    variables = range(len(labels))
    scopes = st.one_of(
        st.just(()),
        st.tuples(st.sampled_from(variables)),
        st.lists(st.sampled_from(variables), min_size=2, max_size=2, unique=True).map(tuple)
        if len(labels) > 1
        else st.tuples(st.just(0)),
    )
    entry = st.floats(0.1, 10) if zeros else st.floats(1e-3, 1e3)
    factors = []
    for scope in draw(st.lists(scopes, max_size=7)):
        shape = tuple(labels[v] for v in scope)
        values = np.array(draw(st.lists(entry, min_size=math.prod(shape), max_size=math.prod(shape))))
        if zeros and values.size > 1:
            values[draw(st.integers(0, values.size - 1))] = 0
        factors.append((scope, values.reshape(shape)))
    return tuple(labels), factors


@given(networks())
def test_read_and_write_keep_the_distribution(tmp_path_factory, drawn):
    labels, factors = drawn
    joint = joint_of(labels, factors)
    network = read_uai(text_of(labels, factors))
    check(network, joint)
    path = write_uai(network, tmp_path_factory.getbasetemp() / "again.uai")
    check(read_uai(path), joint)


@given(networks(zeros=True))
def test_impossible_labellings(drawn):
    labels, factors = drawn
    joint = joint_of(labels, factors)
    assume(joint.max() > 0)
    check(read_uai(text_of(labels, factors)), joint, 1e-8)


@given(networks())
def test_evidence_and_the_most_probable_labelling(drawn):
    labels, factors = drawn
    joint = joint_of(labels, factors)
    network = read_uai(text_of(labels, factors))
    seen = len(labels) - 1
    for label in range(labels[seen]):
        beliefs = lgm.infer(network.model, network.evidence({seen: label}), lgm.exact())
        assert network.log_z(beliefs).item() == pytest.approx(math.log(joint[..., label].sum()), abs=1e-9)
    best = network.map_labels(lgm.infer(network.model, {}, lgm.exact()))[0]
    assert joint[tuple(best.tolist())] == pytest.approx(joint.max(), rel=1e-9)


def test_a_tree_is_a_tree_and_two_layers_for_each_number_of_labels():
    network = read_uai(CHAIN)
    assert network.places == (("k2_0", 0), ("k2_1", 0), ("k3_0", 0))
    loopy, exact = (lgm.infer(network.model, {}, method) for method in (lgm.lbp(3), lgm.exact()))
    for ours, truth in zip(network.marginals(loopy), network.marginals(exact), strict=True):
        assert_close(ours, truth)
    assert network.marginals(exact)[2].shape == (1, 3)


def test_parts_without_a_connection_are_joined_by_energies_of_zero():
    tables = [np.array([[1.0, 2.0], [3.0, 4.0]]), np.diag([5.0, 1.0, 2.0]) + 0.5]
    factors = [((0, 1), tables[0]), ((2, 3), tables[1])]
    network = read_uai(text_of((2, 2, 3, 3), factors))
    check(network, joint_of((2, 2, 3, 3), factors))
    assert sum(not table.any() for table in network.model.table.values()) == 1


def test_a_bayesian_network_of_single_parents():
    rain, wet = np.array([0.8, 0.2]), np.array([[0.9, 0.1], [0.2, 0.8]])
    network = read_uai(text_of((2, 2), [((0,), rain), ((0, 1), wet)], kind="BAYES"))
    beliefs = lgm.infer(network.model, network.evidence({1: 1}), lgm.exact())
    assert network.log_z(beliefs).exp().item() == pytest.approx(0.8 * 0.1 + 0.2 * 0.8)
    assert network.marginals(beliefs)[0][0, 1].item() == pytest.approx(0.16 / 0.24)


def test_energies_make_the_same_network():
    labels, factors = (2, 3), [((0,), np.array([0.3, -1.0])), ((1, 0), np.arange(6.0).reshape(3, 2))]
    check(network_of(labels, factors), joint_of(labels, [(scope, np.exp(-e)) for scope, e in factors]))
    with pytest.raises(lgm.errors.DataError, match="needs an energy for each labelling"):
        network_of(labels, [((0, 1), np.zeros((3, 2)))])


GRAPHS = {
    "dense": lgm.zoo.dense(3, (2,), 3),
    "grid": lgm.zoo.grid(2, 3, labels=3),
    "conv": lgm.Graph(
        (lgm.Layer("inputs", (1, 4)), lgm.Layer("parts", (2, 3)), lgm.Layer("classes", 1, 3)),
        (lgm.Conv("inputs", "parts", 3, 2, ((2, 2),)), lgm.Dense("parts", "classes")),
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_any_model_can_be_written(tmp_path, name):
    """Variables are nodes in order; log Z is kept too. Windows over the border are no edges."""
    model = lgm.LGM(GRAPHS[name], lgm.Init(0.2, unary=1.0, scale="balanced"))
    network = read_uai(write_uai(model, tmp_path / "model.uai"))
    ours, theirs = (lgm.infer(m, {}, lgm.exact()) for m in (model, network.model))
    assert_close(network.log_z(theirs), ours.log_z)
    nodes = [p for layer in model.graph.layer_names for p in ours[layer].probs.flatten(1, -2).unbind(1)]
    for marginal, expected in zip(network.marginals(theirs), nodes, strict=True):
        assert_close(marginal, expected)


def test_a_conditioned_model_can_be_written(tmp_path):
    model = lgm.LGM(GRAPHS["dense"], init="paper")
    evidence = {"inputs": torch.tensor([[0.3, torch.nan, 1.0]])}
    network = read_uai(write_uai(model.condition(evidence), tmp_path / "part.uai"))
    ours, theirs = lgm.infer(model, evidence, lgm.exact()), lgm.infer(network.model, {}, lgm.exact())
    assert_close(network.log_z(theirs), ours.log_z)
    assert_close(network.marginals(theirs)[-1], ours["classes"].probs[:, 0])
    with pytest.raises(lgm.errors.DataError, match="an MRF of 2 samples"):
        write_uai(model.condition({"inputs": torch.rand(2, 3)}), tmp_path / "two.uai")
    seen = {name: torch.zeros(1, *u.shape[:1], dtype=torch.long) for name, u in model.unary.items()}
    with pytest.raises(lgm.errors.DataError, match="every node is observed; there is no variable left to write"):
        write_uai(model.condition(seen), tmp_path / "none.uai")


def test_large_energies_neither_overflow_nor_vanish(tmp_path):
    model = lgm.LGM(lgm.zoo.rbm(2, 2), init="zero")
    model.table["visible-hidden"].data.fill_(-600.0)
    network = read_uai(write_uai(model, tmp_path / "large.uai"))
    ours, theirs = (lgm.infer(m, {}, lgm.exact()) for m in (model, network.model))
    assert_close(network.log_z(theirs), ours.log_z)
    model.table["visible-hidden"].data.fill_(-9000.0)
    with pytest.raises(DataError, match=r"energies of a table are \d+ apart"):
        write_uai(model, tmp_path / "too large.uai")
    assert not (tmp_path / "too large.uai").exists()


@pytest.mark.parametrize(
    ("text", "samples"),
    [
        ("0", [{}]),
        ("2 0 1 2 2", [{0: 1, 2: 2}]),
        ("1\n1 2 0", [{2: 0}]),
        ("2\n1 0 1\n2 0 0 1 1", [{0: 1}, {0: 0, 1: 1}]),
        ("2\n1 0 1\n0\n", [{0: 1}, {}]),
        ("2\n0\n\n1 0 1\n", [{}, {0: 1}]),
        ("2 1 0\n0 1\n", [{1: 0, 0: 1}]),
        ("2\n1 0\n0 1\n", [{1: 0, 0: 1}]),
        ("1 1\n2 0", [{2: 0}]),
    ],
)
def test_evidence_files(tmp_path, text, samples):
    network = read_uai(CHAIN)
    (tmp_path / "chain.uai.evid").write_text(text)
    joint = joint_of((2, 2, 3), chain_factors())
    for source in (text, tmp_path / "chain.uai.evid"):
        beliefs = lgm.infer(network.model, read_uai_evidence(source, network), lgm.exact())
        log_z = network.log_z(beliefs)
        assert len(log_z) == len(samples)
        for value, sample in zip(log_z.tolist(), samples, strict=True):
            index = tuple(sample.get(v, slice(None)) for v in range(3))
            assert value == pytest.approx(math.log(joint[index].sum()), abs=1e-9)


def chain_factors():
    return [
        ((0,), np.array([0.436, 0.564])),
        ((0, 1), np.array([[0.128, 0.872], [0.920, 0.080]])),
        ((1, 2), np.array([[0.210, 0.333, 0.457], [0.811, 0.0, 0.189]])),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("MARKOV\n1\n2\n1\n1 1\n2\n1 1", r"a factor of variables \(1,\); expected different ones below 1"),
        ("MARKOV\n2\n2 2\n1\n2 1 1\n4\n1 1 1 1", "expected different ones"),
        ("MARKOV\n1\n2\n1\n1 0\n3\n1 1 1", r"table 0: 3 entries for variables with \(2,\) labels"),
        ("MARKOV\n1\n2\n1\n1 0\n2\n1", "ends inside table 0, after 1 of 2 numbers"),
        ("MARKOV\n1\n2\n1\n1 0\n2\n1 -1", "expected numbers >= 0"),
        ("MARKOV\n1\n2\n1\n1 0\n2\n0 0", "not all of them 0"),
        ("MARKOV\n1\n2\n1\n1 0\n2\n1 one", "table 0: could not convert"),
        ("MARKOV\n1\n2\n0\n7", "word 5: '7' where the end is expected"),
        ("MARKOV\n1\nmany\n", "'many' for the labels of a variable, expected a whole number >= 1"),
        ("MARKOV\n2\n2", "ends where the labels of a variable is expected"),
        ("2\n3", "a '2' network; expected MARKOV or BAYES"),
        ("FOO\n3\n", "the text: a 'FOO' network; expected MARKOV or BAYES"),
        ("", "the text: ends where the kind of network is expected"),
        ("no where.uai", "no where.uai: not a readable UAI file"),
        ("nowhere.uai", "nowhere.uai: not a readable UAI file"),
    ],
)
def test_bad_files(text, message):
    with pytest.raises(lgm.errors.DataError, match=message):
        read_uai(text)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("1 7 0", lgm.errors.EvidenceError, "no variable 7; the network has 0, 1, 2"),
        ("1 0 2", lgm.errors.EvidenceError, r"variable 0 has no state 2; expected one of \[0, 1\]"),
        ("2 1 0", lgm.errors.DataError, "ends where a label is expected"),
        ("1 0 1 0", lgm.errors.DataError, "where the end is expected"),
        ("2 1 0 1 1", lgm.errors.DataError, "observed twice, with different labels"),
    ],
)
def test_bad_evidence(text, error, message):
    with pytest.raises(error, match=message):
        read_uai_evidence(text, read_uai(CHAIN))


RAIN, WET = np.array([0.8, 0.2]), np.array([[0.9, 0.1], [0.25, 0.75]])


@pytest.mark.parametrize(
    ("table", "hint"),
    [(WET.T, r", but over variable 0: is the order of its variables right\?"), (2 * WET, "; expected conditional")],
    ids=["transposed", "scaled"],
)
def test_tables_of_a_bayesian_network_sum_to_one_over_the_child(table, hint):
    text = text_of((2, 2), [((0,), RAIN), ((0, 1), table)], kind="BAYES")
    with pytest.raises(DataError, match=f"table 1: does not sum to 1 over variable 1, the last of its scope{hint}"):
        read_uai(text)
    read_uai(text.replace("BAYES", "MARKOV"))  # where any factor may stand


def test_rounded_conditional_probabilities_are_taken():
    thirds = np.full((2, 3), 0.333)
    read_uai(text_of((2, 3), [((0,), RAIN), ((0, 1), thirds)], kind="BAYES"))


def test_byte_order_marks_and_comments_are_read(tmp_path):
    lines = CHAIN.splitlines()
    text = "\n".join(["# from somewhere", lines[0] + " // pairwise", *lines[1:], "# the end"])
    file = tmp_path / "chain.uai"
    file.write_text(text, encoding="utf-8-sig")
    plain = lgm.infer(read_uai(CHAIN).model, {}, lgm.exact()).log_z
    for source in (text, "\ufeff" + text, file):
        assert_close(lgm.infer(read_uai(source).model, {}, lgm.exact()).log_z, plain)


@pytest.mark.parametrize("source", [None, b"MARKOV\n1\n2\n0\n", 3])
def test_other_sources_are_refused(source):
    with pytest.raises(
        DataError, match=f"expected a path or the text of a file in the UAI format, got {type(source).__name__}"
    ):
        read_uai(source)


@pytest.mark.parametrize(
    ("scopes", "message"),
    [
        ("2 0 1\n2 1 0\n4\n.5 .5 .5 .5\n4\n.5 .5 .5 .5\n", "a cycle among"),
        ("1 1\n2 0 1\n2\n.5 .5\n4\n.5 .5 .5 .5\n", "two tables whose last variable is 1"),
    ],
)
def test_bayesian_networks_have_no_cycle_and_one_table_a_variable(scopes, message):
    with pytest.raises(DataError, match=message):
        read_uai("BAYES\n2\n2 2\n2\n" + scopes)
