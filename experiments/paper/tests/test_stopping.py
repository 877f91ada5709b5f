"""Rules of stopping are read off one training, which can be left and continued."""

import pytest
from experiments.paper.ablations.history import Epoch, smoothed, stop
from experiments.paper.ablations.stopping import patience_summary


def test_it_stops_where_the_loss_no_longer_falls():
    history = [Epoch(loss, accuracy / 10) for accuracy, loss in enumerate((3.0, 2.0, 2.5, 1.0, 1.1, 1.2, 0.9))]
    assert stop(history, 1) == (history[1], history[2], 3)
    assert stop(history, 2) == (history[3], history[5], 6)
    assert stop(history, None) == (history[6], history[6], 7)


def test_a_smoothed_loss_is_not_stopped_by_one_bad_epoch():
    history = [Epoch(loss, 0.0) for loss in (5.0, 4.0, 3.0, 3.5, 2.0)]
    assert smoothed(history) == pytest.approx([5.0, 4.5, 4.0, 3.875, 3.5])
    assert stop(history, 1).epochs == 4
    assert stop(history, 1, smoothed(history)).epochs == 5


def test_one_training_answers_for_every_patience(paper):
    code, _, log = paper("ablate", "patience", "--quick", "--seeds", "1")
    assert code == 0
    assert log.count("patience 20") == 8, "cells of one function are trained once"


def test_a_rule_is_judged_by_its_signed_difference():
    rows = [
        {"kind": "LGM", "change": "none", "patience": p, "paper": 0.96, "best weights": 0.955, "smoothed loss": 0.945}
        | {"last weights": 0.95 + p / 1000}
        for p in (5, 10, 20)
    ]
    summary = patience_summary(rows)
    assert "LGMs: best weights after 5 -0.0050, 1 of 1; last weights after 5 -0.0050, 1 of 1;" in summary
    assert "smoothed loss after 20 -0.0150, 0 of 1." in summary
