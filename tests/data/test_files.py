"""Data sets from paths: idx folders, .npz, images by class."""

import numpy as np
import pytest
import torch
from PIL import Image

from torchlgm.data import load, write_idx
from torchlgm.errors import DataError, DataWarning, MissingExtraError


def write_idx_set(folder, **changed):
    """A USPS-like folder: 16x16 images, three classes; `changed` replaces arrays by short name."""
    arrays = {
        "train_images": np.full((6, 16, 16), 51, dtype=np.uint8),
        "train_labels": np.array([0, 1, 2, 0, 1, 2], dtype=np.uint8),
        "t10k_images": np.full((2, 16, 16), 255, dtype=np.uint8),
        "t10k_labels": np.array([2, 0], dtype=np.uint8),
    } | changed
    for name, array in arrays.items():
        part, kind = name.split("_")
        write_idx(folder / f"{part}-{kind}-idx{3 if kind == 'images' else 1}-ubyte", array)


class TestIdxFolder:
    def test_loads(self, tmp_path):
        write_idx_set(tmp_path)
        loaded = load(tmp_path)
        assert loaded.train.inputs.shape == (6, 1, 16, 16)
        assert loaded.train.inputs.unique().tolist() == pytest.approx([0.2])
        assert loaded.test.targets.tolist() == [2, 0]
        assert loaded.train.classes == ("0", "1", "2")
        assert loaded.train.name == tmp_path.name

    def test_found_by_name_in_folder(self, tmp_path, monkeypatch):
        (tmp_path / "usps").mkdir()
        write_idx_set(tmp_path / "usps")
        assert load("usps", folder=tmp_path).train.name == "usps"
        monkeypatch.setenv("TORCHLGM_DATA", str(tmp_path))
        assert load("usps").train.name == "usps"

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"train_labels": np.zeros(5, np.uint8)}, "train-labels.*each of the 6 images.*got 5"),
            ({"t10k_images": np.zeros((0, 16, 16), np.uint8)}, "each of the 0 images"),
            ({"t10k_images": np.zeros((2, 16), np.uint8)}, "t10k-images.*expected 3 dimensions, got 2"),
            ({"train_images": np.zeros((6, 16, 16), np.int16)}, "train-images.*unsigned bytes.*int16"),
            ({"t10k_images": np.zeros((2, 8, 8), np.uint8)}, r"\(1, 16, 16\).*\(1, 8, 8\)"),
        ],
    )
    def test_inconsistent_files(self, tmp_path, changed, message):
        write_idx_set(tmp_path, **changed)
        with pytest.raises(DataError, match=message):
            load(tmp_path)

    def test_missing_file(self, tmp_path):
        write_idx_set(tmp_path)
        (tmp_path / "t10k-labels-idx1-ubyte").unlink()
        with pytest.raises(DataError, match=r"missing: t10k-labels-idx1-ubyte\[\.gz\]"):
            load(tmp_path)


