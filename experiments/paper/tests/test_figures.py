"""Figures and questions: drawn and answered on stand-in data."""

import json

import pytest
import torch
from experiments.paper import figures, questions
from experiments.paper.cards import save_model
from experiments.paper.cells import all_cells
from experiments.paper.clock import Clock
from experiments.paper.command import reproduce
from experiments.paper.jobs import Options
from experiments.paper.questions import QUESTIONS, full_size, section, small_size
from experiments.paper.results import Store

from torchlgm import LGM, data, lbp, learn, zoo
from torchlgm.errors import DataError

RUN = {"accuracy": 0.1, "epochs": 1, "best_epoch": 1, "cap": 1, "seconds": 1.0, "own_seconds": 1.0, "machine": "none"}

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.usefixtures("single_precision")


@pytest.fixture
def options(images, tmp_path):
    return Options(tmp_path, str(images), "cpu", quick=True)


def test_figures_that_need_a_model_say_how_to_make_it(options, tmp_path):
    told = []
    paths = figures.draw(tmp_path, options, told.append)
    assert {"graph-local.png", "requantised.png", "soft-clamping.png"} <= {path.name for path in paths}
    (said,) = [line for line in told if line.startswith("silhouettes:")]
    for name in ("LGM", "LGM+fill"):
        assert f"python -m experiments.paper exp_partial_input_fm --cells 'Local (0.3)/{name}' --column ours" in said
    assert sum(line.endswith(f"--out {tmp_path}") for line in told) == 3
    assert "ambiguous.png" not in {path.name for path in paths}


def test_the_command_fails_where_a_figure_could_not_be_drawn(images, tmp_path):
    Store(tmp_path).add(next(all_cells()), 0, RUN)
    with pytest.raises(DataError, match="figures could not be drawn"):
        reproduce(["figures", "report"], "both", "*", tmp_path, data=str(images), device="cpu")
    assert (tmp_path / "figures" / "soft-clamping.png").exists()


def test_a_damaged_model_ends_no_other_figure(options, tmp_path):
    cell = next(c for c in all_cells(ways=["ours"]) if c.name == figures.DIGIT[0])
    save_model(LGM(zoo.windows("local")), cell, RUN, tmp_path)
    folder = figures.model_folder(cell, tmp_path)
    (folder / "weights.safetensors").write_bytes(b"damaged")
    told = []
    assert "soft-clamping.png" in {path.name for path in figures.draw(tmp_path, options, told.append)}
    (said,) = [line for line in told if line.startswith("ambiguous:")]
    assert f"delete {folder} and make it again: python -m experiments.paper exp_partial_input_m" in said
    assert (
        "needs the model of a training: python -m experiments.paper exp_partial_input_m --cells 'Local (0.7)/LGM+fill'"
        in said
    )


def test_beliefs_fill_what_was_not_seen(options, tmp_path):
    for name in figures.SILHOUETTES + figures.DIGIT:
        cell = next(c for c in all_cells(ways=["ours"]) if c.name == name)
        Store(tmp_path).add(cell, 0, RUN)
        save_model(LGM(zoo.windows("local")), cell, RUN, tmp_path)
    made = {path.name: path for path in figures.draw(tmp_path, options, lambda _: None)}
    assert made["silhouettes.png"].stat().st_size > 10_000
    assert made["ambiguous.png"].read_bytes().startswith(b"\x89PNG")
    shown = figures.section(Store(tmp_path), "here")
    assert "(here/silhouettes.png)" in shown
    assert "LGM+fill (Local, LBP, sweep, T=1) has a test accuracy of 0.1000." in shown
    assert "calibration" not in shown
    model, cell = figures._model(figures.DIGIT[0], tmp_path)
    x = torch.full((2, 1, 28, 28), 0.25)
    x[:, :, 14:] = torch.nan
    filled, probs = figures._believed(model, cell, x)
    assert torch.equal(filled[:, :, :14], x[:, :, :14])
    assert filled.isfinite().all()
    torch.testing.assert_close(probs.sum(1), torch.ones(2))


def test_answers_are_kept_and_shown(options, tmp_path):
    told = []
    questions.answer(tmp_path, options, told.append, "gradient")
    found = json.loads((tmp_path / "questions" / "gradient.json").read_text())
    rows = {(row["graph"], row["method"]): row for row in found["rows"]}
    assert rows["784-100-10, input observed", "LBP, sequential, T=3"]["analytic"] == "1.0000 (1.000)"
    assert rows["784-100-10, input observed", "LBP, sequential, T=2"]["analytic"] != "1.0000 (1.000)"
    assert "### Where is the analytic gradient right?" in section(tmp_path)
    assert "backpropagation is right from T=2 on and the analytic gradient from T=3 on." in section(tmp_path)
    questions.answer(tmp_path, options, told.append, "gradient")
    again, said, quick = told[-3:]
    assert again.startswith("gradient: answered already")
    assert said.startswith("gradient: On the tree, backpropagation is right from T=2 on")
    assert quick.endswith("this says nothing about the questions.")


