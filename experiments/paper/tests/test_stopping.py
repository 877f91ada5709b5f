"""Rules of stopping are read off one training, which can be left and continued."""

import pytest
from experiments.paper import ablations
from experiments.paper.ablations import stopping
from experiments.paper.ablations.history import Epoch, as_text, from_text, smoothed, stop
from experiments.paper.ablations.stopping import judged_cells, one_function, wanted
from experiments.paper.cells import find_cell
from experiments.paper.options import Options
from experiments.paper.store import Store
from experiments.pool import Budget


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


def test_epochs_are_kept_as_text():
    history = [Epoch(0.123456, 0.9), Epoch(2.5, 0.1)]
    assert from_text(as_text(history)) == [Epoch(0.12346, 0.9), Epoch(2.5, 0.1)]


def test_cells_of_one_function_are_trained_once():
    trained = [cell for cell, change in wanted() if change == "none"]
    assert len(judged_cells()) == 75
    assert len({one_function(cell.experiment) for cell in judged_cells()}) == len(trained) == 63
    dense = [cell for cell in trained if cell.table.label == "mpcompare" and cell.experiment.model == "dense"]
    assert [cell.row for cell in dense] == ["ParMF", "SeqMF", "NN(sigmoid)", "NN(relu)"]


@pytest.mark.usefixtures("single_precision")
def test_a_training_that_is_left_has_a_row_and_is_continued(images, tmp_path, monkeypatch):
    monkeypatch.setattr(stopping, "wanted", lambda: iter([(find_cell("softclamp/LGM/Soft clamp", "paper"), "none")]))

    def rows(*answers):
        told = iter(answers)
        with monkeypatch.context() as patch:
            patch.setattr(Budget, "over", property(lambda _: next(told, bool(answers))))
            ablations.run(["patience"], Options(tmp_path, str(images), "cpu", epochs=4), lambda _: None)
        return Store(tmp_path).ablation("patience")

    left = rows(False, False)
    assert left["left"] == 1
    assert left["rows"][0]["ended"] == 0
    two = left["rows"][0]["history"]
    assert len(two.split()) == 2
    done = rows()
    assert done["left"] == 0
    assert done["rows"][0]["ended"] == 1
    assert len(done["rows"][0]["history"].split()) == 4
    assert done["rows"][0]["history"].startswith(two)