class TestNpz:
    def test_two_parts(self, tmp_path):
        path = tmp_path / "toy.npz"
        np.savez(
            path,
            x_train=np.array([[[0, 255]], [[51, 102]]], dtype=np.uint8),
            y_train=np.array([7, 3]),
            x_test=np.array([[[255, 255]]], dtype=np.uint8),
            y_test=np.array([9]),
        )
        loaded = load(path)
        assert loaded.train.inputs.shape == (2, 1, 1, 2)
        assert loaded.train.inputs.flatten().tolist() == pytest.approx([0, 1, 0.2, 0.4])
        assert loaded.train.classes == ("3", "7", "9")
        assert loaded.train.targets.tolist() == [1, 0]
        assert loaded.test.targets.tolist() == [2]

    def test_bytes_that_are_bits(self, tmp_path):
        path, bits = tmp_path / "toy.npz", np.uint8([[0, 1], [1, 0]] * 3)
        np.savez(path, x=bits, y=np.arange(6) % 2)
        with pytest.warns(
            DataWarning, match="uint8 is divided by 255, but nothing in it exceeds 1; pass bool"
        ) as caught:
            load(path)
        assert len(caught) == 1
        for x in (bits.astype(bool), bits.astype(float), 0 * bits, 2 * bits):
            np.savez(path, x=x, y=np.arange(6) % 2)
            load(path)

    def test_one_part_with_words_and_missing(self, tmp_path):
        path = tmp_path / "toy.npz"
        x = np.linspace(0, 1, 20).reshape(10, 2)
        x[3, 1] = np.nan
        np.savez(path, x=x, y=np.array(["dog", "cat"] * 5))
        loaded = load(str(path))
        assert (len(loaded.train), len(loaded.test)) == (8, 2)
        assert loaded.train.classes == ("cat", "dog")
        assert loaded.test.targets.sort().values.tolist() == [0, 1]
        both = torch.cat([loaded.train.inputs, loaded.test.inputs])
        assert both.isnan().sum() == 1
        assert both.nan_to_num(x[3, 0] + 1 / 19).flatten().sort().values.tolist() == pytest.approx(
            np.linspace(0, 1, 20), abs=1e-6
        )

    @pytest.mark.parametrize(
        ("arrays", "message"),
        [
            ({"x": np.zeros((4, 2))}, "expected arrays x, y or.*got x"),
            ({"x": np.zeros((4, 2)), "y": np.zeros((4, 1), int)}, r"labels of shape \(N,\)"),
            ({"x": np.full((4, 2), 9), "y": np.arange(4)}, "got 9.0; scale"),
            ({"x": np.array([["a"], ["b"]]), "y": np.arange(2)}, "numbers as inputs"),
            ({"x": np.zeros((4, 2)), "y": np.arange(3)}, "same N"),
            ({"x": np.array([{}, {}]), "y": np.arange(2)}, "plain arrays"),
            ({"x": np.zeros((4, 2)), "y": np.array([0, 1, np.nan, 1])}, r"1 of 4 labels are missing \(NaN\)"),
            ({"x": np.full((4, 2), np.nan), "y": np.arange(4)}, "no input has a value"),
            ({"x": np.zeros((4, 8, 8, 3), np.uint8), "y": np.arange(4)}, r"channels last.*transpose\(0, 3, 1, 2\)"),
        ],
    )
    def test_bad_arrays(self, tmp_path, arrays, message):
        np.savez(tmp_path / "bad.npz", **arrays)
        with pytest.raises(DataError, match=message):
            load(tmp_path / "bad.npz")

    @pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 cut short"])
    def test_damaged(self, tmp_path, content):
        (tmp_path / "bad.npz").write_bytes(content)
        with pytest.raises(DataError, match=r"bad\.npz: not a readable \.npz"):
            load(tmp_path / "bad.npz")

    def test_a_single_array_is_not_an_archive(self, tmp_path):
        with open(tmp_path / "bad.npz", "wb") as file:
            np.save(file, np.zeros(3))
        with pytest.raises(DataError, match=r"not a readable \.npz"):
            load(tmp_path / "bad.npz")


def test_a_table_is_referred_elsewhere(tmp_path):
    (tmp_path / "table.csv").write_text("a,class\n1,x\n2,y\n")
    with pytest.raises(DataError, match=r"table\.csv: a table, .* data\.load_table\(path\) .* LGMClassifier"):
        load(tmp_path / "table.csv")


def save_image(path, value=0, size=(4, 3), mode="L"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path)


class TestImages:
    def test_hidden_files_are_none(self, tmp_path):
        for number in range(5):
            save_image(tmp_path / "dark" / f"{number}.png", 51)
            save_image(tmp_path / "light" / f"{number}.png", 250)
        (tmp_path / "dark" / "._0.png").write_bytes(b"left by another system")
        assert len(load(tmp_path).train) == 8

    def test_a_part_alone(self, tmp_path):
        save_image(tmp_path / "train" / "dark" / "0.png", 51)
        with pytest.raises(DataError, match=r"expected train/ and test/.*got train/ alone"):
            load(tmp_path)

    def test_grey_images_in_one_part(self, tmp_path):
        for number in range(5):
            save_image(tmp_path / "dark" / f"{number}.png", 51)
            save_image(tmp_path / "light" / f"{number}.png", 255)
        (tmp_path / "dark" / "notes.txt").write_text("not an image")
        (tmp_path / ".hidden").mkdir()
        loaded = load(tmp_path)
        assert loaded.train.inputs.shape == (8, 1, 3, 4)
        assert loaded.train.classes == ("dark", "light")
        expected = torch.tensor([0.2, 1.0])[loaded.train.targets]
        assert loaded.train.inputs.mean((1, 2, 3)).allclose(expected)

    def test_train_and_test_and_colour(self, tmp_path):
        save_image(tmp_path / "train" / "a" / "1.png", (255, 0, 51), mode="RGB")
        save_image(tmp_path / "train" / "b" / "1.png", 255)
        save_image(tmp_path / "test" / "b" / "1.png", 0)
        loaded = load(tmp_path)
        assert loaded.train.inputs.shape == (2, 3, 3, 4)
        assert loaded.train.inputs[0, :, 0, 0].tolist() == pytest.approx([1, 0, 0.2])
        assert loaded.test.targets.tolist() == [1]
        assert loaded.test.classes == ("a", "b")

    def test_the_odd_size_is_named(self, tmp_path):
        save_image(tmp_path / "a" / "1.png", size=(5, 5))
        for number in range(3):
            save_image(tmp_path / "b" / f"{number}.png")
        with pytest.raises(DataError, match=r"a.1\.png: expected 4x3 pixels.*got 5x5"):
            load(tmp_path)

    def test_unreadable_empty_and_deep(self, tmp_path):
        with pytest.raises(DataError, match="one subfolder of images per class"):
            load(tmp_path)
        (tmp_path / "a").mkdir()
        with pytest.raises(DataError, match="images of class 'a', got none"):
            load(tmp_path)
        (tmp_path / "a" / "1.png").write_bytes(b"no image")
        with pytest.raises(DataError, match=r"1\.png: not a readable image"):
            load(tmp_path)
        save_image(tmp_path / "a" / "1.png", mode="I;16")
        with pytest.raises(DataError, match="expected 8-bit"):
            load(tmp_path)

    def test_without_pillow(self, tmp_path, without):
        save_image(tmp_path / "a" / "1.png")
        without("PIL")
        with pytest.raises(MissingExtraError, match=r"needs PIL.*pip install 'torchlgm\[cli\]'"):
            load(tmp_path)

    def test_pixels_cut_short(self, tmp_path):
        for number in range(5):
            save_image(tmp_path / "a" / f"{number}.png", size=(64, 64))
        content = (tmp_path / "a" / "3.png").read_bytes()
        (tmp_path / "a" / "3.png").write_bytes(content[:-40])
        with pytest.raises(DataError, match=r"3\.png: not a readable image"):
            load(tmp_path)


