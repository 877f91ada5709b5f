"""`torchlgm train`: run folders, resumption, and everything that may go wrong."""

import errno
import json
import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import torchlgm.cli.train as training
from helpers.runs import QUICK, halves, write_halves, write_table
from torchlgm._utils.lock import dir_lock
from torchlgm.cli.classifier import Classifier
from torchlgm.cli.report import _chance, _filling
from torchlgm.data import load, random_split, write_idx
from torchlgm.data.transforms import hide
from torchlgm.metrics import calibration_chance
from torchlgm.model import io as checkpoint

FILES = {"config.json", "metrics.json", "log.csv", "model", "report.html"}
PICTURES = {f"{name}.png" for name in ("graph", "learning", "confusion", "reliability", "visible")}
IMAGE_PICTURES = {"filled.png", "uncertain.png", "hidden.png"}
PLAIN = (*QUICK, "--no-pictures", "--no-compare")


def names_in(folder):
    return {path.name for path in folder.iterdir()}


class TestRunFolder:
    def test_images_get_all_pictures(self, trained):
        assert names_in(trained / "halves") == FILES | PICTURES | IMAGE_PICTURES | {"samples", "network.safetensors"}

    def test_tables_get_the_pictures_that_make_sense(self, trained):
        assert names_in(trained / "table") == FILES | {"scored", "samples.csv"} | PICTURES - {"learning.png"}

    def test_figures_beside_those_of_the_network(self, trained):
        metrics = json.loads((trained / "halves" / "metrics.json").read_text())
        assert metrics["samples"] == {"train": 54, "valid": 10, "test": 16}
        for name in ("lgm", "network"):
            rows = {row["visible"]: row for row in metrics["test"][name]}
            assert {1.0, 0.7, 0.3} <= rows.keys()
            assert rows[1.0]["accuracy"] == 1.0
            assert rows[1.0]["nll"] < rows[0.1]["nll"]

    @pytest.mark.usefixtures("single_precision")
    def test_it_is_calibrated_unless_asked_not_to(self, torchlgm, trained, tmp_path):
        metrics = json.loads((trained / "halves" / "metrics.json").read_text())
        temperature = metrics["seeds"]["lgm"][0]["temperature"]
        assert "temperature" not in metrics["seeds"]["network"][0]
        assert Classifier.load(trained / "halves" / "model").posterior.temperature == temperature != 1
        torchlgm("train", trained / "halves.npz", "--out", tmp_path / "raw", *PLAIN, "--no-calibrate")
        raw = Classifier.load(tmp_path / "raw" / "model")
        assert raw.temperature == 1
        x = hide(load(str(trained / "halves.npz")).test.inputs, 0.5, torch.Generator().manual_seed(0))
        expected = torch.softmax(raw.predict_proba(x).log() / temperature, 1)
        torch.testing.assert_close(Classifier.load(trained / "halves" / "model").predict_proba(x), expected)

    @pytest.mark.usefixtures("single_precision")
    def test_says_how_much_of_a_calibration_error_is_chance(self, trained):
        rows = json.loads((trained / "halves" / "metrics.json").read_text())["by_chance"]
        classifier, test = Classifier.load(trained / "halves" / "model"), load(str(trained / "halves.npz")).test
        for row, share in zip(rows, (1.0, 0.7, 0.3), strict=True):
            probs = classifier.predict_proba(hide(test.inputs, share, torch.Generator().manual_seed(0)))
            expected = {"visible": share, "calibration_error": calibration_chance(probs)}
            assert row == pytest.approx(expected, rel=1e-4)
        assert _chance(360, rows).startswith(
            "On 360 samples even a perfectly calibrated model shows calibration errors of "
        )

    @pytest.mark.usefixtures("single_precision")
    def test_how_well_it_fills_in(self, trained):
        """Against what a user would do by hand."""
        found = json.loads((trained / "halves" / "metrics.json").read_text())["filling"]
        data = load(str(trained / "halves.npz"))
        train, _ = random_split(data.train, training.TRAIN_SHARE, 0)
        seen = hide(data.test.inputs, 0.5, torch.Generator().manual_seed(0))
        completed = Classifier.load(trained / "halves" / "model").complete(seen)
        guesses = {"error": completed, "of_mean": train.inputs.mean(0).expand_as(seen)}
        for name, guess in guesses.items():
            off = (guess - data.test.inputs)[seen.isnan()]
            assert found[name] == pytest.approx(float(off.square().mean().sqrt()), rel=1e-5)

    def test_says_if_it_cannot_fill_in(self):
        better, worse = ({"error": error, "of_mean": 0.2} for error in (0.1, 0.3))
        assert "train it longer" not in _filling(better)
        said = _filling(worse)
        assert "guesses are off by 0.300" in said
        assert "the mean is off by 0.200. The model cannot fill in yet" in said
        assert said.endswith("or the inputs say little about each other.")

    def test_says_if_it_has_learnt_nothing(self, torchlgm, tmp_path):
        rows = [f"{(7 * i) % 40},{(11 * i) % 40},{'few' if i % 5 == 0 else 'many'}" for i in range(40)]
        (tmp_path / "noise.csv").write_text("\n".join(["a,b,class", *rows]))
        for options, tries in (
            ((), "--visible 1 or more --epochs."),
            (("--visible", "1"), "more --epochs."),
        ):
            code, out, _ = torchlgm(
                "train", tmp_path / "noise.csv", *PLAIN, "--epochs", 1, *options, "--out", tmp_path / tries
            )
            assert code == 0
            assert f"the most frequent class is (0.750): it has learnt nothing from complete rows. Try {tries}" in out

    def test_log_has_every_epoch_of_both_models(self, trained):
        lines = (trained / "halves" / "log.csv").read_text().splitlines()
        assert lines[0].startswith("model,seed,epoch,train_loss,valid_loss")
        assert [line.split(",")[:3] for line in lines[1:]] == [
            [model, "0", str(epoch)] for model in ("lgm", "network") for epoch in (1, 2, 3)
        ]

    def test_says_figures_places_and_what_to_try(self, torchlgm, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        write_halves(tmp_path / "halves.npz")
        code, out, _ = torchlgm("train", "halves.npz", *QUICK, "--no-pictures")
        assert code == 0
        assert "torchlgm predict runs/halves-dense-1 runs/halves-dense-1/samples\n" in out
        for words in ("LGM", "neural network", "100%", "70%", "30%", "runs/halves-dense-1/", "torchlgm evaluate"):
            assert words in out
        assert "learnt nothing" not in out
        code, out, _ = torchlgm("train", "halves.npz", *PLAIN)
        assert code == 0
        assert "runs/halves-dense-2/" in out

    def test_json_is_all_that_is_printed(self, torchlgm, trained, tmp_path):
        code, out, _ = torchlgm("train", trained / "halves.npz", "--out", tmp_path / "run", *PLAIN, "--json")
        assert code == 0
        assert json.loads(out)["config"]["hidden"] == 6

    def test_several_seeds(self, torchlgm, trained, tmp_path):
        code, out, _ = torchlgm(
            "train", trained / "halves.npz", "--out", tmp_path / "run", *PLAIN, "--seeds", 2, "--seed", 5
        )
        assert code == 0
        assert "±" in out
        metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
        assert [t["seed"] for t in metrics["seeds"]["lgm"]] == [5, 6]
        losses = {t["seed"]: t["best"]["valid_loss"] for t in metrics["seeds"]["lgm"]}
        assert metrics["chosen_seed"] == min(losses, key=losses.__getitem__)

    @pytest.mark.parametrize("model", ["conv", "local"])
    @pytest.mark.parametrize("method", ["lbp", "trw", "mean_field"])
    def test_windows_and_methods(self, torchlgm, trained, tmp_path, model, method):
        options = ("--model", model, "--method", method, "--epochs", 1, "--hidden", 4, "--no-pictures")
        code, _, _ = torchlgm("train", trained / "halves.npz", "--out", tmp_path / "run", *options)
        assert code == 0
        graph = json.loads((tmp_path / "run/model/graph.json").read_text())
        assert graph["connections"][0]["type"] == model

    def test_colours_and_the_schedules_of_the_paper(self, torchlgm, trained, tmp_path):
        options = ("--colours", 4, "--schedule", "parallel", "--iterations", 3, "--smoothing", 0.1, "--damping", 0.5)
        code, _, _ = torchlgm("train", trained / "halves.npz", "--out", tmp_path / "run", *PLAIN, *options)
        assert code == 0
        classifier = Classifier.load(tmp_path / "run" / "model")
        assert str(classifier.inference) == "lbp, parallel, 3 iterations, damping 0.5"
        assert classifier.model.graph.layer(classifier.input).labels == 4

    def test_constant_pixels_are_fine(self, torchlgm, tmp_path):
        x, _ = halves()
        x[:, 0], x[:, -1] = 0, 1
        data = write_halves(tmp_path / "halves.npz", x=x)
        code, out, _ = torchlgm("train", data, "--out", tmp_path / "run", *PLAIN, "--json")
        assert code == 0
        assert json.loads(out)["metrics"]["test"]["lgm"][0]["accuracy"] == 1.0

    def test_same_seed_same_weights(self, trained, torchlgm, tmp_path):
        code, _, _ = torchlgm("train", trained / "halves.npz", "--out", tmp_path / "run", *PLAIN)
        assert code == 0
        first, second = (p / "model/weights.safetensors" for p in (trained / "halves", tmp_path / "run"))
        assert first.read_bytes() == second.read_bytes()


class _Stop:
    """A reporter that interrupts after so many epochs."""

    def __init__(self, after):
        self.left = after

    def step(self, *_):
        pass

    def epoch(self, _):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt

    def close(self):
        pass


class TestResume:
    def stopped(self, torchlgm, monkeypatch, trained, folder, *more):
        with monkeypatch.context() as patch:
            patch.setattr(training, "default_reporters", lambda title: [_Stop(after=2)])
            return torchlgm("train", trained / "halves.npz", "--out", folder, *QUICK, "--no-pictures", *more)

    def test_goes_on_to_the_same_weights(self, torchlgm, trained, tmp_path, monkeypatch):
        code, _, err = self.stopped(torchlgm, monkeypatch, trained, tmp_path / "run")
        assert code == 130
        assert f"torchlgm train --resume {tmp_path / 'run'}" in err
        assert names_in(tmp_path / "run") == {"config.json", "training"}
        code, _, _ = torchlgm("train", "--resume", tmp_path / "run")
        assert code == 0
        assert names_in(tmp_path / "run") == FILES | {"samples", "network.safetensors"}
        first, second = (p / "model/weights.safetensors" for p in (trained / "halves", tmp_path / "run"))
        assert first.read_bytes() == second.read_bytes()

    def test_a_run_that_is_not_finished_cannot_be_used(self, torchlgm, complaint, trained, tmp_path, monkeypatch):
        self.stopped(torchlgm, monkeypatch, trained, tmp_path / "run")
        assert "not finished; finish it with `torchlgm train --resume" in complaint("show", tmp_path / "run")

    def test_one_process_at_a_time(self, torchlgm, complaint, trained, tmp_path, monkeypatch):
        run = tmp_path / "run"
        self.stopped(torchlgm, monkeypatch, trained, run)
        with dir_lock(run):
            said = complaint("train", "--resume", run)
        assert f"{run}: another process is training there; wait for it or stop it" in said
        assert torchlgm("train", "--resume", run)[0] == 0

    def test_a_finished_run(self, complaint, trained):
        assert "finished, there is nothing to resume" in complaint("train", "--resume", trained / "halves")

    def test_not_a_run(self, complaint, tmp_path):
        assert "not a run folder, config.json is missing" in complaint("train", "--resume", tmp_path)
        assert "no such folder" in complaint("train", "--resume", tmp_path / "nothing")

    def test_takes_no_other_options(self, complaint, trained):
        assert "leave out --epochs" in complaint("train", "--resume", trained / "halves", "--epochs", 5)

    def test_data_that_changed(self, torchlgm, complaint, tmp_path, monkeypatch):
        write_halves(tmp_path / "halves.npz")
        self.stopped(torchlgm, monkeypatch, tmp_path, tmp_path / "run")
        write_halves(tmp_path / "halves.npz", x=halves(seed=1)[0])
        assert "train_data" in complaint("train", "--resume", tmp_path / "run")


class TestBadData:
    """One clear line, exit code 1, and nothing left behind."""

    @pytest.fixture
    def refused(self, complaint, tmp_path):
        def run(data, *more):
            said = complaint("train", data, "--out", tmp_path / "run", *PLAIN, *more)
            assert not (tmp_path / "run").exists()
            return said

        return run

    def test_no_such_data(self, refused):
        assert "neither a known data set (digits, mnist" in refused("nothing.npz")

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("data.npz", b"not an archive", "not a readable .npz"),
            ("data.txt", b"1,2", "expected a .npz file or a folder; of a table, a .csv"),
            ("data.csv", b"a,b,class\n1,word,0\n", "at least two classes"),
            ("data.csv", b"a\n1\n", "at least two columns"),
            ("data.csv", b"", "got an empty file"),
        ],
    )
    def test_wrong_file(self, refused, tmp_path, name, content, message):
        (tmp_path / name).write_bytes(content)
        assert message in refused(tmp_path / name)

    def test_too_few_rows(self, refused, tmp_path):
        (tmp_path / "few.csv").write_text("a,class\n1,x\n2,y\n")
        assert "rows are too few to train on four fifths of them" in refused(tmp_path / "few.csv")

    @pytest.mark.parametrize(
        ("arrays", "message"),
        [
            (
                {"y": np.zeros(80, int)},
                "at least two classes, but all 64 in the training part (of 80 in all) belong to class '0'",
            ),
            ({"y": np.zeros((80, 2), int)}, "expected labels of shape (N,)"),
            ({"y": np.arange(79) % 2}, "with the same N"),
            ({"x": np.zeros((0, 6, 6)), "y": np.zeros(0, int)}, "at least one sample"),
            ({"x": np.full((80, 6, 6), 7.0)}, "expected inputs in [0, 1]"),
            ({"x": np.full((80, 6, 6), "a")}, "expected numbers"),
        ],
    )
    def test_wrong_arrays(self, refused, tmp_path, arrays, message):
        assert message in refused(write_halves(tmp_path / "bad.npz", **arrays))

    def test_labels_out_of_range(self, refused, tmp_path):
        images, labels = np.zeros((20, 8, 8), np.uint8), (np.arange(20) % 12).astype(np.uint8)
        for part in ("train", "t10k"):
            write_idx(tmp_path / f"{part}-images-idx3-ubyte", images)
            write_idx(tmp_path / f"{part}-labels-idx1-ubyte", labels)
        assert "expected targets in 0..9" in refused("mnist", "--data-folder", tmp_path)

    def test_windows_need_images_of_some_size(self, refused, tmp_path):
        table = write_table(tmp_path / "table.csv")
        assert "--model is for images and arrays, but the data are tables" in refused(table, "--model", "conv")
        small = write_halves(tmp_path / "small.npz", x=np.random.default_rng(0).random((80, 1, 1)))
        assert "too small for windows; use --model dense" in refused(small, "--model", "local")

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("--visible", "0.5-0.2"), "--visible 0.5-0.2: expected shares above 0 and up to 1"),
            (("--visible", "2"), "--visible 2: expected shares"),
            (("--visible", "some"), "expected a share such as 0.5"),
            (("--hidden", "0"), "--hidden 0: expected at least 1"),
            (("--colours", "3"), "power of two"),
            (("--learning-rate", "-1"), "positive number"),
            (("--smoothing", "2"), "--smoothing 2: expected a number from 0 to 1"),
            (("--learning-rate", "0"), "--learning-rate 0: expected a positive number"),
            (("--damping", "1"), "--damping 1: expected a number from 0 to below 1"),
            (("--schedule", "sequential", "--iterations", "1"), "fewer than 2 iterations"),
        ],
    )
    def test_options_that_make_no_sense(self, refused, trained, options, message):
        assert message in refused(trained / "halves.npz", *options)

    def test_a_device_that_is_not_there(self, refused, trained, monkeypatch):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        assert "no CUDA device" in refused(trained / "halves.npz", "--device", "cuda")


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


