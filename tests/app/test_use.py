"""What is done with a run: evaluate, predict, complete, show; and data, bench."""

import csv
import io
import json
import math
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from app_problems import halves, write_halves, write_table
from torchlgm.app.runs import Run

EDGE = 6


@pytest.fixture
def classifier(trained):
    return Run.load(trained / "halves").classifier()


@pytest.fixture
def damaged(trained, tmp_path):
    shutil.copytree(trained / "halves", tmp_path / "damaged")
    return tmp_path / "damaged"


def as_image(values, path, hole=None):
    """A grey image of `values` (H, W) in [0, 1]; what `hole` (H, W) marks is transparent."""
    grey = (values * 255).round().astype(np.uint8)
    alpha = np.full_like(grey, 255) if hole is None else np.where(hole, 0, 255).astype(np.uint8)
    Image.merge("LA", [Image.fromarray(grey), Image.fromarray(alpha)]).save(path)
    return path


class TestEvaluate:
    def test_same_figures_as_after_training(self, torchlgm, trained):
        code, out, _ = torchlgm("evaluate", trained / "halves", "--json")
        assert code == 0
        known = {row["visible"]: row for row in Run.load(trained / "halves").metrics["test"]["lgm"]}
        for row in json.loads(out)["rows"]:
            assert row["nll"] == pytest.approx(known[row["visible"]]["nll"], rel=1e-5)
            assert row["accuracy"] == known[row["visible"]]["accuracy"]

    def test_other_data_and_shares(self, torchlgm, trained, tmp_path):
        x, y = halves(seed=3)
        data = write_halves(tmp_path / "more.npz", x=x, y=np.array(["0", "1"])[y])
        code, out, _ = torchlgm("evaluate", trained / "halves", data, "--part", "all", "--visible", "1,0", "--json")
        assert code == 0
        rows = json.loads(out)["rows"]
        assert [row["visible"] for row in rows] == [1, 0]
        assert (rows[0]["accuracy"], rows[1]["accuracy"]) == (1.0, 0.5)

    def test_classes_go_by_name(self, torchlgm, trained, tmp_path):
        """With only the second class present, its number in the file is 0."""
        x, y = halves()
        data = write_halves(tmp_path / "ones.npz", x=x[y == 1], y=y[y == 1])
        code, out, _ = torchlgm("evaluate", trained / "halves", data, "--part", "all", "--visible", "1", "--json")
        assert code == 0
        assert json.loads(out)["rows"][0]["accuracy"] == 1.0

    def test_tables_are_scaled_like_that_of_the_training(self, torchlgm, trained, tmp_path):
        """Scaled by its own range, a table of low heights only would look like any other."""
        lines = ["noise,height,class", *[f"0,{20 + row},low" for row in range(10)]]
        (tmp_path / "low.csv").write_text("\n".join(lines))
        run = trained / "table"
        code, out, _ = torchlgm("evaluate", run, tmp_path / "low.csv", "--part", "all", "--visible", "1", "--json")
        assert code == 0
        assert json.loads(out)["rows"][0]["accuracy"] == 1.0

    def test_prints_a_table(self, torchlgm, trained):
        code, out, _ = torchlgm("evaluate", trained / "halves", "--visible", "1,0.5")
        assert code == 0
        assert "100%" in out
        assert "50%" in out

    def test_data_of_another_shape(self, complaint, trained, tmp_path):
        data = write_halves(tmp_path / "big.npz", x=halves(side=8)[0])
        said = complaint("evaluate", trained / "halves", data)
        assert "takes samples shaped (N, 1, 6, 6), N > 0, got (16, 1, 8, 8)" in said

    def test_bad_requests(self, complaint, trained, tmp_path):
        run = trained / "halves"
        data = write_halves(tmp_path / "other.npz", y=np.arange(80) % 3)
        assert "has a class '2', but the model knows 0, 1 only" in complaint("evaluate", run, data)
        assert "expected shares from 0 to 1" in complaint("evaluate", run, "--visible", "1,2")
        assert "expected shares from 0 to 1" in complaint("evaluate", run, "--visible", "all")
        assert "expected one of test, train, all" in complaint("evaluate", run, "--part", "best")
        assert "neither a known data set" in complaint("evaluate", run, tmp_path / "nothing.npz")