def test_unknown_kind_of_file(tmp_path):
    (tmp_path / "data.txt").write_text("1,2")
    with pytest.raises(DataError, match=r"data\.txt: expected a \.npz file or a folder; of a table, a \.csv"):
        load(tmp_path / "data.txt")


class TestMissingValue:
    @pytest.mark.parametrize("x", [np.uint8([[0, 255], [7, 51]] * 3), np.float32([[0, 1], [7, 0.2]] * 3)])
    def test_in_an_array_it_is_compared_before_scaling(self, tmp_path, x):
        np.savez(tmp_path / "a.npz", x=x, y=[0, 1] * 3)
        loaded = load(tmp_path / "a.npz", missing_value=7)
        both = torch.cat([loaded.train.inputs, loaded.test.inputs])
        assert both.isnan().sum() == 3
        torch.testing.assert_close(both.nan_to_num(9).unique(), torch.tensor([0, 0.2, 1, 9]))

    def test_in_images_too(self, tmp_path):
        for name, value in (("dark", 10), ("light", 200)):
            (tmp_path / name).mkdir()
            for i in range(3):
                Image.fromarray(np.uint8([[value, 255]])).save(tmp_path / name / f"{i}.png")
        loaded = load(tmp_path, missing_value=255)
        assert loaded.train.inputs[..., 1].isnan().all()
        assert not loaded.train.inputs[..., 0].isnan().any()

    def test_known_data_has_none(self):
        with pytest.raises(DataError, match="digits: nothing is missing in it; leave out the missing value -1"):
            load("digits", missing_value=-1)

    def test_that_occurs_nowhere_is_noticed(self, tmp_path):
        np.savez(tmp_path / "a.npz", x=np.zeros((4, 2)), y=[0, 1] * 2)
        write_idx_set(tmp_path)
        for path, value in ((tmp_path / "a.npz", 7), (tmp_path, 3)):
            with pytest.warns(DataWarning, match=f"{path.name}: nothing in it equals the missing value {value}"):
                load(path, missing_value=value)

    @pytest.mark.parametrize("value", ["-999", [-999, -1], True])
    def test_is_one_number(self, value):
        with pytest.raises(DataError, match="expected one number, such as -999"):
            load("digits", missing_value=value)


def test_transparent_pixels_are_missing(tmp_path):
    for name, grey in (("dark", 10), ("light", 200)):
        (tmp_path / name).mkdir()
        for i in range(3):
            pixels = np.uint8([[[grey, 255], [grey, 0]]])
            Image.fromarray(pixels, "LA").save(tmp_path / name / f"{i}.png")
    x = load(tmp_path).train.inputs
    assert x.shape[1:] == (1, 1, 2)
    assert x[..., 1].isnan().all()
    assert x[..., 0].unique().tolist() == pytest.approx([10 / 255, 200 / 255])
