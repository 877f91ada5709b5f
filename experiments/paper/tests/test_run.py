"""The runner: what is done is not done again, what is left goes on, and results are whole."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from experiments.paper import run as running
from experiments.paper.cells import all_cells
from experiments.paper.clock import Clock
from experiments.paper.jobs import Options, joined, plan
from experiments.paper.report.page import page
from experiments.paper.results import Store
from experiments.paper.run import Runner
from experiments.paper.tables import TABLES
from experiments.paper.unfinished import Unfinished

from torchlgm.errors import DataError, DivergedError, TrainingError

pytestmark = pytest.mark.usefixtures("single_precision")
CHEAP = "softclamp/LGM/Soft"


def cells(pattern=CHEAP, way="ours"):
    return list(all_cells(ways=[way], pattern=pattern))


@pytest.fixture
def options(images, tmp_path):
    return Options(tmp_path / "out", str(images), "cpu", seeds=2, epochs=2)


def results(options, name="softclamp/lgm-soft-clamp.ours.json"):
    return json.loads((options.out / name).read_text())


def test_any_table_runs_quickly(reproduce, tmp_path):
    code, out, err = reproduce("table2", "--quick")
    assert code == 0
    assert out.count("softclamp/LGM/Soft clamp") == 2
    assert out.splitlines()[-1].endswith("this says nothing about the paper's tables.")
    assert "[4/4]" in err
    assert ", 1 epoch;" in err
    assert not any(tmp_path.iterdir())


def test_results_are_kept_and_not_done_again(options):
    told = []
    Runner(options, told.append).run(plan(cells(), options))
    found = results(options)
    assert (found["cell"], found["column"], found["paper"]) == ("softclamp/LGM/Soft clamp", "ours", 0.963)
    assert sorted(found["runs"]) == ["0", "1"]
    run = found["runs"]["1"]
    assert (run["epochs"], run["cap"]) == (2, 2)
    assert 0 <= run["accuracy"] <= 1
    assert run["own_seconds"] > 0
    assert "CPU" in run["machine"]
    assert not list(options.out.rglob("state-*"))
    Runner(options, told.append).run(plan(cells(), options))
    assert told[-1].startswith("2 trainings, 2 done already")
    assert results(options) == found


def test_nothing_is_missing_before_a_run(options):
    assert Runner(options, lambda _: None).missing == 0


def test_workers_at_the_same_time_find_the_same(options):
    Runner(options, lambda _: None).run(plan(cells("softclamp"), options))
    alone = results(options)["runs"]
    (options.out / "softclamp" / "lgm-soft-clamp.ours.json").unlink()
    together = Options(**{**vars(options), "workers": 3})
    Runner(together, lambda _: None).run(plan(cells("softclamp"), together))
    again = results(options)["runs"]
    assert [again[s]["accuracy"] for s in "01"] == [alone[s]["accuracy"] for s in "01"]
    assert [again[s]["valid_loss"] for s in "01"] == [alone[s]["valid_loss"] for s in "01"]


def test_a_gpu_has_no_more_workers_than_streams(options, monkeypatch):
    many = Options(**{**vars(options), "workers": 33})
    assert many.workers_or(24) == 33
    monkeypatch.setattr(Options, "where", torch.device("cuda"))
    assert options.workers_or(24) == 24
    told = []
    with pytest.raises(DataError, match="--workers 33: a GPU has streams for 32 trainings"):
        Runner(many, told.append).run(plan(cells(), many))
    assert not told


def test_a_training_that_was_left_goes_on_to_the_same_end(options, monkeypatch):
    Runner(options, lambda _: None).run(plan(cells(), options))
    whole = results(options)["runs"]["0"]
    (options.out / "softclamp" / "lgm-soft-clamp.ours.json").unlink()
    told, answers = [], iter([False])
    monkeypatch.setattr(Clock, "over", property(lambda _: next(answers, True)))  # time is up after one epoch
    hurried = Runner(options, told.append)
    hurried.run(plan(cells(), options)[:1])
    monkeypatch.undo()
    assert not (options.out / "softclamp" / "lgm-soft-clamp.ours.json").exists()
    assert [job.seeds for job in hurried.left] == [(0,)]
    assert list(options.out.rglob("state-*"))
    assert "1 training is left" in told[-1]
    Runner(options, told.append).run(plan(cells(), options)[:1])
    resumed = results(options)["runs"]["0"]
    same = ("accuracy", "valid_loss", "best_epoch", "epochs")
    assert [resumed[k] for k in same] == [whole[k] for k in same]


@pytest.fixture
def leave(options, monkeypatch):
    """Begins a training and leaves it after an epoch: its state."""

    def left(pattern=CHEAP, way="ours"):
        one, answers = Options(**{**vars(options), "seeds": 1}), iter([False])
        with monkeypatch.context() as patch:
            patch.setattr(Clock, "over", property(lambda _: next(answers, True)))
            Runner(one, lambda _: None).run(plan(cells(pattern, way), one))
        (state,) = options.out.rglob("state-*")
        return state

    return left


CONTRASTIVE = "mpcompare/CD1/Dense"


def test_a_pretrained_model_is_kept_for_the_training_that_follows(options, leave, monkeypatch):
    one = Options(**{**vars(options), "seeds": 1})
    jobs, same = plan(cells(CONTRASTIVE, "paper"), one), ("accuracy", "valid_loss", "epochs")
    Runner(one, lambda _: None).run(jobs)
    (file,) = options.out.glob("mpcompare/*.json")
    whole = json.loads(file.read_text())["runs"]["0"]
    file.unlink()
    leave(CONTRASTIVE, "paper")
    monkeypatch.setattr(running.learn, "pretrain", None)
    Runner(one, lambda _: None).run(jobs)
    resumed = json.loads(file.read_text())["runs"]["0"]
    assert [resumed[k] for k in same] == [whole[k] for k in same]
    assert resumed["seconds"] > 0


def test_pretraining_ends_with_the_time(options, monkeypatch):
    runner = Runner(Options(**{**vars(options), "seeds": 1}), lambda _: None)
    asked = iter([False] * 3)
    monkeypatch.setattr(Clock, "late", property(lambda _: next(asked, True)))
    monkeypatch.setattr(Clock, "over", property(lambda self: self.late and not self.shares))
    monkeypatch.setattr(running.learn, "fit", None)
    runner.run(plan(cells(CONTRASTIVE, "paper"), runner.options))
    assert [job.seeds for job in runner.left] == [(0,)]


@pytest.mark.parametrize("changes", [{"quick": True}, {"epochs": 1}, {"out": "elsewhere"}])
def test_a_state_is_left_alone_by_trainings_with_other_settings(options, leave, changes, tmp_path):
    state = leave()
    if "out" in changes:
        changes = {"out": tmp_path / changes["out"]}
    other = Options(**{**vars(options), "seeds": 1, **changes})
    Runner(other, lambda _: None).run(plan(cells(), other))
    assert json.loads((other.out / "softclamp/lgm-soft-clamp.ours.json").read_text())["runs"]["0"]["epochs"] <= 2
    assert state.exists()


def test_a_state_that_cannot_be_used_is_named_and_stays(options, leave):
    state = leave()
    (state / "training.safetensors").write_bytes(b"damaged")
    told, one = [], Options(**{**vars(options), "seeds": 1})
    with pytest.raises(TrainingError):
        Runner(one, told.append).run(plan(cells(), one))
    assert f"delete {state.parent} to train it anew" in told[-1]
    assert state.exists()


@pytest.mark.parametrize("content", ["{", "null", '"x"'])
def test_a_damaged_note_of_the_time_loses_no_training(options, leave, content):
    state = leave()
    (state.parent / "own.json").write_text(content)
    one = Options(**{**vars(options), "seeds": 1})
    Runner(one, lambda _: None).run(plan(cells(), one))
    assert results(options)["runs"]["0"]["own_seconds"] > 0


def test_what_another_run_has_done_meanwhile_is_not_done_again(options, monkeypatch):
    told, together = [], Options(**{**vars(options), "joined": True})
    runner, whole = Runner(together, told.append), Runner._next

    def late(self):
        if self is runner:
            first = Options(**{**vars(options), "seeds": 1})
            Runner(first, lambda _: None).run(plan(cells(), first))
        return whole(self)

    monkeypatch.setattr(Runner, "_next", late)
    runner.run(plan(cells(), together))
    assert "seed 0, 1: another run has done some of it" in told[1]
    assert "[1/1]" in told[-1]
    assert [results(options)["runs"][seed]["together"] for seed in "01"] == [1, 1]
    assert runner.missing == 0


def test_what_another_run_is_training_is_left_to_it(options):
    told, (one, two) = [], plan(cells(), options)
    with Unfinished(one, options).claimed() as ours:
        runner = Runner(options, told.append)
        runner.run([one, two])
    assert ours
    assert sorted(results(options)["runs"]) == ["1"]
    assert runner.left == [one]
    assert told[-1].startswith("1 training is left, 1 of them to other runs;")
    assert not list((options.out / "unfinished").iterdir())
    Runner(options, told.append).run([one])
    assert runner.missing == 0


def test_seeds_trained_in_one_step_find_the_same(options):
    Runner(options, lambda _: None).run(plan(cells(), options))
    alone = results(options)["runs"]
    (options.out / "softclamp" / "lgm-soft-clamp.ours.json").unlink()
    told, together = [], Options(**{**vars(options), "joined": True})
    Runner(together, told.append).run(plan(cells(), together))
    again = results(options)["runs"]
    assert [again[s]["together"] for s in "01"] == [2, 2]
    for key in ("accuracy", "best_epoch", "train_accuracy"):
        assert [again[s][key] for s in "01"] == [alone[s][key] for s in "01"]
    losses = [[runs[s]["valid_loss"] for s in "01"] for runs in (again, alone)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_seeds_are_trained_one_by_one_if_one_of_them_diverges(options, monkeypatch):
    def diverge(job, *rest):
        if 1 in job.seeds:
            raise DivergedError("the loss became nan")
        return whole(job, *rest)

    whole = running.train
    monkeypatch.setattr(running, "train", diverge)
    together = Options(**{**vars(options), "joined": True})
    Runner(together, lambda _: None).run(plan(cells(), together))
    runs = results(options)["runs"]
    assert (runs["0"]["together"], runs["1"]["error"]) == (1, "the loss became nan")


def test_what_is_joined():
    jobs = [job for job in plan(all_cells(pattern="mpcompare"), Options(Path("x"))) if job.seeds[0] != 1]
    together = joined(jobs)
    assert sum(len(job.seeds) for job in together) == len(jobs)
    seeds = {job.seeds for job in together if job.cell.experiment.learner != "cd"}
    assert seeds == {(0,), (2,), (3, 4)}
    assert {job.seeds for job in together if job.cell.experiment.learner == "cd"} == {(0,), (2,), (3,), (4,)}


def test_with_no_time_nothing_is_begun(options):
    runner = Runner(Options(**{**vars(options), "minutes": 0.0}), lambda _: None)
    runner.run(plan(cells(), options))
    assert len(runner.left) == 2
    assert not options.out.exists()


def test_a_training_that_was_cut_short_is_done_again_with_more_epochs(options):
    def epochs_after(cap):
        now = Options(**{**vars(options), "seeds": 1, "epochs": cap})
        Runner(now, lambda _: None).run(plan(cells(), now))
        return results(options)["runs"]["0"]["epochs"]

    assert [epochs_after(cap) for cap in (1, 2, 1)] == [1, 2, 2]


def test_results_of_other_settings_do_not_count(options):
    Runner(options, lambda _: None).run(plan(cells(), options))
    path = options.out / "softclamp" / "lgm-soft-clamp.ours.json"
    found = json.loads(path.read_text())
    found["experiment"]["learning_rate"] = 123.0
    path.write_text(json.dumps(found))
    assert Store(options.out).runs(cells()[0]) == {}
    path.write_text("{")
    with pytest.raises(DataError, match="delete it"):
        Store(options.out).runs(cells()[0])


@pytest.mark.parametrize(
    "damage",
    [
        lambda runs: runs["0"].pop("own_seconds"),
        lambda runs: runs["0"].pop("machine"),
        lambda runs: runs["0"].update(accuracy="high"),
        lambda runs: runs.update({"0": None}),
        lambda runs: runs.update(x=runs["0"]),
    ],
)
def test_damaged_results_are_named(options, damage):
    quick = Options(**{**vars(options), "quick": True, "seeds": 1})
    Runner(quick, lambda _: None).run(plan(cells(), quick))
    path = options.out / "softclamp" / "lgm-soft-clamp.ours.json"
    found = results(options)
    damage(found["runs"])
    path.write_text(json.dumps(found))
    with pytest.raises(DataError, match=rf"{path}: not a result that can be read .*; delete it and run again"):
        page(Store(options.out))


def test_a_folder_that_cannot_be_written_is_noticed_before_a_training(reproduce, tmp_path):
    (tmp_path / "file").touch()
    for out in ("file", "file/below", "/proc/none"):
        code, _, err = reproduce("table2", "--epochs", 1, "--out", out)
        assert code == 1
        assert "nothing can be written there" in err
        assert "trainings" not in err


@pytest.mark.parametrize("what", ["table2", "questions", "figures"])
def test_data_that_cannot_be_had_is_noticed_first_and_can_be_named(what, reproduce, monkeypatch):
    monkeypatch.setattr("torchlgm.data.catalog._fetch", lambda *_: ["no connection"])
    monkeypatch.setattr("torchlgm.data.catalog.find_idx", lambda *_: None)
    _, _, err = reproduce(what)
    assert "by $TORCHLGM_DATA. --data names the folder of the data." in err
    assert "trainings" not in err


def test_a_training_that_diverges_is_a_result(options, monkeypatch):
    def diverge(*_):
        raise DivergedError("the loss became nan")

    monkeypatch.setattr(running, "train", diverge)
    Runner(options, lambda _: None).run(plan(cells(), options))
    assert results(options)["runs"]["0"]["error"] == "the loss became nan"


def test_other_failures_are_told_and_raised(options, monkeypatch):
    def fail(*_):
        raise ValueError("broken")

    told = []
    monkeypatch.setattr(running, "train", fail)
    with pytest.raises(TrainingError, match="2 trainings failed"):
        Runner(options, told.append).run(plan(cells(), options))
    assert "ValueError: broken" in told[-1]
    assert not list(options.out.rglob("*.json"))


def test_hidden_pixels_of_tests_are_always_the_same(options):
    sources = running.Sources(options.data, torch.device("cpu"))
    e = cells("exp_partial_input_m/Local (0.3)/LGM")[0].experiment
    first, second = (sources.take(e, quick=True)[2].inputs for _ in range(2))
    assert torch.equal(first.isnan(), second.isnan())
    assert 0.6 < first.isnan().double().mean() < 0.8
    assert not sources.take(e, quick=True)[0].has_missing


def test_the_order_is_core_then_rest_then_more_seeds(options):
    jobs = plan(all_cells(), Options(Path("x")))
    stages = [job.order[0] for job in jobs]
    assert stages == sorted(stages)
    core = {job.cell.table.label for job in jobs if job.order[0] == 0}
    assert core == {t.label for t in TABLES} - {"seqstruct", "fashionmnist"}
    last = {job.cell.table.label for job in jobs if job.order[0] == 2}
    assert last == {"mpcompare", "exp_partial_input_m", "exp_partial_input_fm", "fashionmnist"}
    assert {job.order[0] for job in jobs if job.cell.column == "256"} == {2}
    assert {job.seeds for job in jobs if job.cell.column == "256"} == {(0,)}
    assert {job.seeds for job in plan(all_cells(), Options(Path("x"), seeds=1))} == {(0,)}


def test_shares_of_the_machine_sum_up():
    clock = Clock(None)
    clock.enter(1)
    clock.enter(2)
    shares = clock.leave(1), clock.leave(2)
    assert min(shares) > 0
    assert sum(shares) <= clock.spent


def test_the_models_for_pictures_are_kept(options):
    chosen = cells("exp_partial_input_m/Local (0.7)/LGM")
    quick = Options(**{**vars(options), "quick": True, "seeds": 1})
    Runner(quick, lambda _: None).run(plan(chosen, quick))
    assert (options.out / "models" / "exp_partial_input_m-local-0.7-lgm.ours" / "model.json").exists()


def test_a_training_whose_model_is_missing_is_done_again(options):
    chosen = cells("exp_partial_input_m/Local (0.7)/LGM")
    quick = Options(**{**vars(options), "quick": True})
    Runner(quick, lambda _: None).run(plan(chosen, quick))
    shutil.rmtree(options.out / "models")
    told = []
    store = Store(options.out)
    run = store.runs(chosen[0])[0]
    store.add(chosen[0], 0, {**run, "epochs": 20, "cap": 20})
    Runner(quick, told.append).run(plan(chosen, quick))  # its result would be worse
    assert told.pop().startswith("2 trainings, 2 done already")
    store.add(chosen[0], 0, run)
    Runner(quick, told.append).run(plan(chosen, quick))
    assert told[0].startswith("2 trainings, 1 done already")
    assert (options.out / "models" / "exp_partial_input_m-local-0.7-lgm.ours" / "model.json").exists()


def test_a_table_that_is_named_twice_is_trained_once(reproduce):
    assert "4 trainings" in reproduce("table2", "table2", "softclamp", "--quick", "--minutes", 0)[2]


def test_more_seeds_than_a_cell_has_are_not_silently_fewer(reproduce):
    _, _, err = reproduce("table2", "table4", "--seeds", 9, "--minutes", 0)
    assert "--seeds 9: cells with at most 3 or 5 seeds get no more" in err
    assert "no more" not in reproduce("table2", "--seeds", 3, "--minutes", 0)[2]
    _, _, err = reproduce("table5", "--cells", "*/256", "--column", "paper", "--seeds", 3, "--minutes", 0)
    assert "cells with at most 1 seed get no more" in err


def test_ctrl_c_says_what_is_left(reproduce, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "train", interrupt)
    code, _, err = reproduce("table2", "--column", "ours")
    assert code == 130
    assert err.endswith("torchlgm: stopped; 6 trainings are left; the same command goes on with them\n")
    assert reproduce("table2", "--quick", "--workers", 1)[2].endswith("left; --quick keeps nothing to go on with\n")
    monkeypatch.setattr("experiments.paper.questions.answer", interrupt)
    assert "stopped; parts are left; the same command goes on with them" in reproduce("questions")[2]


def test_what_a_pattern_does_not_fit_is_not_run(reproduce, monkeypatch):
    asked = []
    monkeypatch.setattr("experiments.paper.questions.answer", lambda *arguments: asked.append(arguments[-1]))
    code, out, err = reproduce("table2", "questions", "--quick", "--minutes", 0, "--cells", "Soft clamp")
    assert (code, asked) == (0, [])
    assert "softclamp/LGM/Soft clamp" in out
    code, out, err = reproduce("table2", "questions", "--quick", "--cells", "gradient")
    assert (code, asked) == (0, ["gradient"])
    assert out + err == ""


def test_a_pattern_that_fits_nothing_is_noticed_before_a_training(reproduce, tmp_path):
    code, _, err = reproduce("table2", "questions", "figures", "--cells", "nothing")
    assert code == 1
    assert "no cell of softclamp has 'nothing' in its name" in err
    assert "no question is called 'nothing'; there are gradient" in err
    assert "trainings" not in err
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("report --column ours --cells SeqTRW", "--column and --cells: of no use to report; leave them out."),
        ("report --json", "--json: of no use to report; leave it out."),
        ("figures report --minutes 0", "--minutes: of no use to figures and report; leave it out."),
        ("figures --seeds 1", "--seeds: of no use to figures; leave it out."),
        ("questions --json", "--json: of no use to questions; leave it out."),
        ("questions report --column ours", "--column: of no use to questions and report; leave it out."),
        ("table2 report --json", "the report is a page in Markdown, not JSON; leave out --json, or report."),
        ("table2 questions --json --cells gradient", "--json: of no use to questions; leave it out."),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(reproduce, tmp_path, arguments, message):
    code, out, err = reproduce(*arguments.split())
    assert (code, out, err) == (1, "", f"torchlgm: {message}\n")
    assert not any(tmp_path.iterdir())


def test_an_option_is_of_use_to_one_of_several(reproduce):
    options = ("--column", "ours", "--cells", "soft", "--seeds", 1, "--minutes", 0, "--json")
    code, out, _ = reproduce("all", "questions", *options)
    assert code == 0
    assert {cell["column"] for cell in json.loads(out)["cells"]} == {"ours"}


def test_misuse(reproduce):
    assert "is no table" in reproduce("table9")[2]
    assert "is no table" in reproduce("all", "table9", "--minutes", 0)[2]
    assert "no cell of softclamp has 'nothing' in its name" in reproduce("table2", "--cells", "nothing")[2]
    assert "'CD1' fits no cell of the column ours" in reproduce("--cells", "CD1", "--column", "ours")[2]
    assert reproduce("table2", "--column", "theirs")[0] == 2
    for option in ("--epochs", "--seeds", "--workers"):
        assert reproduce("table2", option, 0)[0] == 2
    assert "leave out --out" in reproduce("table2", "--quick", "--out", "here")[2]
    for word in ("figures", "report"):
        assert "no results to draw or to report on; leave it out" in reproduce(word, "--quick")[2]
    assert "no question is called 'nothing'" in reproduce("questions", "--cells", "nothing")[2]
    assert "there are no results" in reproduce("report", "--out", "nowhere")[2]
    assert "there are no results" in reproduce("report", "--out", ".")[2]
    assert "keeps nothing to go on with" in reproduce("table2", "--quick", "--minutes", 0)[2]
