"""The race with networks: recipes that are chosen by validation alone, and what the report makes of it."""

import json
from collections import Counter

import pytest
from experiments.paper import runner
from experiments.paper.ablations import race
from experiments.paper.cells import all_cells, find_cell
from experiments.paper.report import findings
from experiments.paper.report.page import report
from experiments.paper.report.summary import summaries
from experiments.paper.store import Store


def test_each_stage_waits_for_the_one_before_and_chooses_by_validation(paper, tmp_path, monkeypatch):
    monkeypatch.setattr(race, "TRIALS", {"dense": 2})
    monkeypatch.setattr(race, "FINALISTS", 1)
    monkeypatch.setattr(race, "DATA", {"dense": ("mpcompare/SweepLBP/Dense",)})
    monkeypatch.setattr(
        race, "cell_names", lambda _, network: [f"mpcompare/{network}/Dense", "mpcompare/SweepLBP/Dense"]
    )
    monkeypatch.setattr(runner, "accuracy", lambda model, e, part: e.learning_rate)
    code, _, log = paper("ablate", "race-dense", "--seeds", "2", "--epochs", "1")
    assert code == 0, log
    rows = json.loads((tmp_path / "results" / "ablations" / "race-dense.json").read_text())["rows"]
    assert [row["stage"] for row in rows] == ["trial"] * 6 + ["finalist"] * 3 + ["cell"] * 2
    trials, finalists, (network, lgm) = rows[:6], rows[6:9], rows[9:]
    for row in finalists:
        tried = [other for other in trials if other["learner"] == row["learner"]]
        assert row["trial"] == max(tried, key=lambda other: other["validation accuracy"])["trial"]
    better = max(finalists[1:], key=lambda row: row["validation accuracy"])
    assert network["cell"] == f"mpcompare/{better['learner']}/Dense"
    assert network["accuracy"] == pytest.approx(better["learning_rate"])
    assert lgm["accuracy"] == pytest.approx(finalists[0]["learning_rate"])
    text = report(Store(tmp_path / "results"))["reproduction/open-questions.md"]
    assert "## Tuned LGMs against tuned networks: Dense" in text
    assert "| mpcompare/LBP and TRW/Dense (5 cells) | - |" in text


@pytest.mark.parametrize("learner", race.LEARNERS)
@pytest.mark.parametrize("shapes", race.TRIALS)
def test_recipes_are_spread_evenly_and_drawn_the_same_every_time(shapes, learner):
    recipes = race.recipes(shapes, learner)
    assert recipes == race.recipes(shapes, learner)
    rates = sorted(recipe["learning_rate"] for recipe in recipes)
    assert len(rates) == race.TRIALS[shapes]
    for i, rate in enumerate(rates):
        low, high = (race.LOWEST_RATE[learner] * 10 ** (part / len(rates)) for part in (i, i + 1))
        assert 0.95 * low < rate < 1.05 * high
    assert Counter(recipe["smoothing"] for recipe in recipes) == dict.fromkeys(race.SMOOTHING, len(recipes) / 3)
    starts = {recipe["start"] for recipe in recipes}
    assert starts == ({*race.STARTS} if learner == "LGM" else {"default"})


@pytest.mark.parametrize(("lgm", "network", "share"), [(0.97, 0.981, "0 of 1"), (0.982, 0.981, "1 of 1")])
def test_each_side_is_counted_at_its_best_known(tmp_path, lgm, network, share):
    store, cell = Store(tmp_path), find_cell("mpcompare/ParLBP/Dense")
    run = {"accuracy": 0.98, "epochs": 1, "best_epoch": 1, "cap": 12, "seconds": 1.0, "machine": "m"}
    store.add(cell, 0, run)
    rows = [
        {"stage": "cell", "cell": f"mpcompare/{row}/Dense", "epochs": 16, "accuracy": accuracy}
        for row, accuracy in (("SweepLBP", lgm), ("NN(relu)", network))  # LBP is one function there
    ]
    store.update_ablation("race-dense", lambda content: content | {"rows": rows})
    store.add(find_cell("mpcompare/NN(relu)/Dense"), 0, run | {"accuracy": 0.96})
    *_, every = findings._against_networks(summaries(all_cells(), store), store)
    assert every["both sides at their best known"] == share


def test_what_was_stored_before_a_setting_was_there_still_counts(tmp_path):
    store, cell = Store(tmp_path), find_cell("mpcompare/SeqLBP/Dense")
    run = {"accuracy": 0.9, "epochs": 1, "best_epoch": 1, "cap": 12, "seconds": 1.0, "machine": "m"}
    store.add(cell, 0, run)
    content = json.loads((tmp_path / cell.file).read_text())
    del content["experiment"]["weight_decay"]
    (tmp_path / cell.file).write_text(json.dumps(content))
    assert store.runs(cell) == {0: run}