def test_calibration_is_asked_shown_and_drawn(options, tmp_path):
    questions.answer(tmp_path, Options(**{**vars(options), "seeds": 1, "workers": 3}), lambda _: None, "calibration")
    rows = questions.rows_of(tmp_path, figures.CALIBRATION)
    assert len(rows) == 2 * 4 * 10
    assert {"accuracy", "nll", "brier", "calibration_error"} <= rows[0].keys()
    assert [row["model"] for row in rows[:40:10]] == ["LGM", "LGM+fill", "NN(relu)", "NN(relu)+mask"]
    assert [row["visible"] for row in rows[:10]] == list(full_size.SHARES)
    text = section(tmp_path)
    assert "| data | measure | model | 10% visible | 30% visible | 50% visible | 70% visible | 100% visible |" in text
    assert "Lowest, of 20 pairs of data and share, NLL: " in text
    lines = figures.calibration(rows).axes[1].get_lines()
    assert lines[2].get_ydata().tolist() == [row["nll"] for row in rows[20:30]]
    assert "(here/calibration.png)" in figures.section(Store(tmp_path), "here")


def test_what_the_answers_of_trainings_say():
    tested = {"T=1": 0.9, "T=5": 0.98, "T=20": 0.95}
    rows = [{"trained with": "T=5", **tested}, {"trained with": "T=1", **tested}]
    assert full_size.iterations_say(rows) == (
        "The T of the training is best, or within 0.001 of it, in 1 of 2 rows. "
        "Testing with T=20 instead changes the accuracy by -0.0300 to +0.0500."
    )
    changes = [("none", 0.98), ("damping 0.5", 0.97), ("start weak", 0.985)]
    figures_of = {"seeds": 1, "epochs": 4, "std": 0.0, "diverged": 0}
    rows = [{"schedule": "s", "change": c, "accuracy": a} | figures_of for c, a in changes]
    assert full_size.choices_say(rows).startswith(
        "With s, changes that are clearly better: none; clearly worse: damping 0.5 (-0.0100)."
    )
    assert "clearly better: start weak (+0.0050);" in full_size.choices_say([row | {"seeds": 3} for row in rows])
    assert "the change and the epochs (4 of 12); test accuracy, one seed." in full_size.choices_how(rows)
    assert "the change; test accuracy, mean over 3 seeds." in full_size.choices_how(
        [row | {"seeds": 3, "epochs": 12} for row in rows]
    )
    assert [row["accuracy"] for row in full_size.choices_shown(rows)] == ["0.9800", "0.9700", "0.9850"]
    assert full_size.choices_shown([rows[0] | {"seeds": 3, "std": 0.00123}])[0]["accuracy"] == "0.9800 ± 0.0012"
    diverged = [rows[0], rows[1] | {"seeds": 3, "diverged": 2}, rows[2] | {"diverged": 1}]
    assert [row["accuracy"] for row in full_size.choices_shown(diverged)] == ["0.9800", "0.9700", "-"]
    assert full_size.choices_say(diverged) == full_size.choices_say(rows[:2]), "what diverged is not compared"
    starts = [("a", "weak", 12, 0.1), ("a", "mild", 12, 0.9), ("b", "weak", 12, 0.8), ("b", "mild", 12, 0.799)]
    starts += [("a", "mild", 20, 0.91), ("b", "mild", 20, 0.798)]
    rows = [
        {"cell": c, "start": s, "learning rate": 0.01, "epochs": n, "accuracy": a, "std": 0.003, "worst": a, "seeds": 2}
        for c, s, n, a in starts
    ]
    assert full_size.missing_starts_say(rows) == (
        "Of the starts, at 0.01 and 12 epochs, highest in each cell, with the lead over the next: "
        "mild (**+0.8000 ± 0.0030**), weak (+0.0010 ± 0.0030). "
        "20 epochs instead of 12, from mild: **+0.0100 ± 0.0030**, -0.0010 ± 0.0030. "
        "Some training stayed at chance with the start weak."
    )


def test_heavy_questions_wait_for_a_gpu(options, tmp_path, monkeypatch):
    light = tuple(q for q in QUESTIONS if q.heavy)
    monkeypatch.setattr(questions, "QUESTIONS", light)
    told = []
    questions.answer(tmp_path, Options(tmp_path, options.data, "cpu"), told.append)
    assert len(told) == len(light)
    assert not list(tmp_path.rglob("*.json"))


def test_soft_and_expected_agree_on_hard_inputs():
    model = LGM(zoo.dense((1, 4, 4), (5,)), "paper", generator=torch.Generator().manual_seed(0))
    objective = learn.Likelihood(lbp(1), learn.Inputs(missing=False))
    hard = torch.tensor([[(i >> k) & 1 for k in range(16)] for i in range(2**16)]).float().reshape(-1, 1, 4, 4)
    every = learn.predict_log_probs(model, objective, hard, 8192)[:, 0]
    some = data.Data(hard[::9999].clone(), torch.arange(7) % 10, tuple("0123456789"))
    found = small_size._soft_and_expected(model, objective, some, hard, every)
    assert found["mean absolute gap"] == pytest.approx(0, abs=1e-4)
    grey = data.Data(torch.full_like(some.inputs, 0.5), some.targets, some.classes)
    assert small_size._soft_and_expected(model, objective, grey, hard, every)["mean absolute gap"] > 0.05


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: q.name)
def test_every_question_can_be_asked(options, question):
    cases = list(question.ask(options, Clock(None)))
    assert all(case.rows() for case in cases)
