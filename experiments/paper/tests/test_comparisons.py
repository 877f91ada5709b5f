"""Claims are judged by the numbers: the same rule for the paper and for both of our columns."""

import pytest
from experiments.paper.cells import all_cells, find_cell
from experiments.paper.report.comparisons import PAIRS, compare, over_fits, verdict
from experiments.paper.report.page import report
from experiments.paper.significance import SINGLE, Lead
from experiments.paper.store import Store


def pages(store):
    """All pages below each other."""
    return "\n".join(report(store).values())


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def add(store, name, *accuracies, way="ours", train=0.9, epochs=12, cap=300, first=0):
    cell = find_cell(name, way)
    for seed, accuracy in enumerate(accuracies, first):
        run = {"accuracy": accuracy, "train_accuracy": train, "epochs": epochs, "cap": cap, "best_epoch": epochs}
        store.add(cell, seed, run | {"seconds": 1.0, "machine": "a machine"})


def test_every_pair_names_cells():
    names = {cell.name for cell in all_cells()}
    assert {name for pairs in PAIRS.values() for pair in pairs.values() for name in pair} <= names
    assert all(first != second for pairs in PAIRS.values() for first, second in pairs.values())


@pytest.mark.parametrize(
    ("leads", "said"),
    [
        ([0.01, 0.02], "holds (clearly true of 2 of 2 pairs"),
        ([0.01, 0.02, 0.0], "holds in most pairs (clearly true of 2 of 3 pairs"),
        ([0.01, 0.0], "not confirmed (clearly true of 1 of 2 pairs"),
        ([0.004, -0.004], "not confirmed (clearly true of 0 of 2 pairs"),
        ([-0.01, -0.02, 0.01], "the opposite holds in most pairs (clearly true of 1 of 3 pairs"),
    ],
)
def test_one_rule_for_all_claims(leads, said):
    assert verdict([Lead(mean, SINGLE) for mean in leads]).startswith(said)


def test_without_results_nothing_is_said(store):
    assert not any(compare(store).values())
    assert "How much of TRW's lead" not in pages(store)
    add(store, "mpcompare/SeqTRW/Local", 0.98)
    assert not any(compare(store).values())


def test_leads_are_shown_with_their_spread(store):
    add(store, "mpcompare/SeqTRW/Local", 0.980, 0.984)
    add(store, "mpcompare/SeqLBP/Local", 0.986, 0.986)
    text = pages(store)
    assert "## How much of TRW's lead is scale?" in text
    assert "| TRW over LBP, sequential, Local | +0.0050 ± 0.0042 | -0.0040 ± 0.0021 |" in text
    assert "- ours: not confirmed (clearly true of 0 of 1 pairs, clearly false of 0, median lead -0.0040)" in text
    assert "0 % of the paper's median lead is left in our column." in text
    assert "sequential, Conv" not in text


def test_a_half_of_the_lead_is_left(store):
    add(store, "mpcompare/ParTRW/Conv", 0.987)
    add(store, "mpcompare/ParLBP/Conv", 0.980)
    assert "50 % of the paper's median lead is left in our column." in pages(store)


def test_both_columns_stand_beside_each_other(store):
    for way, soft in (("paper", 0.96), ("ours", 0.97)):
        add(store, "softclamp/LGM/Soft clamp", soft, way=way)
        add(store, "softclamp/LGM/Binary threshold", 0.95, way=way)
    row = "**+0.0180 ± 0.0042** | **+0.0100 ± 0.0042** | **+0.0200 ± 0.0042** |"
    assert f"| MNIST, Dense, over a threshold | {row}" in pages(store)


def test_pairs_with_a_training_at_chance_are_marked(store):
    add(store, "exp_partial_input_fm/Conv (0.3)/LGM", 0.1)
    add(store, "exp_partial_input_fm/Conv (0.3)/NN(relu)", 0.8)
    assert "**-0.7000 ± 0.0042** †" in pages(store)


def test_trainings_that_went_to_their_end_stand_for_their_cell(store):
    add(store, "mpcompare/SeqTRW/Local", 0.90, way="paper", cap=12)
    add(store, "mpcompare/SeqTRW/Local", 0.98, way="paper", first=1)
    add(store, "mpcompare/SeqLBP/Local", 0.97, way="paper")
    add(store, "fashionmnist/F/2", 0.60, train=0.70, way="paper", cap=12)
    add(store, "fashionmnist/F/2", 0.80, train=0.90, way="paper", first=1)
    text = pages(store)
    assert "| TRW over LBP, sequential, Local | +0.0050 ± 0.0042 | **+0.0100 ± 0.0042** |" in text
    assert "| F, 2 | as the paper | 0.9000 | 0.8000 |" in text


def test_only_what_our_column_has_to_its_end_is_left_of_a_lead(store):
    add(store, "mpcompare/ParTRW/Conv", 0.987)
    add(store, "mpcompare/ParLBP/Conv", 0.980)
    add(store, "mpcompare/ParTRW/Dense", 0.900, cap=4, epochs=4)
    add(store, "mpcompare/ParLBP/Dense", 0.980)
    assert "50 % of the paper's median lead is left in our column." in pages(store)


@pytest.mark.parametrize(
    ("train", "test", "said"),
    [
        (0.05, -0.02, "over-fits"),
        (-0.05, -0.02, "both fall, so it is not over-fitting alone"),
        (0.05, 0.01, "more colours do no harm"),
    ],
)
def test_over_fitting_is_a_rise_in_training_and_a_fall_in_test(train, test, said):
    assert over_fits(train, test).endswith(said)


def test_training_and_test_accuracy_by_colours(store):
    add(store, "fashionmnist/F/2", 0.83, train=0.87)
    add(store, "fashionmnist/F/4", 0.85, train=0.88)
    add(store, "fashionmnist/F/32", 0.82, train=0.95)
    add(store, "fashionmnist/F/Soft", 0.87, train=0.9)
    text = pages(store)
    assert "| F, 32 | ours | 0.9500 | 0.8200 | +0.1300 | 12.0 |" in text
    assert "- F, ours, 4 to 32 colours: training +0.0700, test -0.0300: over-fits" in text
    assert "| F, Soft | ours |" not in text
