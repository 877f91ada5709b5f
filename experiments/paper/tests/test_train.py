"""The runner: what is done is not done again, what is left goes on, and results are whole."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from experiments.paper import runner
from experiments.paper.cells import all_cells
from experiments.paper.options import Options
from experiments.paper.report.page import report
from experiments.paper.sources import Sources
from experiments.paper.store import Store
from experiments.paper.tables import TABLES
from experiments.paper.train import Trainer, joined, plan
from experiments.pool import Budget

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


def test_any_table_runs_quickly(paper, tmp_path):
    code, out, err = paper("train", "table2", "--quick")
    assert code == 0
    assert out.count("softclamp/LGM/Soft clamp") == 2
    assert out.splitlines()[-1].endswith("this says nothing about the paper's tables.")
    assert "[4/4]" in err
    assert ", 1 epoch;" in err
    assert not any(tmp_path.iterdir())


def test_results_are_kept_and_not_done_again(options):
    logged = []
    Trainer(options, logged.append).run(plan(cells(), options))
    found = results(options)
    assert (found["cell"], found["column"], found["paper"]) == ("softclamp/LGM/Soft clamp", "ours", 0.963)
    assert sorted(found["runs"]) == ["0", "1"]
    run = found["runs"]["1"]
    assert (run["epochs"], run["cap"]) == (2, 2)
    assert 0 <= run["accuracy"] <= 1
    assert "CPU" in run["machine"]
    assert not list(options.out.rglob("state-*"))
    Trainer(options, logged.append).run(plan(cells(), options))
    assert logged[-1].startswith("2 trainings, 2 done already")
    assert results(options) == found


def test_nothing_is_missing_before_a_run(options):
    assert Trainer(options, lambda _: None).missing == 0


def test_workers_at_the_same_time_find_the_same(options):
    Trainer(options, lambda _: None).run(plan(cells("softclamp"), options))
    alone = results(options)["runs"]
    (options.out / "softclamp" / "lgm-soft-clamp.ours.json").unlink()
    together = Options(**{**vars(options), "workers": 3})
    Trainer(together, lambda _: None).run(plan(cells("softclamp"), together))
    again = results(options)["runs"]
    assert [again[s]["accuracy"] for s in "01"] == [alone[s]["accuracy"] for s in "01"]
    assert [again[s]["valid_loss"] for s in "01"] == [alone[s]["valid_loss"] for s in "01"]


def test_a_gpu_has_no_more_workers_than_streams(options, monkeypatch):
    many = Options(**{**vars(options), "workers": 33})
    assert many.most_workers == 33
    monkeypatch.setattr(Options, "torch_device", torch.device("cuda"))
    assert options.most_workers == 24
    logged = []
    with pytest.raises(DataError, match="--workers 33: a GPU has streams for 32 trainings"):
        Trainer(many, logged.append).run(plan(cells(), many))
    assert not logged


def test_a_training_that_was_left_goes_on_to_the_same_end(options, monkeypatch):
    Trainer(options, lambda _: None).run(plan(cells(), options))
    whole = results(options)["runs"]["0"]
    (options.out / "softclamp" / "lgm-soft-clamp.ours.json").unlink()
    logged, answers = [], iter([False])
    monkeypatch.setattr(Budget, "over", property(lambda _: next(answers, True)))  # time is up after one epoch
    hurried = Trainer(options, logged.append)
    hurried.run(plan(cells(), options)[:1])
    monkeypatch.undo()
    assert not (options.out / "softclamp" / "lgm-soft-clamp.ours.json").exists()
    assert hurried.missing == 1
    assert list(options.out.rglob("state-*"))
    assert "1 training is left" in logged[-1]
    Trainer(options, logged.append).run(plan(cells(), options)[:1])
    resumed = results(options)["runs"]["0"]
    same = ("accuracy", "valid_loss", "best_epoch", "epochs")
    assert [resumed[k] for k in same] == [whole[k] for k in same]


@pytest.fixture
def leave(options, monkeypatch):
    """Begins a training and leaves it after an epoch: its state."""

    def left(pattern=CHEAP, way="ours"):
        one, answers = Options(**{**vars(options), "seeds": 1}), iter([False])
        with monkeypatch.context() as patch:
            patch.setattr(Budget, "over", property(lambda _: next(answers, True)))
            Trainer(one, lambda _: None).run(plan(cells(pattern, way), one))
        (state,) = options.out.rglob("state-*")
        return state

    return left


CONTRASTIVE = "mpcompare/CD1/Dense"


def test_a_pretrained_model_is_kept_for_the_training_that_follows(options, leave, monkeypatch):
    one = Options(**{**vars(options), "seeds": 1})
    jobs, same = plan(cells(CONTRASTIVE, "paper"), one), ("accuracy", "valid_loss", "epochs")
    Trainer(one, lambda _: None).run(jobs)
    (file,) = options.out.glob("mpcompare/*.json")
    whole = json.loads(file.read_text())["runs"]["0"]
    file.unlink()
    leave(CONTRASTIVE, "paper")
    monkeypatch.setattr(runner.learn, "pretrain", None)
    Trainer(one, lambda _: None).run(jobs)
    resumed = json.loads(file.read_text())["runs"]["0"]
    assert [resumed[k] for k in same] == [whole[k] for k in same]
    assert resumed["seconds"] > 0


def test_pretraining_ends_with_the_time(options, monkeypatch):
    trainer = Trainer(Options(**{**vars(options), "seeds": 1}), lambda _: None)
    asked = iter([False] * 3)
    monkeypatch.setattr(Budget, "late", property(lambda _: next(asked, True)))
    monkeypatch.setattr(Budget, "over", property(lambda _: False))
    monkeypatch.setattr(runner.learn, "fit", None)
    trainer.run(plan(cells(CONTRASTIVE, "paper"), trainer.options))
    assert trainer.missing == 1


@pytest.mark.parametrize("changes", [{"quick": True}, {"epochs": 1}, {"out": "elsewhere"}])
def test_a_state_is_left_alone_by_trainings_with_other_settings(options, leave, changes, tmp_path):
    state = leave()
    if "out" in changes:
        changes = {"out": tmp_path / changes["out"]}
    other = Options(**{**vars(options), "seeds": 1, **changes})
    Trainer(other, lambda _: None).run(plan(cells(), other))
    assert json.loads((other.out / "softclamp/lgm-soft-clamp.ours.json").read_text())["runs"]["0"]["epochs"] <= 2
    assert state.exists()


def test_a_state_that_cannot_be_used_is_named_and_stays(options, leave):
    state = leave()
    (state / "training.safetensors").write_bytes(b"damaged")
    logged, one = [], Options(**{**vars(options), "seeds": 1})
    with pytest.raises(TrainingError):
        Trainer(one, logged.append).run(plan(cells(), one))
    assert f"delete {state.parent} to train it anew" in logged[-1]
    assert state.exists()


def test_seeds_trained_in_one_step_find_the_same(options):
    Trainer(options, lambda _: None).run(plan(cells(), options))
    alone = results(options)["runs"]
    (options.out / "softclamp" / "lgm-soft-clamp.ours.json").unlink()
    logged, together = [], Options(**{**vars(options), "joined": True})
    Trainer(together, logged.append).run(plan(cells(), together))
    again = results(options)["runs"]
    assert [again[s]["together"] for s in "01"] == [2, 2]
    for key in ("accuracy", "best_epoch", "train_accuracy"):
        assert [again[s][key] for s in "01"] == [alone[s][key] for s in "01"]
    losses = [[runs[s]["valid_loss"] for s in "01"] for runs in (again, alone)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_seeds_are_trained_one_by_one_if_one_of_them_diverges(options, monkeypatch):
    def diverge(e, seeds, *rest):
        if 1 in seeds:
            raise DivergedError("the loss became nan")
        return whole(e, seeds, *rest)

    whole = runner.train
    monkeypatch.setattr(runner, "train", diverge)
    together = Options(**{**vars(options), "joined": True})
    Trainer(together, lambda _: None).run(plan(cells(), together))
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
    trainer = Trainer(Options(**{**vars(options), "minutes": 0.0}), lambda _: None)
    trainer.run(plan(cells(), options))
    assert trainer.missing == 2
    assert not options.out.exists()


def test_a_training_that_was_cut_short_is_done_again_with_more_epochs(options):
    def epochs_after(cap):
        now = Options(**{**vars(options), "seeds": 1, "epochs": cap})
        Trainer(now, lambda _: None).run(plan(cells(), now))
        return results(options)["runs"]["0"]["epochs"]

    assert [epochs_after(cap) for cap in (1, 2, 1)] == [1, 2, 2]


def test_results_of_other_settings_do_not_count(options):
    Trainer(options, lambda _: None).run(plan(cells(), options))
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
        lambda runs: runs["0"].pop("machine"),
        lambda runs: runs["0"].update(accuracy="high"),
        lambda runs: runs.update({"0": None}),
        lambda runs: runs.update(x=runs["0"]),
    ],
)
def test_damaged_results_are_named(options, damage):
    quick = Options(**{**vars(options), "quick": True, "seeds": 1})
    Trainer(quick, lambda _: None).run(plan(cells(), quick))
    path = options.out / "softclamp" / "lgm-soft-clamp.ours.json"
    found = results(options)
    damage(found["runs"])
    path.write_text(json.dumps(found))
    with pytest.raises(DataError, match=rf"{path}: not a result that can be read .*; delete it and run again"):
        report(Store(options.out))


def test_a_folder_that_cannot_be_written_is_noticed_before_a_training(paper, tmp_path):
    (tmp_path / "file").touch()
    for out in ("file", "file/below", "/proc/none"):
        code, _, err = paper("train", "table2", "--epochs", 1, "--out", out)
        assert code == 1
        assert "nothing can be written there" in err
        assert "trainings" not in err


@pytest.mark.parametrize("command", ["train table2", "ablate gradient", "figures"])
def test_data_that_cannot_be_had_is_noticed_first_and_can_be_named(command, paper, monkeypatch):
    monkeypatch.setattr("torchlgm.data.catalog._fetch", lambda *_: ["no connection"])
    monkeypatch.setattr("torchlgm.data.catalog.find_idx", lambda *_: None)
    _, _, err = paper(*command.split())
    assert "; --data names the folder of the data" in err
    assert "trainings" not in err


def test_a_training_that_diverges_is_a_result(options, monkeypatch):
    def diverge(*_):
        raise DivergedError("the loss became nan")

    monkeypatch.setattr(runner, "train", diverge)
    Trainer(options, lambda _: None).run(plan(cells(), options))
    assert results(options)["runs"]["0"]["error"] == "the loss became nan"


def test_other_failures_are_logged_and_raised(options, monkeypatch):
    def fail(*_):
        raise ValueError("broken")

    logged = []
    monkeypatch.setattr(runner, "train", fail)
    with pytest.raises(TrainingError, match="2 trainings failed"):
        Trainer(options, logged.append).run(plan(cells(), options))
    assert "ValueError: broken" in logged[-1]
    assert not list(options.out.rglob("*.json"))


def test_hidden_pixels_of_tests_are_always_the_same(options):
    sources = Sources(options.data, torch.device("cpu"))
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


def test_the_models_for_pictures_are_kept(options):
    chosen = cells("exp_partial_input_m/Local (0.7)/LGM")
    quick = Options(**{**vars(options), "quick": True, "seeds": 1})
    Trainer(quick, lambda _: None).run(plan(chosen, quick))
    assert (options.out / "models" / "exp_partial_input_m-local-0.7-lgm.ours" / "model.json").exists()


def test_a_training_whose_model_is_missing_is_done_again(options):
    chosen = cells("exp_partial_input_m/Local (0.7)/LGM")
    quick = Options(**{**vars(options), "quick": True})
    Trainer(quick, lambda _: None).run(plan(chosen, quick))
    shutil.rmtree(options.out / "models")
    logged = []
    store = Store(options.out)
    cell = plan(chosen, quick)[0].cell
    run = store.runs(cell)[0]
    store.add(cell, 0, {**run, "epochs": 20, "cap": 20})
    Trainer(quick, logged.append).run(plan(chosen, quick))  # its result would be worse
    assert logged.pop().startswith("2 trainings, 2 done already")
    store.add(cell, 0, run)
    Trainer(quick, logged.append).run(plan(chosen, quick))
    assert logged[0].startswith("2 trainings, 1 done already")
    assert (options.out / "models" / "exp_partial_input_m-local-0.7-lgm.ours" / "model.json").exists()


def test_a_table_that_is_named_twice_is_trained_once(paper):
    assert "4 trainings" in paper("train", "table2", "table2", "softclamp", "--quick", "--minutes", 0)[2]


def test_more_seeds_than_a_cell_has_are_not_silently_fewer(paper):
    _, _, err = paper("train", "table2", "table4", "--seeds", 9, "--minutes", 0)
    assert "--seeds 9: some cells have fewer, 3 at least" in err
    assert "fewer" not in paper("train", "table2", "--seeds", 3, "--minutes", 0)[2]


def test_ctrl_c_says_what_is_left(paper, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "train", interrupt)
    code, _, err = paper("train", "table2", "--column", "ours")
    assert code == 130
    assert err.endswith("stopped; 6 trainings are left; the same command continues with them\n")
    assert paper("train", "table2", "--quick", "--workers", 1)[2].endswith(
        "left; --quick keeps nothing to continue with\n"
    )
    monkeypatch.setattr(runner, "gradient", interrupt)
    assert "stopped; parts are left; the same command continues with them" in paper("ablate", "gradient")[2]


def test_a_pattern_that_fits_nothing_is_noticed_before_a_training(paper, tmp_path):
    code, _, err = paper("train", "table2", "--cells", "nothing")
    assert code == 1
    assert "--cells 'nothing' fits no cell of softclamp" in err
    assert "only of the other; leave out --column" in paper("train", "--cells", "CD1", "--column", "ours")[2]
    assert not any(tmp_path.iterdir())


def test_misuse(paper):
    assert "is no table" in paper("train", "table9")[2]
    assert "'nothing' is no ablation; expected one of gradient" in paper("ablate", "nothing")[2]
    assert paper("train", "table2", "--column", "theirs")[0] == 2
    for option in ("--epochs", "--seeds", "--workers"):
        assert paper("train", "table2", option, 0)[0] == 2
    assert "leave out --out" in paper("train", "table2", "--quick", "--out", "elsewhere")[2]
    assert "keeps nothing to continue with" in paper("train", "table2", "--quick", "--minutes", 0)[2]


@pytest.mark.parametrize("command", ["train", "ablate", "figures", "report"])
def test_every_command_has_help(paper, command):
    code, out, _ = paper(command, "--help")
    assert code == 0
    assert f"python -m experiments.paper {command}" in out