class TestPredict:
    def rows(self, out):
        return list(csv.DictReader(io.StringIO(out)))

    def test_arrays(self, torchlgm, trained, classifier, tmp_path):
        x, y = halves(samples=6, seed=2)
        x[0, :, 1] = np.nan
        np.save(tmp_path / "x.npy", x)
        code, out, _ = torchlgm("predict", trained / "halves", tmp_path / "x.npy")
        assert code == 0
        rows = self.rows(out)
        assert [row["class"] for row in rows] == [str(label) for label in y]
        expected = classifier.predict_proba(torch.from_numpy(x)[:, None])
        given = torch.tensor([[float(row["0"]), float(row["1"])] for row in rows])
        torch.testing.assert_close(given, expected, atol=1e-5, rtol=0)

    @pytest.mark.parametrize("shape", [(EDGE, EDGE), (1, EDGE, EDGE), (1, EDGE**2), (1, 1, EDGE, EDGE)])
    def test_one_sample_in_any_shape(self, torchlgm, trained, tmp_path, shape):
        x, _ = halves(samples=2)
        np.savez(tmp_path / "x.npz", (x[1] * 255).astype(np.uint8).reshape(shape))
        code, out, _ = torchlgm("predict", trained / "halves", tmp_path / "x.npz")
        assert code == 0
        assert [row["class"] for row in self.rows(out)] == ["1"]

    def test_images_with_transparent_pixels(self, torchlgm, trained, tmp_path):
        x, _ = halves(samples=2)
        hole = np.zeros((EDGE, EDGE), bool)
        hole[:3] = True
        lie = np.where(hole, x[1], x[0])  # what a transparent pixel hides must not count
        as_image(lie, tmp_path / "a.png", hole)
        as_image(x[1], tmp_path / "b.png")
        code, out, _ = torchlgm("predict", trained / "halves", tmp_path)
        assert code == 0
        assert [(row["sample"], row["class"]) for row in self.rows(out)] == [("a.png", "0"), ("b.png", "1")]

    def test_a_missing_value(self, torchlgm, trained, classifier, tmp_path):
        x, _ = halves(samples=2)
        x = (x * 200).astype(np.uint8)
        x[0, :, :4] = 255
        Image.fromarray(x[0]).save(tmp_path / "a.png")
        code, out, _ = torchlgm("predict", trained / "halves", tmp_path / "a.png", "--missing-value", 255)
        assert code == 0
        seen = torch.from_numpy(x[0] / np.float32(255))
        seen[:, :4] = math.nan
        expected = classifier.predict_proba(seen.reshape(1, 1, EDGE, EDGE))
        assert float(self.rows(out)[0]["1"]) == pytest.approx(expected[0, 1].item(), abs=1e-5)

    def test_tables_with_empty_cells_by_name_or_by_place(self, torchlgm, trained, tmp_path):
        (tmp_path / "named.csv").write_text("noise,height,comment\n,90,7\n1.5,10,\n")
        (tmp_path / "plain.csv").write_text("90,\n10,1.5\n")
        answers = [torchlgm("predict", trained / "table", tmp_path / name) for name in ("named.csv", "plain.csv")]
        assert [code for code, _, _ in answers] == [0, 0]
        assert answers[0][1] == answers[1][1]
        assert [row["class"] for row in self.rows(answers[0][1])] == ["high", "low"]

    def test_images_as_a_table(self, torchlgm, trained, tmp_path):
        x, _ = halves(samples=2)
        text = "\n".join(",".join(f"{v:.3f}" for v in row) for row in x.reshape(2, -1))
        (tmp_path / "x.csv").write_text(text)
        code, out, _ = torchlgm("predict", trained / "halves", tmp_path / "x.csv")
        assert code == 0
        assert [row["class"] for row in self.rows(out)] == ["0", "1"]

    @pytest.mark.parametrize("kind", ["csv", "json"])
    def test_to_a_file(self, torchlgm, trained, tmp_path, kind):
        np.save(tmp_path / "x.npy", halves(samples=2)[0])
        arguments = ("predict", trained / "halves", tmp_path / "x.npy")
        code, out, _ = torchlgm(*arguments, "--out", tmp_path / f"probs.{kind}")
        assert (code, out) == (0, "")
        printed = torchlgm(*arguments, *(["--json"] if kind == "json" else []))[1]
        assert (tmp_path / f"probs.{kind}").read_text() == printed

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("x.npy", b"junk", "not a readable file of plain arrays"),
            ("x.npz", b"junk", "not a readable file of plain arrays"),
            ("x.png", b"junk", "not a readable image"),
            ("x.csv", b"", "at least one row"),
            ("x.csv", b"1,2\n", "expected 36 columns (1, ..., 36)"),
            ("x.txt", b"1,2\n", "expected a .npz, .npy or .csv file, an image or a folder"),
        ],
    )
    def test_wrong_file(self, complaint, trained, tmp_path, name, content, message):
        (tmp_path / name).write_bytes(content)
        assert message in complaint("predict", trained / "halves", tmp_path / name)

    @pytest.mark.parametrize(
        ("array", "message"),
        [
            (np.zeros((3, 5, 5)), "takes samples shaped (N, 1, 6, 6), N > 0, found (3, 5, 5)"),
            (np.zeros((0, 6, 6)), "N > 0, found (0, 6, 6)"),
            (np.full((1, 6, 6), 2.0), "expected values in [0, 1], or whole numbers of type uint8, found 2"),
            (np.full((1, 6, 6), "a"), "expected numbers"),
        ],
    )
    def test_wrong_arrays(self, complaint, trained, tmp_path, array, message):
        np.save(tmp_path / "x.npy", array)
        assert message in complaint("predict", trained / "halves", tmp_path / "x.npy")

    def test_wrong_images(self, complaint, trained, tmp_path):
        run = trained / "halves"
        as_image(np.zeros((4, 5)), tmp_path / "x.png")
        assert "expected 6x6 pixels, as the model was trained on, found 5x4" in complaint(
            "predict", run, tmp_path / "x.png"
        )
        Image.fromarray(np.zeros((6, 6), np.uint16)).save(tmp_path / "deep.png")
        assert "expected 8-bit grey or colour" in complaint("predict", run, tmp_path / "deep.png")
        (tmp_path / "empty").mkdir()
        assert "expected images in this folder, found none" in complaint("predict", run, tmp_path / "empty")
        assert "no such file or folder" in complaint("predict", run, tmp_path / "nothing.png")
        assert "the model takes samples shaped (2,)" in complaint("predict", trained / "table", tmp_path / "x.png")

    def test_several_arrays(self, complaint, trained, tmp_path):
        np.savez(tmp_path / "x.npz", a=np.zeros(3), b=np.zeros(3))
        assert "expected one array, or one named x; found a, b" in complaint(
            "predict", trained / "halves", tmp_path / "x.npz"
        )

    def test_wrong_place(self, complaint, trained, tmp_path):
        np.save(tmp_path / "x.npy", halves(samples=2)[0])
        arguments = ("predict", trained / "halves", tmp_path / "x.npy", "--out")
        assert "ends in .csv or .json" in complaint(*arguments, tmp_path / "probs.txt")
        assert "cannot be written (No such file" in complaint(*arguments, tmp_path / "nowhere" / "probs.csv")
        assert not (tmp_path / "nowhere").exists()


