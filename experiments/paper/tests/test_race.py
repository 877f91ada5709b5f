"""The race with networks: dropout, recipes that are chosen by validation alone, and what the report makes of it."""

import json

import pytest
import torch
from experiments.paper import runner
from experiments.paper.ablations import race
from experiments.paper.cells import find_cell
from experiments.paper.dropout import DropoutLikelihood, with_dropout
from experiments.paper.report.page import report
from experiments.paper.store import Store
from torch.testing import assert_close

import torchlgm as lgm
from torchlgm import baselines, learn


@pytest.fixture
def posterior():
    model = lgm.LGM(lgm.zoo.dense(6, (4,), 3), "paper", generator=torch.Generator().manual_seed(0))
    return lgm.Posterior(model.double(), lgm.lbp(1, "sweep")).for_complete_inputs()


@pytest.fixture
def batch():
    draw = torch.Generator().manual_seed(1)
    return torch.rand(8, 6, generator=draw).double(), torch.randint(3, (8,), generator=draw)


def test_without_dropout_it_is_the_likelihood(posterior, batch):
    assert_close(DropoutLikelihood(0.1).loss(posterior, *batch), learn.Likelihood(0.1).loss(posterior, *batch))


def test_a_hidden_node_that_drops_out_tells_the_class_nothing(posterior, batch, monkeypatch):
    """If all do, only the class's own energies are left, which count for as much more."""
    monkeypatch.setattr(torch, "rand", lambda size, **_: torch.zeros(size))
    loss = DropoutLikelihood(hidden=0.5).loss(posterior, *batch)
    unary = list(posterior.model.unary.values())[-1].detach()[0]
    log_probs = (torch.cat([unary.new_zeros(1), -unary]) / 0.5).log_softmax(0)
    assert_close(loss, -log_probs[batch[1]].mean())


def test_what_is_left_counts_for_as_much_more(posterior, batch):
    """Over many draws the log-odds of hidden nodes, linear in the inputs, stay as they are."""
    torch.manual_seed(0)
    x = torch.nn.functional.dropout(batch[0][:1].expand(200_000, -1), 0.2)
    mean = posterior.condition(x).evidence[posterior.model.graph.layers[1].name].mean(0)
    whole = posterior.condition(batch[0][:1]).evidence[posterior.model.graph.layers[1].name][0]
    assert_close(mean, whole, atol=0.02, rtol=0)


def test_networks_drop_out_the_same_layers():
    network = with_dropout(baselines.network("dense", (1, 4, 4)), 0.1, 0.2)
    kinds = [(type(module).__name__, getattr(module, "p", None)) for module in network]
    assert kinds[1] == ("Dropout", 0.1)
    assert kinds[-2] == ("Dropout", 0.2)
    plain = baselines.network("dense", (1, 4, 4))
    assert [type(module) for module in with_dropout(plain, 0.0, 0.0)] == [type(module) for module in plain]


def test_each_stage_waits_for_the_one_before_and_chooses_by_validation(paper, tmp_path, monkeypatch):
    monkeypatch.setattr(race, "TRIALS", dict.fromkeys(race.LEARNERS, 2))
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
    recipes = [race._recipe(learner, n) for learner, count in race.TRIALS.items() for n in range(count)]
    assert recipes == [race._recipe(learner, n) for learner, count in race.TRIALS.items() for n in range(count)]
    assert len({tuple(recipe.items()) for recipe in recipes}) == len(recipes)
    assert race._recipe("NN(relu)", 3)["start"] == "default"


def test_what_was_stored_before_a_setting_was_there_still_counts(tmp_path):
    store, cell = Store(tmp_path), find_cell("mpcompare/SeqLBP/Dense")
    run = {"accuracy": 0.9, "epochs": 1, "best_epoch": 1, "cap": 12, "seconds": 1.0, "own_seconds": 1.0, "machine": "m"}
    store.add(cell, 0, run)
    content = json.loads((tmp_path / cell.file).read_text())
    del content["experiment"]["weight_decay"]
    (tmp_path / cell.file).write_text(json.dumps(content))
    assert store.runs(cell) == {0: run}
