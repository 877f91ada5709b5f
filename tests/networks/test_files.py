"""Bayesian networks in BIF, XMLBIF and NET files: written, read, and refused in one line."""

import gzip
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from torch.testing import assert_close

from helpers.networks import NET, XML
from torchlgm import networks
from torchlgm.errors import DataError
from torchlgm.networks import network_of

BIF = """network unknown { }  // a comment
variable rain { type discrete [ 2 ] { no, yes }; }
probability ( rain ) { table 0.8, 0.2; }
"""
UAI = "MARKOV  # a comment\n1\n2\n1\n1 0\n2\n0.8 0.2\n"


@pytest.mark.parametrize(("read", "text"), [(networks.read_xmlbif, XML), (networks.read_net, NET)])
def test_xmlbif_and_net_are_read(tmp_path, read, text):
    (tmp_path / "network").write_text(text, encoding="utf-8-sig")
    for network in (read(text), read(tmp_path / "network")):
        assert network.variables == {"rain": ("no", "yes"), "grass": ("dry", "wet", "icy")}
        assert network.is_bayesian
        result = network.posteriors({"grass": ["wet", "icy"]})
        assert result.log_evidence.exp().tolist() == pytest.approx([0.8 * 0.1 + 0.2 * 0.7, 0.02])
        assert result["rain"][1].tolist() == [0, pytest.approx(1)]


def test_bif_is_written_and_read_again(tmp_path):
    rng = np.random.default_rng(0)
    labels, scopes = (2, 3, 2, 4), [(0,), (2, 1), (0, 1, 2), (3, 2)]
    children = [0, 1, 2, 3]
    tables = []
    for scope, child in zip(scopes, children, strict=True):
        axis = scope.index(child)
        table = rng.dirichlet(np.ones(labels[child]), [labels[v] for v in scope if v != child])
        tables.append((scope, -np.log(np.moveaxis(table, -1, axis))))
    tables[1] = ((1,), -np.log([0.2, 0.3, 0.5]))
    network = network_of(labels, tables, children)
    again = networks.read_bif(networks.write_bif(network, tmp_path / "network.bif"))
    assert again.variables == {str(v): tuple(map(str, range(k))) for v, k in enumerate(labels)}
    evidence = np.array([[-1, 2, -1, 1], [0, -1, -1, -1]])
    ours, theirs = network.posteriors(evidence), again.posteriors(evidence)
    assert_close(ours.log_evidence, theirs.log_evidence)
    assert_close(ours[2], theirs["2"])


def test_what_a_bif_file_cannot_hold_is_refused(tmp_path):
    with pytest.raises(DataError, match="use write_uai"):
        networks.write_bif(network_of([2], [((0,), np.zeros(2))]), tmp_path / "a.bif")
    named = networks.Network({"a b": ["x", "y"]}, [((0,), np.log([2, 2]))], [0])
    with pytest.raises(DataError, match="'a b' cannot stand in a BIF file"):
        networks.write_bif(named, tmp_path / "a.bif")
    slash = networks.Network({"a": ["x/y", "<7.5"]}, [((0,), np.log([2, 2]))], [0])
    assert networks.read_bif(networks.write_bif(slash, tmp_path / "a.bif")).variables == slash.variables
    (tmp_path / "a.bif").unlink()
    with pytest.raises(DataError, match="'x//y' cannot stand"):
        networks.write_bif(networks.Network({"a": ["x//y"]}, [((0,), np.zeros(1))], [0]), tmp_path / "a.bif")
    same = networks.Network({"a": [1, "1"]}, [((0,), np.log([2, 2]))], [0])
    with pytest.raises(DataError, match="same name as text"):
        networks.write_bif(same, tmp_path / "a.bif")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<TABLE>0.8 0.2<", "<TABLE>0.8 0.3<", "table of 'rain': expected probabilities that sum to 1"),
        ("<TABLE>0.8 0.2<", "<TABLE>0.8<", "table of 'rain': 1 numbers, expected 2"),
        ("<TABLE>0.8 0.2<", "<TABLE>0.8 nan<", "expected finite numbers, got nan"),
        ("<TABLE>0.8 0.2<", "<TABLE>0.8 x<", "could not convert"),
        ("<FOR>rain</FOR>", "<FOR>snow</FOR>", "'snow' is no variable"),
        ("<FOR>rain</FOR>", "", "a DEFINITION without a FOR"),
        ("</BIF>", "", "not complete XML"),
        ("<FOR>rain</FOR><TABLE>0.8 0.2", "<FOR>rain</FOR><GIVEN>grass</GIVEN><TABLE>.5 .5 .5 .5 .5 .5", "a cycle"),
        ("<GIVEN>rain</GIVEN>", "<GIVEN>grass</GIVEN>", "expected different variables"),
        ("<DEFINITION><FOR>rain</FOR><TABLE>0.8 0.2</TABLE></DEFINITION>", "", "'rain' has no table"),
        ('TYPE="nature"><NAME>rain', 'TYPE="decision"><NAME>rain', "of type 'decision'"),
    ],
)
def test_bad_xmlbif(old, new, message):
    assert old in XML
    with pytest.raises(DataError, match=message):
        networks.read_xmlbif(XML.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(0.8 0.2)", "(0.8 0.3)", "sum to 1"),
        ("0.9 0.1 0.0", "0.9 0.1", "5 numbers, expected 6"),
        ("| rain )", "| snow )", "'snow' is no variable"),
        ("0.2 0.7 0.1 )); }", "0.2", "line 5: expected a complete net, node or potential block"),
        ("states = (dry wet icy);", "", "expected states"),
        ("data = (0.8 0.2);", "", "expected data"),
        ("discrete node grass", "utility grass", "line 3: expected a complete"),
    ],
)
def test_bad_net(old, new, message):
    assert old in NET
    with pytest.raises(DataError, match=message):
        networks.read_net(NET.replace(old, new))