class TestComplete:
    def test_images(self, torchlgm, trained, classifier, tmp_path):
        x, _ = halves(samples=2)
        hole = np.zeros((EDGE, EDGE), bool)
        hole[2:4, 2:5] = True
        (tmp_path / "in").mkdir()
        as_image(x[0], tmp_path / "in" / "first.png", hole)
        code, out, _ = torchlgm("complete", trained / "halves", tmp_path / "in", "--out", tmp_path / "out")
        assert code == 0
        assert "Filled in 6 missing values of 1 samples" in out
        seen = torch.from_numpy((x[0] * 255).round() / 255)
        seen[torch.from_numpy(hole)] = math.nan
        expected = classifier.complete(seen.reshape(1, 1, EDGE, EDGE))[0, 0].numpy() * 255
        written = np.array(Image.open(tmp_path / "out" / "first.png"), dtype=float)
        np.testing.assert_allclose(written, expected, atol=0.51)

    def test_arrays_give_images_and_an_array(self, torchlgm, trained, tmp_path):
        x, _ = halves(samples=3)
        x[:, 0] = np.nan
        np.save(tmp_path / "x.npy", x)
        code, out, _ = torchlgm("complete", trained / "halves", tmp_path / "x.npy", "--out", tmp_path / "out", "--json")
        assert code == 0
        assert json.loads(out)["files"] == ["0.png", "1.png", "2.png", "completed.npy"]
        filled = np.load(tmp_path / "out" / "completed.npy")[:, 0]
        np.testing.assert_array_equal(filled[:, 1:], x[:, 1:])
        assert ((filled[:, 0] > 0) & (filled[:, 0] < 1)).all()

    def test_tables_keep_their_units_and_what_was_there(self, torchlgm, trained, tmp_path):
        (tmp_path / "gaps.csv").write_text("height,noise\n90,\n123.456,-1.5\n,2\n")
        code, _, _ = torchlgm("complete", trained / "table", tmp_path / "gaps.csv", "--out", tmp_path / "out")
        assert code == 0
        rows = list(csv.DictReader(io.StringIO((tmp_path / "out" / "completed.csv").read_text())))
        assert (float(rows[0]["height"]), float(rows[1]["height"]), float(rows[1]["noise"])) == (90, 123.456, -1.5)
        assert -5 < float(rows[0]["noise"]) < 5
        assert 0 < float(rows[2]["height"]) < 100

    def test_nothing_is_overwritten(self, complaint, trained, tmp_path):
        np.save(tmp_path / "x.npy", halves(samples=1)[0])
        arguments = ("complete", trained / "halves", tmp_path / "x.npy", "--out", tmp_path)
        assert "already there, and nothing is ever overwritten" in complaint(*arguments)

    def test_nothing_half_written_is_left(self, complaint, trained, tmp_path, monkeypatch):
        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("torchlgm.app.complete.np.save", full)
        np.savez(tmp_path / "x.npz", halves(samples=2)[0])
        said = complaint("complete", trained / "halves", tmp_path / "x.npz", "--out", tmp_path / "out")
        assert "out: cannot be written (No space left on device)" in said
        assert [path.name for path in tmp_path.iterdir()] == ["x.npz"]


