"""The race with networks: recipes that are chosen by validation alone, and what the report makes of it."""

import json

import pytest
from experiments.paper import runner
from experiments.paper.ablations import race
from experiments.paper.cells import find_cell
from experiments.paper.report.page import report
from experiments.paper.store import Store


def test_each_stage_waits_for_the_one_before_and_chooses_by_validation(paper, tmp_path, monkeypatch):
    monkeypatch.setattr(race, "TRIALS", 2)
    monkeypatch.setattr(race, "FINALISTS", 1)
    monkeypatch.setattr(race, "DATA", {"dense": ("mpcompare/SweepLBP/Dense",)})
    cells = ["mpcompare/SweepLBP/Dense", "mpcompare/NN(relu)/Dense", "mpcompare/NN(sigmoid)/Dense"]
    monkeypatch.setattr(race, "cell_names", lambda _: cells)
    monkeypatch.setattr(runner, "accuracy", lambda model, e, part: e.learning_rate)
    code, _, log = paper("ablate", "race-dense", "--seeds", "2", "--epochs", "1")
    assert code == 0, log
    rows = json.loads((tmp_path / "results" / "ablations" / "race-dense.json").read_text())["rows"]
    assert [row["stage"] for row in rows] == ["trial"] * 6 + ["finalist"] * 3 + ["cell"] * 3
    for row, cell in zip(rows[6:9], rows[9:], strict=True):
        tried = [other for other in rows[:6] if other["learner"] == row["learner"]]
        assert row["trial"] == max(tried, key=lambda other: other["validation accuracy"])["trial"]
        assert cell["accuracy"] == pytest.approx(row["learning_rate"])
    text = report(Store(tmp_path / "results"))["reproduction/open-questions.md"]
    assert "## Do networks stay ahead when both sides are tuned? Dense" in text
    assert "| mpcompare, LBP and TRW (5 cells) | - |" in text


def test_a_recipe_is_drawn_the_same_every_time():
    recipes = [race._recipe(learner, n) for learner in race.LEARNERS for n in range(race.TRIALS)]
    assert recipes == [race._recipe(learner, n) for learner in race.LEARNERS for n in range(race.TRIALS)]
    assert len({tuple(recipe.items()) for recipe in recipes}) == len(recipes)
    assert race._recipe("NN(relu)", 3)["start"] == "default"


def test_what_was_stored_before_a_setting_was_there_still_counts(tmp_path):
    store, cell = Store(tmp_path), find_cell("mpcompare/SeqLBP/Dense")
    run = {"accuracy": 0.9, "epochs": 1, "best_epoch": 1, "cap": 12, "seconds": 1.0, "machine": "m"}
    store.add(cell, 0, run)
    content = json.loads((tmp_path / cell.file).read_text())
    del content["experiment"]["weight_decay"]
    (tmp_path / cell.file).write_text(json.dumps(content))
    assert store.runs(cell) == {0: run}
