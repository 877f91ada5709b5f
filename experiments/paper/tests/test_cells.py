"""The tables hold the paper's numbers, and every cell builds and takes a step."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from experiments.paper import runner
from experiments.paper.cells import all_cells, find_cell, find_table
from experiments.paper.runner import make_method, make_model, make_settings, make_start
from experiments.paper.tables import TABLES, WAYS
from experiments.pool import Budget, Watch

from torchlgm.data import Data
from torchlgm.errors import DataError

pytestmark = pytest.mark.usefixtures("single_precision")


def numbers(label):
    return {(row, column): n for row, column, n in find_table(label).cells()}


def test_there_are_106_numbers():
    counts = {table.label: sum(n.accuracy is not None for _, _, n in table.cells()) for table in TABLES}
    assert counts == {
        "seqstruct": 25,
        "softclamp": 2,
        "cjinf": 5,
        "mpcompare": 28,
        "fashionmnist": 14,
        "fashionmnist_nncomp": 8,
        "exp_partial_input_m": 12,
        "exp_partial_input_fm": 12,
    }
    assert sum(counts.values()) == 106


@pytest.mark.parametrize(
    ("label", "row", "column", "accuracy"),
    [
        ("seqstruct", "T=1", "0 hidden", 0.913),
        ("seqstruct", "T=2", "1 hidden", 0.947),
        ("seqstruct", "T=4", "4 hidden", 0.098),
        ("seqstruct", "T=5", "4 hidden", 0.929),
        ("softclamp", "LGM", "Soft clamp", 0.963),
        ("softclamp", "LGM", "Binary threshold", 0.945),
        ("cjinf", "LGM", "Exact", 0.910),
        ("cjinf", "LGM", "Dense(20)", 0.880),
        ("mpcompare", "ParMF", "Dense", 0.952),
        ("mpcompare", "SeqMF", "Conv", 0.927),
        ("mpcompare", "SeqTRW", "Local", 0.984),
        ("mpcompare", "CD10", "Conv", 0.935),
        ("mpcompare", "NN(relu)", "Dense", 0.973),
        ("fashionmnist", "F", "Soft", 0.865),
        ("fashionmnist", "N", "256", 0.734),
        ("fashionmnist", "L", "4", 0.817),
        ("fashionmnist_nncomp", "Conv", "Requant.", 0.865),
        ("fashionmnist_nncomp", "Local", "NN(relu)", 0.894),
        ("exp_partial_input_m", "Local (0.3)", "LGM", 0.956),
        ("exp_partial_input_m", "Conv (0.7)", "NN(relu)", 0.986),
        ("exp_partial_input_fm", "Conv (0.3)", "LGM", 0.828),
        ("exp_partial_input_fm", "Local (0.7)", "NN(sigmoid)", 0.879),
    ],
)
def test_numbers_of_the_paper(label, row, column, accuracy):
    assert numbers(label)[row, column].accuracy == accuracy


@pytest.mark.parametrize(
    ("label", "total"),
    [
        ("seqstruct", 0.913 + 0.096 + 0.114 + 0.096 + 0.097 + 0.911 + 0.947 + 0.114 + 0.114 + 0.096 + 0.912 + 0.946
         + 0.937 + 0.114 + 0.114 + 0.911 + 0.941 + 0.946 + 0.937 + 0.098 + 0.912 + 0.945 + 0.941 + 0.936 + 0.929),
        ("mpcompare", 2.896 + 2.814 + 2.904 + 2.912 + 2.934 + 2.933 + 1.877 + 1.871 + 2.937 + 2.939),
        ("fashionmnist", 4.852 + 3.140 + 3.131),
        ("exp_partial_input_m", 2.862 + 2.859 + 2.948 + 2.952),
    ],
)  # fmt: skip
def test_sums_of_tables(label, total):
    assert sum(n.accuracy or 0 for n in numbers(label).values()) == pytest.approx(total)


def test_the_cells_that_fail_are_those_with_fewer_iterations_than_connections():
    failed = {cell for cell, n in numbers("seqstruct").items() if n.failed}
    assert failed == {(f"T={t}", f"{h} hidden") for t in range(1, 6) for h in range(5) if t < h + 1}
    assert all(not n.failed for t in TABLES[1:] for _, _, n in t.cells())


def test_tables_have_two_names():
    assert [find_table(f"table{i}") for i in range(1, 9)] == list(TABLES)
    assert find_table("cjinf") is TABLES[2]
    with pytest.raises(DataError, match=r"table9.*table1 \(seqstruct\).*table8"):
        find_table("table9")


def test_what_a_cell_is():
    kinds = {(c.experiment.learner, c.is_lgm, c.is_network) for c in all_cells()}
    assert kinds == {("lgm", True, False), ("network", False, True), ("cd", False, False)}


def test_files_of_results_are_all_different():
    files = Counter(cell.file for cell in all_cells())
    assert max(files.values()) == 1
    assert "mpcompare/seqtrw-local.ours.json" in files


def test_a_pattern_chooses_cells():
    names = {cell.name for cell in all_cells(pattern="seqtrw/*al")}
    assert names == {"mpcompare/SeqTRW/Local"}
    assert not list(all_cells(pattern="nothing"))


def test_the_columns_train_in_their_own_ways():
    paper = find_cell("mpcompare/SeqTRW/Local", "paper").experiment
    assert (paper.method, paper.schedule, paper.iterations, paper.batch) == ("published trw", "sequential", 5, 20)
    assert (paper.learning_rate, paper.patience, paper.cosine, paper.start) == (1e-3, 5, False, "paper")
    ours = find_cell("exp_partial_input_m/Local (0.3)/LGM", "ours").experiment
    assert (ours.schedule, ours.smoothing, ours.visible, ours.cosine) == ("sweep", 0.1, 0.3, True)
    network = find_cell("mpcompare/NN(relu)/Conv", "ours").experiment
    assert (network.learning_rate, network.cosine, network.activation) == (1e-3, True, "relu")
    wide = find_cell("fashionmnist/N/8", "paper").experiment
    assert (wide.hidden_nodes, wide.hidden_labels, wide.batch) == ((300,), 2, 20)
    many = find_cell("fashionmnist/L/32", "paper").experiment
    assert (many.hidden_nodes, many.hidden_labels, many.batch) == ((100,), 6, 4)


def test_the_papers_trw_does_not_divide_by_rho():
    methods = {way: repr(make_method(find_cell("mpcompare/SeqTRW/Conv", way).experiment)) for way in ("paper", "ours")}
    assert methods == {"paper": "trw(5, 'sequential', divide_by_rho=False)", "ours": "trw(5, 'sequential')"}


@pytest.mark.parametrize(("column", "std"), [("2", 1.0), ("8", 0.5), ("32", 0.25), ("Soft", 1.0)])
def test_a_start_by_colours_is_the_papers_for_two_labels(column, std):
    paper = find_cell(f"fashionmnist/F/{column}", "paper").experiment
    start = make_start(replace(paper, start="colours"))
    assert (start.table, start.unary, start.scale) == (std, std, "energy")
    assert (start == make_start(paper)) == (std == 1)


def unlike_cells():
    """One cell for each kind of experiment; cells that differ in sizes alone are left out."""
    kinds = {}
    for c in all_cells():
        e = replace(
            c.experiment, data="", iterations=0, epochs=1, batch=1, hidden=(), visible=c.experiment.visible and 0.5
        )
        if (c.experiment.colours or 0) <= 8:
            kinds.setdefault((e, bool(c.experiment.hidden)), c)
    return list(kinds.values())


@pytest.mark.filterwarnings("ignore:.*iteration")
@pytest.mark.parametrize("c", unlike_cells(), ids=lambda c: f"{c.name}-{c.way}")
def test_every_kind_of_cell_builds_and_is_trained(c):
    draw = torch.Generator().manual_seed(0)
    data = Data(torch.rand(4, 1, 28, 28, generator=draw), torch.arange(4), tuple("0123456789"))
    e = replace(c.experiment, epochs=1, learner="lgm" if c.experiment.learner == "cd" else c.experiment.learner)
    if e.visible is not None:
        data.inputs[:, :, ::2] = torch.nan
    before = make_model(e, 0, data)
    models, result = runner.fit(e, 0, [make_model(e, 0, data)], (data, data, data), None, Watch(Budget()))
    pairs = zip(before.parameters(), models[0].parameters(), strict=True)
    assert any(not torch.equal(p, q) for p, q in pairs), "a step has a gradient"
    assert len(result.history) == 1
    assert runner.log_probs(models[0], e, data.inputs).shape == (4, 10)
    assert make_settings(e, 1).seed == 1


def test_all_columns_are_known():
    assert set(WAYS) == {c.way for c in all_cells()}
