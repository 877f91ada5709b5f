"""Cards say how the kept models were made, and what they say can be done."""

import re
from pathlib import Path

import pytest
import torch
from experiments.paper import model_cards
from experiments.paper.cells import find_cell
from experiments.paper.model_cards import save_model
from experiments.paper.store import Store

import torchlgm as lgm
from torchlgm import LGM, lbp, zoo

ROOT = Path(__file__).parents[3]
NAME = "exp_partial_input_m/Local (0.7)/LGM+fill"
RUN = {"accuracy": 0.9842, "nll": 0.1, "brier": 0.03, "calibration_error": 0.09, "train_accuracy": 0.99}
RUN |= {"best_epoch": 19, "epochs": 20, "cap": 20, "seconds": 28.4, "machine": "a machine"}
pytestmark = pytest.mark.usefixtures("single_precision")


@pytest.fixture
def store(tmp_path):
    cell = find_cell(NAME)
    store = Store(tmp_path)
    store.add(cell, 0, RUN)
    save_model(LGM(zoo.windows("local")), cell, RUN, store)
    return store


def test_a_card_says_how_the_model_was_made(store):
    text = model_cards.write(store).read_text()
    for said in (
        "Local LGM, MNIST with 70 % of the pixels visible, also learns to fill in.",
        "| graph | inputs 1x28x28, edges 6x13x13, parts 16x5x5, hidden 100, classes 1 |",
        '| method | `lbp(1, "sweep")` |',
        "| objective | log-likelihood of the class and of the hidden pixels (weight 1), labels smoothed by 0.1 |",
        "| start | mild: `Init(table=0.3, unary=0.0, scale='balanced')`, unaries of the pixels from the data |",
        "batches of 20, 20 epochs, the weights of the lowest validation loss (epoch 19) |",
        "| machine | a machine; 28 s while other trainings ran beside it |",
        "| test | accuracy 0.9842, NLL 0.1000, Brier score 0.0300, calibration error 0.0900 |",
        "python -m experiments.paper train exp_partial_input_m --cells 'Local (0.7)/LGM+fill' --column ours --seeds 1 "
        "--epochs 20",
    ):
        assert said in text
    assert model_cards.overview(store)[0]["test accuracy"] == "0.9842"


def test_seeds_that_were_trained_together_are_made_again_together(store):
    cell = find_cell(NAME)
    store.add(cell, 0, {**RUN, "together": 3})
    assert "| seed | 0, in one step with 2 other seeds |" in model_cards.page(store)
    assert "--seeds 3" in model_cards.page(store)


def test_a_training_that_diverged_has_no_card(store):
    cell = find_cell(NAME)
    store.add(cell, 0, {"error": "nan", "machine": "a machine"})
    assert model_cards.write(store) is None
    assert model_cards.overview(store) == []


def test_no_models_no_cards(tmp_path):
    assert model_cards.write(Store(tmp_path)) is None
    assert model_cards.overview(Store(tmp_path)) == []


def test_the_kept_models_have_the_cards_that_their_records_give():
    store = Store(ROOT / "experiments" / "paper" / "results")
    assert (store.folder / "models" / "README.md").read_text(encoding="utf-8") == model_cards.page(store)


def test_the_kept_models_are_small_and_load_as_their_cards_say():
    folders = sorted(
        path for path in (ROOT / "experiments" / "paper" / "results" / "models").iterdir() if path.is_dir()
    )
    named = re.findall(r"^## (.+)$", model_cards.page(Store(ROOT / "experiments" / "paper" / "results")), re.MULTILINE)
    assert sorted(named) == [folder.name for folder in folders]
    for folder in folders:
        assert sum(file.stat().st_size for file in folder.iterdir()) < 1_000_000
        x = torch.full((2, 1, 28, 28), torch.nan)
        probs = lgm.Posterior(lgm.load(folder), lbp(1, "sweep"))(x).exp()
        torch.testing.assert_close(probs.sum(-1), torch.ones(2))
