"""What is done with a run: evaluate and show; damaged runs; and data."""

import json
import shutil

import numpy as np
import pytest

from helpers.runs import QUICK, halves, write_halves, write_table
from torchlgm.cli.runs import Run


@pytest.fixture
def damaged(trained, tmp_path):
    shutil.copytree(trained / "halves", tmp_path / "damaged")
    return tmp_path / "damaged"


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

    def test_says_that_the_data_has_changed(self, torchlgm, tmp_path):
        write_halves(tmp_path / "halves.npz")
        assert torchlgm("train", tmp_path / "halves.npz", "--out", tmp_path / "run", *QUICK, "--no-pictures")[0] == 0
        _, _, said = torchlgm("evaluate", tmp_path / "run")
        assert not said
        x, y = halves(seed=3)
        write_halves(tmp_path / "halves.npz", x=x, y=y)
        write_halves(tmp_path / "other.npz", x=x, y=y)
        for data in ((), (tmp_path / "halves.npz",)):
            code, _, said = torchlgm("evaluate", tmp_path / "run", *data)
            assert code == 0
            assert "halves.npz has changed since the training: what is its test part now may have been trained" in said
        assert not torchlgm("evaluate", tmp_path / "run", tmp_path / "other.npz")[2]

    def test_all_of_other_data_in_one_part(self, torchlgm, trained, tmp_path):
        x, y = halves(seed=3)
        write_halves(tmp_path / "more.npz", x=x, y=np.array(["0", "1"])[y])
        for data, how, part, count in (
            ((), (), "test", len(y) // 5),
            ((tmp_path / "more.npz",), (), "all", len(y)),
            ((tmp_path / "more.npz",), ("--part", "test"), "test", len(y) // 5),
        ):
            _, out, _ = torchlgm("evaluate", trained / "halves", *data, *how, "--json")
            assert (json.loads(out)["part"], json.loads(out)["samples"]) == (part, count)

    def test_the_data_of_the_run_however_it_is_written(self, torchlgm, tmp_path, monkeypatch):
        _, y = halves()
        write_halves(tmp_path / "halves.npz")
        assert torchlgm("train", tmp_path / "halves.npz", "--out", tmp_path / "run", *QUICK, "--no-pictures")[0] == 0
        monkeypatch.chdir(tmp_path)
        for data in ("halves.npz", "./halves.npz", tmp_path / "halves.npz"):
            _, out, _ = torchlgm("evaluate", tmp_path / "run", data, "--json")
            assert (json.loads(out)["part"], json.loads(out)["samples"]) == ("test", len(y) // 5)

    def test_prints_a_table(self, torchlgm, trained):
        code, out, _ = torchlgm("evaluate", trained / "halves", "--visible", "1,0.5")
        assert code == 0
        assert "100%" in out
        assert "50%" in out

    def test_data_of_another_shape(self, complaint, trained, tmp_path):
        data = write_halves(tmp_path / "big.npz", x=halves(side=8)[0])
        said = complaint("evaluate", trained / "halves", data)
        assert "takes samples shaped (N, 1, 6, 6), N > 0, got (80, 1, 8, 8)" in said

    def test_bad_requests(self, complaint, trained, tmp_path):
        run = trained / "halves"
        data = write_halves(tmp_path / "other.npz", y=np.arange(80) % 3)
        assert "has a class '2', but the model knows 0, 1 only" in complaint("evaluate", run, data)
        assert "expected shares from 0 to 1" in complaint("evaluate", run, "--visible", "1,2")
        assert "expected shares from 0 to 1" in complaint("evaluate", run, "--visible", "all")
        assert "expected one of test, train, all" in complaint("evaluate", run, "--part", "best")
        assert "neither a known data set" in complaint("evaluate", run, tmp_path / "nothing.npz")


class TestShow:
    def test_a_run_is_not_drawn(self, complaint, trained, tmp_path):
        said = complaint("show", trained / "halves", "--out", tmp_path / "x.png")
        assert "--out is for --graph; the pictures of a run are in its folder" in said

    def test_a_run(self, torchlgm, trained):
        code, out, _ = torchlgm("show", trained / "halves")
        assert code == 0
        for words in ("inputs-hidden", "lbp, sweep, 1 iteration", "1x6x6", "best epoch", "neural network", "70%"):
            assert words in out
        code, out, _ = torchlgm("show", trained / "halves", "--json")
        assert json.loads(out)["classes"] == ["0", "1"]

    @pytest.mark.parametrize("kind", ["dense", "conv", "local"])
    def test_a_graph(self, torchlgm, tmp_path, kind):
        code, out, _ = torchlgm("show", "--graph", kind, "--out", tmp_path / "graph.svg")
        assert code == 0
        assert kind.capitalize() in out
        assert (tmp_path / "graph.svg").stat().st_size > 1000

    def test_a_drawing_overwrites_nothing(self, complaint, tmp_path):
        (tmp_path / "graph.svg").write_text("mine")
        assert "nothing is ever overwritten" in complaint("show", "--graph", "conv", "--out", tmp_path / "graph.svg")
        assert (tmp_path / "graph.svg").read_text() == "mine"

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
            ("config.json", "[]", "not as torchlgm wrote it"),
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
        assert "table.csv: 70 rows" in out
        assert "target   class" in out
        assert "high (35), low (35)" in out
        assert "7.1% of all values" in out
        facts = json.loads(torchlgm("data", "digits", "--json")[1])
        assert (facts["train"], facts["test"], facts["shape"], facts["missing"]) == (1437, 360, [1, 8, 8], 0)

    def test_what_is_not_there(self, complaint):
        assert "neither a known data set" in complaint("data", "nothing")
