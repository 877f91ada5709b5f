"""Files of samples: what `predict` and `complete` read and write."""

import csv
import io
import json
import math

import numpy as np
import pytest
import torch
from PIL import Image

from helpers.runs import as_image, halves
from torchlgm.cli.runs import Run

EDGE = 6


@pytest.fixture
def classifier(trained):
    return Run.load(trained / "halves").classifier()


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

    def test_bytes_that_are_bits(self, torchlgm, trained, tmp_path):
        bits = np.eye(EDGE, dtype=np.uint8)
        for x, warned in ((bits, True), (bits.astype(bool), False), (255 * bits, False)):
            np.save(tmp_path / "x.npy", x)
            code, _, said = torchlgm("predict", trained / "halves", tmp_path / "x.npy")
            assert code == 0
            assert ("uint8 is divided by 255, but nothing in it exceeds 1" in said) == warned

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

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("id,height\n7,90\n", "the header has no noise; found id, height"),
            ("height,sound\n90,1\n", "the header has no noise; found height, sound"),
            ("height,class\n90,1\n", "the header has no noise; found height, class"),
            ("height,noise,height\n90,1,10\n", "expected each name once in the header, found 'height' 2 times"),
        ],
    )
    @pytest.mark.parametrize("command", ["predict", "complete"])
    def test_a_header_that_contradicts_the_model(self, complaint, trained, tmp_path, command, text, message):
        (tmp_path / "new.csv").write_text(text)
        out = ["--out", tmp_path / "out"] if command == "complete" else []
        assert message in complaint(command, trained / "table", tmp_path / "new.csv", *out)
        assert not (tmp_path / "out").exists()

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

    def test_a_folder_of_folders_and_hidden_images(self, complaint, torchlgm, trained, tmp_path):
        (tmp_path / "a").mkdir()
        as_image(halves(samples=1)[0][0], tmp_path / "a" / "1.png")
        (tmp_path / "a" / "._1.png").write_bytes(b"no image")
        assert "found none; name one of its folders: a" in complaint("predict", trained / "halves", tmp_path)
        assert torchlgm("predict", trained / "halves", tmp_path / "a")[0] == 0

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

    def test_nothing_is_overwritten(self, complaint, trained, tmp_path):
        """Not even the samples themselves."""
        (tmp_path / "x.csv").write_text("height,noise\n90,1\n")
        arguments = ("predict", trained / "table", tmp_path / "x.csv", "--out", tmp_path / "x.csv")
        assert "x.csv: already there, and nothing is ever overwritten; name another file" in complaint(*arguments)
        assert (tmp_path / "x.csv").read_text() == "height,noise\n90,1\n"


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
        filled = np.load(tmp_path / "out" / "completed.npy")
        assert (filled.shape, filled.dtype) == (x.shape, x.dtype)
        np.testing.assert_array_equal(filled[:, 1:], x[:, 1:])
        assert ((filled[:, 0] > 0) & (filled[:, 0] < 1)).all()

    def test_arrays_of_bytes_stay_bytes(self, torchlgm, trained, tmp_path):
        x = (halves(samples=3)[0] * 254 + 1).astype(np.uint8)
        x[:, 0] = 0
        np.save(tmp_path / "x.npy", x)
        arguments = ("complete", trained / "halves", tmp_path / "x.npy", "--out", tmp_path / "out")
        assert torchlgm(*arguments, "--missing-value", 0)[0] == 0
        filled = np.load(tmp_path / "out" / "completed.npy")
        assert filled.dtype == np.uint8
        np.testing.assert_array_equal(filled[:, 1:], x[:, 1:])
        assert (filled[:, 0] > 1).all()

    def test_arrays_for_the_model_of_a_table_stay_in_its_units(self, torchlgm, trained, tmp_path):
        x = np.array([[90, np.nan], [400, 1.5], [-99.9, 2]], np.float32)
        np.save(tmp_path / "x.npy", x)
        arguments = ("complete", trained / "table", tmp_path / "x.npy", "--out", tmp_path / "out")
        code, out, _ = torchlgm(*arguments, "--missing-value", -99.9)
        assert code == 0
        assert "Filled in 2 missing values of 3 samples" in out
        filled = np.load(tmp_path / "out" / "completed.npy")
        assert filled[x == x][[0, 1, 2, 4]].tolist() == [90, 400, 1.5, 2]
        assert 0 < filled[2, 0] < 100
        rows = list(csv.reader(io.StringIO((tmp_path / "out" / "completed.csv").read_text())))[1:]
        np.testing.assert_allclose(np.array(rows, float), filled, rtol=1e-6)

    def test_tables_keep_their_units_and_what_was_there(self, torchlgm, trained, tmp_path):
        (tmp_path / "gaps.csv").write_text("height,noise\n90,\n123.456,-1.5\n,2\n")
        code, _, _ = torchlgm("complete", trained / "table", tmp_path / "gaps.csv", "--out", tmp_path / "out")
        assert code == 0
        rows = list(csv.DictReader(io.StringIO((tmp_path / "out" / "completed.csv").read_text())))
        assert (float(rows[0]["height"]), float(rows[1]["height"]), float(rows[1]["noise"])) == (90, 123.456, -1.5)
        assert -5 < float(rows[0]["noise"]) < 5
        assert 0 < float(rows[2]["height"]) < 100

    def test_tables_keep_the_text_of_their_cells_and_their_other_columns(self, torchlgm, trained, tmp_path):
        lines = ["id,noise,class,height", '"7, a",0.12345678901234,low,-99', "8,?,,1e1", "9,+1.50,high,090.0"]
        (tmp_path / "gaps.csv").write_text("\n".join(lines))
        arguments = ("complete", trained / "table", tmp_path / "gaps.csv", "--missing-value", -99)
        code, out, _ = torchlgm(*arguments, "--out", tmp_path / "out")
        assert code == 0
        assert "Filled in 2 missing values of 3 samples" in out
        header, first, second, third = (tmp_path / "out" / "completed.csv").read_text().splitlines()
        assert (header, third) == (lines[0], lines[3])
        assert first.startswith('"7, a",0.12345678901234,low,')
        assert 0 < float(first.split(",")[-1]) < 100
        assert second.startswith("8,")
        assert second.endswith(",,1e1")
        assert -5 < float(second.split(",")[1]) < 5

    def test_tables_without_a_header_stay_without_one(self, torchlgm, trained, tmp_path):
        (tmp_path / "plain.csv").write_text("90.00,1.5\n10,1\n")
        code, _, _ = torchlgm("complete", trained / "table", tmp_path / "plain.csv", "--out", tmp_path / "out")
        assert code == 0
        assert (tmp_path / "out" / "completed.csv").read_text() == "90.00,1.5\n10,1\n"

    def test_arrays_become_a_table_with_the_names_of_the_model(self, torchlgm, trained, tmp_path):
        np.save(tmp_path / "x.npy", np.array([[90, 1.5], [10, -2]]))
        code, _, _ = torchlgm("complete", trained / "table", tmp_path / "x.npy", "--out", tmp_path / "out")
        assert code == 0
        assert (tmp_path / "out" / "completed.csv").read_text() == "height,noise\n90,1.5\n10,-2\n"

    def test_images_that_would_become_the_same_file(self, complaint, trained, tmp_path):
        (tmp_path / "in").mkdir()
        for name in ("1.png", "1.bmp", "2.png"):
            Image.new("L", (EDGE, EDGE)).save(tmp_path / "in" / name)
        said = complaint("complete", trained / "halves", tmp_path / "in", "--out", tmp_path / "out")
        assert "in: 1.bmp and 1.png would both become 1.png; rename one of them" in said
        assert not (tmp_path / "out").exists()

    def test_nothing_is_overwritten(self, complaint, trained, tmp_path):
        np.save(tmp_path / "x.npy", halves(samples=1)[0])
        arguments = ("complete", trained / "halves", tmp_path / "x.npy", "--out", tmp_path)
        assert "already there, and nothing is ever overwritten" in complaint(*arguments)

    def test_nothing_half_written_is_left(self, complaint, trained, tmp_path, monkeypatch):
        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("torchlgm.cli.complete.np.save", full)
        np.savez(tmp_path / "x.npz", halves(samples=2)[0])
        said = complaint("complete", trained / "halves", tmp_path / "x.npz", "--out", tmp_path / "out")
        assert "out: cannot be written (No space left on device)" in said
        assert [path.name for path in tmp_path.iterdir()] == ["x.npz"]