class TestShow:
    def test_a_run(self, torchlgm, trained):
        code, out, _ = torchlgm("show", trained / "halves")
        assert code == 0
        for words in ("pixels-hidden", "lbp, sweep, 1 iteration", "1x6x6", "best epoch", "neural network", "70%"):
            assert words in out
        code, out, _ = torchlgm("show", trained / "halves", "--json")
        assert json.loads(out)["classes"] == ["0", "1"]

    @pytest.mark.parametrize("kind", ["dense", "conv", "local"])
    def test_a_graph(self, torchlgm, tmp_path, kind):
        code, out, _ = torchlgm("show", "--graph", kind, "--out", tmp_path / "graph.svg")
        assert code == 0
        assert kind.capitalize() in out
        assert (tmp_path / "graph.svg").stat().st_size > 1000

    def test_one_of_the_two(self, complaint, trained):
        assert "give one of the two" in complaint("show")
        assert "give one of the two" in complaint("show", trained / "halves", "--graph", "conv")


class TestDamagedRuns:
    @pytest.mark.parametrize("command", ["show", "evaluate"])
    def test_not_a_run(self, complaint, tmp_path, command):
        assert "not a run folder, config.json is missing; name one that `torchlgm train` made" in complaint(
            command, tmp_path
        )

    @pytest.mark.parametrize(
        ("file", "content", "message"),
        [
            ("config.json", "{", "config.json: cannot be read"),
            ("config.json", "[]", "not what torchlgm wrote there"),
            ("config.json", '{"model": "magic"}', "not the configuration of a training"),
            ("metrics.json", "{", "metrics.json: cannot be read"),
            ("model/model.json", "{", "model.json cannot be read"),
            ("model/graph.json", "{}", "graph.json is not the file that was saved"),
            ("model/weights.safetensors", "", "weights.safetensors is not the file that was saved"),
        ],
    )
    def test_damaged_files(self, complaint, damaged, file, content, message):
        (damaged / file).write_text(content)
        said = complaint("show", damaged)
        assert message in said
        assert "train again" in said or "--model" in said

    def test_missing_files(self, complaint, damaged):
        (damaged / "model/weights.safetensors").unlink()
        assert "weights.safetensors is missing" in complaint("show", damaged)
        shutil.rmtree(damaged / "model")
        assert "no such folder" in complaint("show", damaged)


class TestData:
    def test_names(self, torchlgm):
        code, out, _ = torchlgm("data")
        assert code == 0
        assert "digits, mnist, fashion-mnist, kmnist" in out

    def test_facts(self, torchlgm, tmp_path):
        table = write_table(tmp_path / "table.csv", rows=70)
        code, out, _ = torchlgm("data", table)
        assert code == 0
        assert "table: 56 samples to train, 14 to test" in out
        assert "high (28 + 7), low (28 + 7)" in out
        assert "7.1% of all values" in out
        facts = json.loads(torchlgm("data", "digits", "--json")[1])
        assert (facts["train"], facts["test"], facts["shape"], facts["missing"]) == (1437, 360, [1, 8, 8], 0)

    def test_what_is_not_there(self, complaint):
        assert "neither a known data set" in complaint("data", "nothing")


def test_bench(torchlgm, monkeypatch):
    monkeypatch.setattr("torchlgm.app.bench.bench.__defaults__", ("auto", 20, "lbp", 0.0))
    code, out, _ = torchlgm("bench", "--device", "cpu", "--batch", 2, "--json")
    assert code == 0
    rows = json.loads(out)
    assert [(row["model"], row["kind"]) for row in rows[:2]] == [("dense", "LGM"), ("dense", "neural network")]
    assert len(rows) == 6
    assert all(row["predict_ms"] > 0 and row["train_ms"] > 0 for row in rows)