def test_what_is_hardly_possible_is_written_as_possible(tmp_path):
    network = network_of([3], [((0,), np.array([0.0, 800.0, np.inf]))], [0])
    again = networks.read_bif(networks.write_bif(network, tmp_path / "network.bif"))
    assert np.isfinite(again.factors[0][1]).tolist() == [True, True, False]


def test_states_may_be_called_as_the_words_of_the_format(tmp_path):
    words = ["property", "my-property", "table", "default", "network", "variable", "probability", "type"]
    variables = {word: (word, "other") for word in words}
    parents = {below: [above] for above, below in pairwise(words)}
    network = networks.bayesian_network(variables, parents)
    again = networks.read_bif(networks.write_bif(network, tmp_path / "words.bif"))
    assert again.variables == variables
    assert [scope for scope, _ in again.factors] == [scope for scope, _ in network.factors]


def test_an_encoding_that_an_xml_file_names_is_not_that_of_its_text():
    text = XML.replace("?>", ' encoding="ISO-8859-1"?>', 1).replace("wet", "naß")
    assert networks.read_xmlbif(text).variables["grass"] == ("dry", "naß", "icy")


@pytest.mark.parametrize(
    ("read", "text"),
    [(networks.read_bif, BIF), (networks.read_xmlbif, XML), (networks.read_net, NET), (networks.read_uai, UAI)],
)
def test_lines_may_end_as_anywhere_and_files_may_be_compressed(tmp_path, read, text):
    network = read(text)
    for ending in ("\r\n", "\r"):
        content = text.replace("\n", ending).encode()
        (tmp_path / "plain").write_bytes(content)
        (tmp_path / "packed").write_bytes(gzip.compress(content))
        for name in ("plain", "packed"):
            again = read(tmp_path / name)
            assert again.variables == network.variables
            for (_, a), (_, b) in zip(again.factors, network.factors, strict=True):
                np.testing.assert_array_equal(a, b)


def test_what_is_too_small_for_a_number_stays_possible():
    network = networks.read_uai("MARKOV\n1\n3\n1\n1 0\n3\n0.00 1e-400 1\n")
    assert network.factors[0][1][0] == np.inf
    assert 744 < network.factors[0][1][1] < 746


@pytest.mark.parametrize("read", [networks.read_bif, networks.read_xmlbif, networks.read_net])
@pytest.mark.parametrize("source", [None, b"<BIF/>", 3, "nowhere.file", "", Path()])
def test_other_sources_are_refused(read, source):
    with pytest.raises(DataError, match=r"expected a path or the text|not a readable|right format|not complete"):
        read(source)