class TestBadPlaces:
    def test_nothing_is_overwritten(self, complaint, trained):
        before = (trained / "halves" / "metrics.json").read_bytes()
        said = complaint("train", trained / "halves.npz", "--out", trained / "halves", *PLAIN)
        assert "already exists, and nothing is ever overwritten" in said
        assert (trained / "halves" / "metrics.json").read_bytes() == before

    def test_a_folder_that_cannot_be_made(self, complaint, trained, tmp_path):
        (tmp_path / "file").write_text("")
        said = complaint("train", trained / "halves.npz", "--out", tmp_path / "file" / "run", *PLAIN)
        assert "a run folder cannot be made here (Not a directory); choose another place with --out" in said

    def test_disk_full_at_the_start(self, complaint, trained, tmp_path, monkeypatch):
        monkeypatch.setattr(checkpoint, "write_tensors", full)
        monkeypatch.setattr("torchlgm.learn.state.write_tensors", full)
        said = complaint("train", trained / "halves.npz", "--out", tmp_path / "run", *PLAIN)
        assert "No space left on device" in said
        assert not (tmp_path / "run").exists()

    def test_disk_full_after_training(self, torchlgm, complaint, trained, tmp_path, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, "write_tensors", full)
            said = complaint("train", trained / "halves.npz", "--out", tmp_path / "run", *PLAIN)
        assert "No space left on device" in said
        assert f"make room, then go on with `torchlgm train --resume {tmp_path / 'run'}`" in said
        assert names_in(tmp_path / "run") == {"config.json", "training"}
        assert torchlgm("train", "--resume", tmp_path / "run")[0] == 0
        assert names_in(tmp_path / "run") == FILES | {"samples"}

    def test_disk_full_while_drawing(self, complaint, trained, tmp_path, monkeypatch):
        move = os.replace
        own = {"replace": lambda part, to: full() if to.suffix == ".png" else move(part, to)}
        picky = SimpleNamespace(**{**vars(os), **own})
        monkeypatch.setattr("torchlgm._utils.atomic.os", picky)
        said = complaint("train", trained / "halves.npz", "--out", tmp_path / "run", *QUICK, "--no-compare")
        assert "No space left on device" in said
        assert not [name for name in names_in(tmp_path / "run") if name.endswith((".part", ".png", "metrics.json"))]

    def test_a_loss_that_is_not_finite(self, complaint, trained, tmp_path):
        said = complaint("train", trained / "halves.npz", "--out", tmp_path / "run", *PLAIN, "--learning-rate", 1e38)
        assert "Try a lower learning rate" in said
        assert f"What was trained is kept: it is in {tmp_path / 'run'}" in said
