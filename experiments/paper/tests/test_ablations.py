"""Ablations are made case by case: left, continued, and made again with more effort."""

import json
import time
from pathlib import Path

import pytest
import torch
from experiments.paper import ablations, figures, runner
from experiments.paper.ablations import ABLATIONS, full_size, rows_of, silhouettes, small_size
from experiments.paper.ablations.cases import Ablation, Bench, Case
from experiments.paper.cells import Experiment, find_cell
from experiments.paper.options import Options
from experiments.paper.report.page import report
from experiments.paper.sources import Sources
from experiments.paper.store import Store
from experiments.pool import Budget, TimeUp

from torchlgm import LGM, data, zoo
from torchlgm.errors import DataError


def pages(store):
    """All pages below each other."""
    return "\n".join(report(store).values())


NAMES = ("a", "b", "c")
WAIT_FOR_A_GPU = {"patience": 86, "race-dense": 72, "race-windows": 36}  # how many cases they begin with


class Letters:
    """An ablation with three cases, which notes those that are made; `at` is called when one is."""

    def __init__(self, at=lambda name: None, heavy=False):
        self.made, self.at = [], at
        self.ablation = Ablation("letters", self.cases, lambda rows: f"{len(rows)} letters", heavy=heavy)

    def cases(self, bench):
        return [
            Case({"letter": name}, lambda name=name: self.make(name), {"seeds": bench.options.seeds or 3, "epochs": 4})
            for name in NAMES
        ]

    def make(self, name):
        self.at(name)
        self.made.append(name)
        return [{"score": 0.123456}]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs as `python -m experiments.paper ablate` does: what was logged."""

    def run(letters, **more):
        monkeypatch.setattr(ablations, "ABLATIONS", {"letters": letters.ablation})
        logged = []
        ablations.run([], Options(tmp_path, device="cpu", **more), logged.append)
        return logged

    return run


@pytest.fixture
def rows(tmp_path):
    return lambda: rows_of(Store(tmp_path), "letters")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ablations" / "letters.json"


def test_rows_are_kept(run, rows, path):
    letters = Letters()
    assert run(letters)[-1] == f"letters: done, in {path}"
    assert rows()[1] == {"letter": "b", "seeds": 3, "epochs": 4, "score": 0.1235}
    assert run(letters) == [f"letters: done, in {path}"]
    assert run(letters, quick=True)[-1].startswith("Measured with a few steps")


def test_what_fails_leaves_the_rows_before_it(run, rows, tmp_path):
    def fail(name):
        if name == "b":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="parts are left; the same command continues with them"):
        run(Letters(fail))
    letters = Letters()
    assert [row["letter"] for row in rows()] == ["a"]
    assert Store(tmp_path).ablation("letters")["left"] == 2
    run(letters)
    assert letters.made == ["b", "c"]
    assert Store(tmp_path).ablation("letters")["left"] == 0


def test_time_is_kept(run, rows, monkeypatch):
    letters = Letters()
    assert run(letters, minutes=0.0)[-1].startswith(
        "letters: 3 of 3 parts are left; the same command continues with them"
    )
    answers = iter([False])
    monkeypatch.setattr(Budget, "over", property(lambda _: next(answers, True)))
    assert run(letters, minutes=1.0)[-1].startswith("letters: 2 of 3 parts are left")
    assert [row["letter"] for row in rows()] == ["a"]


def test_more_seeds_or_epochs_are_made_again(run, rows, path):
    letters = Letters()
    run(letters, seeds=2)
    run(letters, seeds=1)
    assert letters.made == [*NAMES]
    run(letters, seeds=3)
    assert letters.made == [*NAMES] * 2
    content = json.loads(path.read_text())
    content["rows"][1]["epochs"] = 2
    del content["rows"][2]["epochs"]  # as in rows that did not state it
    path.write_text(json.dumps(content))
    run(letters, seeds=3)
    assert letters.made == [*NAMES, *NAMES, "b"]
    assert [row["letter"] for row in rows()] == [*NAMES]


def test_seeds_are_not_lost_where_fewer_are_asked_for(run, rows, path):
    letters = Letters()
    run(letters, seeds=3)
    path.write_text(path.read_text().replace('"epochs": 4', '"epochs": 2'))
    with pytest.raises(DataError, match=r"letters\.json: rows with 3 seeds would be lost; ask for as many"):
        run(letters, seeds=2)
    assert letters.made == [*NAMES]
    assert [row["seeds"] for row in rows()] == [3, 3, 3]
    run(letters, seeds=3)
    assert letters.made == [*NAMES] * 2


def test_rows_of_fewer_seeds_stay_until_they_are_made_again(run, rows):
    def leave(name):
        if name == "b":
            raise TimeUp

    run(Letters(), seeds=1)
    logged = run(Letters(leave), seeds=2)
    assert [row["seeds"] for row in rows()] == [2, 1, 2]
    assert logged[-1].startswith("letters: 1 of 3 parts are left")


def test_ablations_have_the_time_of_the_run(run):
    """A run that began two minutes ago has none of its one minute left."""
    logged = run(Letters(), minutes=1.0, began=time.monotonic() - 120)
    assert logged[-1].startswith("letters: 3 of 3 parts are left")


@pytest.mark.parametrize("workers", [1, 3])
def test_heavy_cases_at_the_same_time_keep_their_order(run, rows, workers):
    run(Letters(heavy=True), workers=workers, quick=True)
    assert [row["letter"] for row in rows()] == [*NAMES]


def test_an_error_in_one_thread_ends_the_others(run):
    def fail(name):
        if name == "a":
            raise DataError("broken")
        time.sleep(0.2)

    letters = Letters(fail, heavy=True)
    with pytest.raises(DataError, match="broken"):
        run(letters, workers=2, quick=True)
    assert "c" not in letters.made


def test_a_gpu_has_no_more_workers_than_streams(run, monkeypatch):
    letters = Letters(heavy=True)
    monkeypatch.setattr(Options, "torch_device", torch.device("cuda"))
    with pytest.raises(DataError, match="--workers 33: a GPU has streams for 32 trainings"):
        run(letters, workers=33)
    assert not letters.made


def test_rows_of_another_run_stay(run, rows):
    """It begins and ends while this one makes its first row."""
    other = Letters()
    run(Letters(at=lambda name: run(other) if not other.made else None))
    assert [row["letter"] for row in rows()] == [*NAMES]


def test_heavy_ablations_wait_for_a_gpu_unless_they_are_named(run, tmp_path):
    letters = Letters(heavy=True)
    assert run(letters) == ["letters: takes long without a GPU; name it to run it"]
    ablations.run(["letters"], Options(tmp_path, device="cpu"), lambda _: None)
    assert letters.made == [*NAMES]


def test_rows_that_cannot_be_read_or_lack_figures_are_named(tmp_path, run, path):
    (tmp_path / "ablations").mkdir()
    (tmp_path / "ablations" / "calibration.json").write_text('{"rows": [{"data": "MNIST"}], "machine": "m"}')
    with pytest.raises(DataError, match=r"calibration.json: figures are missing"):
        pages(Store(tmp_path))
    path.write_text("{")
    with pytest.raises(DataError, match=r"letters\.json: not a result that can be read"):
        run(Letters())


def make_bench(images, tmp_path, name, **more):
    options = Options(tmp_path, str(images), "cpu", seeds=1, **more)
    return Bench(name, options, Budget(None), Sources(str(images), options.torch_device))


@pytest.mark.usefixtures("single_precision")
def test_a_training_of_an_ablation_continues_where_it_was_left(images, tmp_path, monkeypatch):
    e = find_cell("softclamp/LGM/Soft clamp").experiment
    whole = make_bench(images, tmp_path, "whole", epochs=2).trained(e, 0)
    left = make_bench(images, tmp_path, "letters", epochs=2)
    answers = iter([False])
    monkeypatch.setattr(Budget, "over", property(lambda _: next(answers, True)))
    with pytest.raises(TimeUp):
        left.trained(e, 0)
    monkeypatch.undo()
    assert list((tmp_path / "unfinished" / "ablations" / "letters").rglob("state-*"))
    again = left.trained(e, 0)
    assert all((a == b).all() for a, b in zip(whole.parameters(), again.parameters(), strict=True))


@pytest.mark.usefixtures("single_precision")
def test_every_epoch_is_measured_also_of_a_training_that_was_left(images, tmp_path, monkeypatch):
    """Each measured by the sum of the weights."""
    monkeypatch.setattr(runner.Tester, "__call__", lambda _, model: sum(p.sum().item() for p in model.parameters()))
    e = find_cell("softclamp/LGM/Soft clamp", "paper").experiment
    whole = make_bench(images, tmp_path, "whole", epochs=4).history(e, 0)[0]
    assert len({epoch.accuracy for epoch in whole}) == 4
    left = make_bench(images, tmp_path, "left", epochs=4)
    with monkeypatch.context() as patch:
        answers = iter([False, False])
        patch.setattr(Budget, "over", property(lambda _: next(answers, True)))
        assert left.history(e, 0) == (whole[:3], False)
    assert left.history(e, 0) == (whole, True)
    assert left.history(e, 0) == (whole, True), "though its training is at its end already"
    next((tmp_path / "unfinished" / "ablations" / "left").rglob("epochs.json")).write_text("{}")
    assert left.history(e, 0) == (whole, True), "though its figures were lost"


def test_what_a_start_by_colours_changes_is_summed_up_apart():
    def row(cell, start, best, last):
        return {"cell": cell, "start": start, "paper": 0.8, "best weights": best, "last weights": last, "seeds": 1}

    rows = [row("two", "N(0, 1)", 0.79, 0.8), row("many", "N(0, 1)", 0.7, 0.72)]
    said = full_size.quantised_summary([*rows, row("many", "N(0, 2 / colours)", 0.78, 0.81)])
    assert said == (
        "Mean distance to the paper with the best and with the last weights: two colours: 0.0100 and 0.0000; "
        "more colours, N(0, 1): 0.1000 and 0.0800; more colours, N(0, 2 / colours): 0.0200 and 0.0100."
    )


def test_what_the_rows_of_trainings_summary():
    tested = {"T=1": 0.9, "T=5": 0.98, "T=20": 0.95}
    rows = [{"trained with": "T=5", **tested}, {"trained with": "T=1", **tested}]
    assert full_size.iterations_summary(rows) == (
        "The T of the training is best, or within 0.001 of the best, in 1 of 2 rows. "
        "Testing with T=20 instead changes the accuracy by -0.0300 to +0.0500."
    )
    starts = [("a", "weak", 12, 0.1), ("a", "mild", 12, 0.9), ("b", "weak", 12, 0.8), ("b", "mild", 12, 0.799)]
    starts += [("a", "mild", 20, 0.91), ("b", "mild", 20, 0.798)]
    rows = [
        {"cell": c, "start": s, "learning rate": 0.01, "epochs": n, "accuracy": a, "std": 0.003, "worst": a, "seeds": 2}
        for c, s, n, a in starts
    ]
    assert full_size.starts_summary(rows) == (
        "The best start of each cell at 0.01 and 12 epochs, with its lead over the next: "
        "mild (**+0.8000 ± 0.0030**), weak (+0.0010 ± 0.0030). "
        "20 epochs instead of 12 with the mild start add **+0.0100 ± 0.0030**, -0.0010 ± 0.0030. "
        "With the weak start some trainings stayed at chance."
    )


def test_only_cells_that_fit_are_trained_and_no_rows_of_others_lost(run, rows):
    cells = Letters()
    cells.cases = lambda bench: [
        Case({"cell": f"t/{name}/c"}, lambda name=name: cells.make(name), {"seeds": 3}) for name in NAMES
    ]
    cells.ablation = Ablation("letters", cells.cases, lambda rows: "")
    assert "2 of 3 parts are left" in run(cells, cells="t/b")[-1]
    assert "1 of 3 parts are left" in run(cells, cells="a/*")[-1]
    assert cells.made == ["b", "a"]
    assert [row["cell"] for row in rows()] == ["t/a/c", "t/b/c"]


@pytest.mark.parametrize("name", WAIT_FOR_A_GPU)
def test_what_waits_for_a_gpu_has_its_cases(images, tmp_path, name):
    cases = list(ABLATIONS[name].cases(make_bench(images, tmp_path, name)))
    assert len(cases) == WAIT_FOR_A_GPU[name]


@pytest.mark.usefixtures("single_precision")
def test_soft_and_expected_agree_on_hard_inputs():
    model = LGM(zoo.dense((1, 4, 4), (5,)), "paper", generator=torch.Generator().manual_seed(0))
    e = Experiment("digits", schedule="sweep", iterations=1)
    hard = torch.tensor([[(i >> k) & 1 for k in range(16)] for i in range(0, 2**16, 9999)]).float()
    some = data.Data(hard.reshape(-1, 1, 4, 4), torch.arange(7) % 10, tuple("0123456789"))
    assert small_size._soft_and_expected(model, e, some)["mean absolute gap"] == pytest.approx(0, abs=1e-4)
    grey = data.Data(torch.full_like(some.inputs, 0.5), some.targets, some.classes)
    assert small_size._soft_and_expected(model, e, grey)["mean absolute gap"] > 0.05


@pytest.mark.usefixtures("single_precision")
def test_where_the_analytic_gradient_is_right(images, tmp_path):
    ablations.run(["gradient"], Options(tmp_path, str(images), "cpu", quick=True), lambda _: None)
    rows = {(row["graph"], row["method"]): row for row in rows_of(Store(tmp_path), "gradient")}
    assert rows["784-100-10, input observed", "LBP, sequential, T=3"]["analytic"] == "1.0000 (1.000)"
    assert rows["784-100-10, input observed", "LBP, sequential, T=2"]["analytic"] != "1.0000 (1.000)"
    text = pages(Store(tmp_path))
    assert "## Where is the analytic gradient right?" in text
    assert "backpropagation is right from T=2 on and the analytic gradient from T=3 on." in text


@pytest.mark.usefixtures("single_precision")
def test_calibration_is_measured_shown_and_drawn(images, tmp_path):
    options = Options(tmp_path, str(images), "cpu", quick=True, seeds=1, workers=3)
    ablations.run(["calibration"], options, lambda _: None)
    rows = rows_of(Store(tmp_path), "calibration")
    assert len(rows) == 2 * 4 * 10
    assert {"accuracy", "nll", "brier", "calibration_error"} <= rows[0].keys()
    assert [row["model"] for row in rows[:40:10]] == ["LGM", "LGM+fill", "NN(relu)", "NN(relu)+mask"]
    assert [row["visible"] for row in rows[:10]] == list(full_size.SHARES)
    text = pages(Store(tmp_path))
    assert "| data | measure | model | 10% visible | 30% visible | 50% visible | 70% visible | 100% visible |" in text
    assert "Which model is best, over 20 pairs of data set and share: NLL: " in text
    assert "(../images/paper/calibration.png)" in text
    lines = figures.calibration(Store(tmp_path)).axes[1].get_lines()
    assert lines[2].get_ydata().tolist() == [row["nll"] for row in rows[20:30]]


@pytest.mark.slow
@pytest.mark.usefixtures("single_precision")
@pytest.mark.parametrize("name", ABLATIONS)
def test_every_ablation_can_be_run(images, tmp_path, name):
    ablations.run([name], Options(tmp_path, str(images), "cpu", quick=True, seeds=1), lambda _: None)
    assert not Store(tmp_path).ablation(name)["left"]


def test_the_stored_rows_are_complete():
    store = Store(Path(__file__).parents[1] / "results")
    options = Options(store.folder, device="cpu", seeds=1, epochs=4)
    for ablation in ABLATIONS.values():
        rows, left = rows_of(store, ablation.name), store.ablation(ablation.name)["left"]
        cases = list(ablation.cases(Bench(ablation.name, options, Budget(None), Sources(None, torch.device("cpu")))))
        assert sum(case.is_done(rows) for case in cases) == (len(cases) - left if rows else 0), ablation.name
        assert sum(len(case.own(rows)) for case in cases) == len(rows), ablation.name


def test_beliefs_are_compared_with_the_mean_image():
    errors = (("LGM", 0.3), ("LGM+fill", 0.1), ("LGM+fill", 0.2))
    rows = [{"cell": f"t/r/{name}", "beliefs": error, "mean training image": 0.2} for name, error in errors]
    said = silhouettes.silhouettes_summary(rows)
    assert said.endswith("mean of all training images are 0 of 1 LGM models and 1 of 2 LGM+fill models.")
