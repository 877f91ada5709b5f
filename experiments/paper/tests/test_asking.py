"""Questions are asked case by case: left, gone on with, and asked again with more effort."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from experiments.paper import questions
from experiments.paper.cells import all_cells
from experiments.paper.clock import Clock, Left
from experiments.paper.jobs import Options
from experiments.paper.questions import bench, full_size
from experiments.paper.questions.asking import Answer, Case, Question, answer_file

from torchlgm.errors import DataError

NAMES = ("a", "b", "c")


class Asked:
    """A question with three cases, which notes those that are made; `at` is called when one is."""

    def __init__(self, at=lambda name: None):
        self.made, self.at = [], at
        self.question = Question("letters", "Which letters?", "So.", self.cases, lambda rows: f"{len(rows)} letters")

    def cases(self, options, clock):
        return [
            Case({"letter": name}, lambda name=name: self.make(name), {"seeds": options.seeds or 3, "epochs": 4})
            for name in NAMES
        ]

    def make(self, name):
        self.at(name)
        self.made.append(name)
        return [{"score": 0.123456}]


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """Asks as `python -m experiments.paper questions` does: what was told."""

    def answer(asked, **more):
        monkeypatch.setattr(questions, "QUESTIONS", (asked.question,))
        told = []
        options = Options(tmp_path, device="cpu", **more)
        questions.answer(tmp_path, options, told.append)
        return told

    return answer


@pytest.fixture
def rows(tmp_path):
    return lambda asked: json.loads(answer_file(tmp_path, asked.question).read_text())["rows"]


def test_the_answer_is_told(ask, rows):
    asked = Asked()
    assert ask(asked)[-1] == "letters: 3 letters"
    assert rows(asked)[1] == {"letter": "b", "seeds": 3, "epochs": 4, "score": 0.1235}
    assert ask(asked, quick=True)[-1].startswith("Asked quickly")


def test_what_fails_leaves_the_rows_before_it(ask, rows, tmp_path):
    def fail(name):
        if name == "b":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask(Asked(fail))
    asked = Asked()
    assert [row["letter"] for row in rows(asked)] == ["a"]
    assert "Not answered yet: 2 parts are left." in questions.section(tmp_path)
    ask(asked)
    assert asked.made == ["b", "c"]


def test_time_is_kept(ask, rows, monkeypatch):
    asked = Asked()
    assert ask(asked, minutes=0.0)[-1] == "letters: 3 of 3 parts are left; the same command goes on with them"
    answers = iter([False])
    monkeypatch.setattr(Clock, "over", property(lambda _: next(answers, True)))
    told = ask(asked, minutes=1.0)
    assert told[-1].startswith("letters: 2 of 3 parts are left")
    assert [row["letter"] for row in rows(asked)] == ["a"]


def test_more_seeds_or_epochs_are_asked_again(ask, rows, tmp_path):
    asked = Asked()
    ask(asked, seeds=2)
    ask(asked, seeds=1)
    assert asked.made == [*NAMES]
    ask(asked, seeds=3)
    assert asked.made == [*NAMES] * 2
    path = answer_file(tmp_path, asked.question)
    content = json.loads(path.read_text())
    content["rows"][1]["epochs"] = 2
    del content["rows"][2]["epochs"]  # as in rows that did not tell it
    path.write_text(json.dumps(content))
    ask(asked, seeds=3)
    assert asked.made == [*NAMES, *NAMES, "b"]
    assert [row["letter"] for row in rows(asked)] == [*NAMES]


def test_seeds_are_not_lost_where_fewer_are_asked_for(ask, rows, tmp_path):
    asked = Asked()
    ask(asked, seeds=3)
    path = answer_file(tmp_path, asked.question)
    path.write_text(path.read_text().replace('"epochs": 4', '"epochs": 2'))
    with pytest.raises(DataError, match=r"letters\.json: rows with 3 seeds would be lost; ask for as many"):
        ask(asked, seeds=2)
    assert asked.made == [*NAMES]
    assert [row["seeds"] for row in rows(asked)] == [3, 3, 3]
    ask(asked, seeds=3)
    assert asked.made == [*NAMES] * 2


def test_rows_of_fewer_seeds_stay_until_they_are_made_again(ask, rows):
    def leave(name):
        if name == "b":
            raise Left

    ask(Asked(), seeds=1)
    asked = Asked(leave)
    told = ask(asked, seeds=2)
    assert [row["seeds"] for row in rows(asked)] == [2, 1, 2]
    assert told[-1].startswith("letters: 1 of 3 parts are left")


def test_questions_have_the_time_that_tables_left(ask):
    """A run that began two minutes ago has none of its one minute left."""
    told = ask(Asked(), minutes=1.0, began=time.monotonic() - 120)
    assert told[-1].startswith("letters: 3 of 3 parts are left")


@pytest.mark.parametrize("workers", [1, 3])
def test_heavy_cases_at_the_same_time_keep_their_order(ask, rows, workers):
    asked = Asked()
    asked.question = replace(asked.question, heavy=True)
    ask(asked, workers=workers, quick=True)
    assert [row["letter"] for row in rows(asked)] == [*NAMES]


def test_a_gpu_has_no_more_workers_than_streams(ask, monkeypatch):
    asked = Asked()
    monkeypatch.setattr(Options, "where", torch.device("cuda"))
    with pytest.raises(DataError, match="--workers 33: a GPU has streams for 32 trainings"):
        ask(asked, workers=33)
    assert not asked.made


def test_rows_of_another_run_stay(ask, rows):
    """It begins and ends while this one makes its first row."""
    other = Asked()
    ask(Asked(at=lambda name: ask(other) if not other.made else None))
    assert [row["letter"] for row in rows(other)] == [*NAMES]


def test_rows_of_unlike_effort_are_not_compared(ask, tmp_path):
    ask(Asked(), seeds=1)

    def fail(name):
        if name == "b":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask(Asked(fail), seeds=2)
    assert "Not answered yet: 2 parts are left." in questions.section(tmp_path)


def test_figures_that_are_missing_are_named(tmp_path):
    path = tmp_path / "questions" / "calibration.json"
    path.parent.mkdir()
    path.write_text('{"rows": [{"data": "MNIST"}], "machine": "m"}')
    with pytest.raises(DataError, match=r"calibration.json: figures are missing"):
        questions.section(tmp_path)


def test_answers_that_cannot_be_read_are_named(ask, tmp_path):
    path = answer_file(tmp_path, Asked().question)
    path.parent.mkdir()
    path.write_text("{")
    with pytest.raises(DataError, match="letters"):
        ask(Asked())


@pytest.mark.usefixtures("single_precision")
def test_a_training_of_a_question_goes_on_where_it_was_left(images, tmp_path, monkeypatch):
    options = Options(tmp_path, str(images), "cpu", seeds=1, epochs=2)
    e = next(all_cells(ways=["ours"], pattern="softclamp/LGM/Soft")).experiment
    whole = bench.Bench(options, Clock(None), "whole").trained(e, 0)
    left = bench.Bench(options, Clock(None), "letters")
    answers = iter([False])
    monkeypatch.setattr(Clock, "over", property(lambda _: next(answers, True)))
    with pytest.raises(Left):
        left.trained(e, 0)
    monkeypatch.undo()
    assert list((tmp_path / "unfinished" / "questions" / "letters").rglob("state-*"))
    again = left.trained(e, 0)
    assert all((a == b).all() for a, b in zip(whole.parameters(), again.parameters(), strict=True))


@pytest.mark.usefixtures("single_precision")
def test_the_last_weights_are_measured_beside_the_best(images, tmp_path, monkeypatch):
    """Each measured by the sum of the weights; at a rate this high, not every epoch is the best so far."""
    monkeypatch.setattr(bench, "accuracy", lambda model, *_: sum(p.sum().item() for p in model.parameters()))
    e = next(all_cells(ways=["paper"], pattern="softclamp/LGM/Soft")).experiment

    def ends(epochs):
        options = Options(tmp_path, str(images), "cpu", seeds=1, epochs=epochs)
        return bench.Bench(options, Clock(None), "ends").ends(replace(e, learning_rate=30.0), 0)

    bests, lasts = zip(*map(ends, range(1, 5)), strict=True)
    assert ends(4) == (bests[-1], lasts[-1]), "though its training is at its end already"
    assert len(set(lasts)) == len(lasts)
    assert bests[0] == lasts[0]
    assert all(best in lasts[: epoch + 1] for epoch, best in enumerate(bests))
    assert bests != lasts


def test_what_a_start_by_colours_changes_is_summed_up_apart():
    def row(cell, start, best, last):
        return {"cell": cell, "start": start, "paper": 0.8, "best weights": best, "last weights": last, "seeds": 1}

    rows = [row("two", "N(0, 1)", 0.79, 0.8), row("many", "N(0, 1)", 0.7, 0.72)]
    said = full_size.quantised_say([*rows, row("many", "N(0, 2 / colours)", 0.78, 0.81)])
    assert said == (
        "Mean distance to the paper, of cells with two labels 0.0100 for the best and 0.0000 for the last weights; "
        "with more, from N(0, 1), 0.1000 for the best and 0.0800 for the last weights; with more, from "
        "N(0, 2 / colours), 0.0200 for the best and 0.0100 for the last weights."
    )


def test_the_stored_answers_are_whole():
    out = Path(__file__).parents[3] / "experiments" / "paper" / "results"
    for question in questions.QUESTIONS:
        found = Answer(question, out)
        cases = list(question.ask(Options(out, device="cpu", seeds=1, epochs=4), Clock(None)))
        assert all(case.is_done(found.rows) for case in cases), question.name
        assert sum(len(case.own(found.rows)) for case in cases) == len(found.rows), question.name
