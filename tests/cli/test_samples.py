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
            ("x.npy", b"junk", "not a readable .npy file of a plain array"),
            ("x.npz", b"junk", "not a readable .npz of plain arrays"),
            ("x.png", b"junk", "not a readable image"),
            ("x.csv", b"1,2\n", "a table, but the model was trained on images or arrays"),
            ("x.txt", b"1,2\n", "expected a .npz or .npy file, an image or a folder of images"),
        ],
    )
    def test_wrong_file(self, complaint, trained, tmp_path, name, content, message):
        (tmp_path / name).write_bytes(content)
        assert message in complaint("predict", trained / "halves", tmp_path / name)

    @pytest.mark.parametrize(
        ("array", "message"),
        [
            (np.zeros((3, 5, 5)), "takes samples shaped (N, 1, 6, 6), N > 0, got (3, 5, 5)"),
            (np.zeros((0, 6, 6)), "N > 0, got (0, 6, 6)"),
            (np.full((1, 6, 6), 2.0), "expected values in [0, 1], or whole numbers of type uint8, got 2"),
            (np.full((1, 6, 6), "a"), "expected numbers"),
        ],
    )
    def test_wrong_arrays(self, complaint, trained, tmp_path, array, message):
        np.save(tmp_path / "x.npy", array)
        assert message in complaint("predict", trained / "halves", tmp_path / "x.npy")

    def test_wrong_images(self, complaint, trained, tmp_path):
        run = trained / "halves"
        as_image(np.zeros((4, 5)), tmp_path / "x.png")
        assert "expected 6x6 pixels, as in the training, got 5x4" in complaint("predict", run, tmp_path / "x.png")
        Image.fromarray(np.zeros((6, 6), np.uint16)).save(tmp_path / "deep.png")
        assert "expected 8-bit grey or colour" in complaint("predict", run, tmp_path / "deep.png")
        (tmp_path / "empty").mkdir()
        assert "expected images in this folder, got none" in complaint("predict", run, tmp_path / "empty")
        assert "no such file or folder" in complaint("predict", run, tmp_path / "nothing.png")
        assert "x.png: expected a table" in complaint("predict", trained / "table", tmp_path / "x.png")

    def test_a_folder_of_folders_and_hidden_images(self, complaint, torchlgm, trained, tmp_path):
        (tmp_path / "a").mkdir()
        as_image(halves(samples=1)[0][0], tmp_path / "a" / "1.png")
        (tmp_path / "a" / "._1.png").write_bytes(b"no image")
        assert "got none; name one of its folders: a" in complaint("predict", trained / "halves", tmp_path)
        assert torchlgm("predict", trained / "halves", tmp_path / "a")[0] == 0

    def test_several_arrays(self, complaint, trained, tmp_path):
        np.savez(tmp_path / "x.npz", a=np.zeros(3), b=np.zeros(3))
        assert "expected one array, or one named x; got a, b" in complaint(
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
        assert "x.csv: already exists, and nothing is ever overwritten; name another file" in complaint(*arguments)
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
        assert "already exists, and nothing is ever overwritten" in complaint(*arguments)

    def test_nothing_half_written_is_left(self, complaint, trained, tmp_path, monkeypatch):
        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("torchlgm.cli.complete.np.save", full)
        np.savez(tmp_path / "x.npz", halves(samples=2)[0])
        said = complaint("complete", trained / "halves", tmp_path / "x.npz", "--out", tmp_path / "out")
        assert "out: cannot be written (No space left on device)" in said
        assert [path.name for path in tmp_path.iterdir()] == ["x.npz"]
