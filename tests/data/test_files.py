"""Data sets from paths: idx folders, .npz, .csv, images by class."""

import math

import numpy as np
import pytest
import torch
from PIL import Image

from torchlgm.data import load, write_idx
from torchlgm.data.splits import holdout_indices
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
            ({"train_labels": np.zeros(5, np.uint8)}, "train-labels.*each of the 6 images.*found 5"),
            ({"t10k_images": np.zeros((0, 16, 16), np.uint8)}, "each of the 0 images"),
            ({"t10k_images": np.zeros((2, 16), np.uint8)}, "t10k-images.*expected 3 dimensions, found 2"),
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
        with pytest.warns(DataWarning, match="uint8 is divided by 255, but nothing in it exceeds 1; pass bool") as said:
            load(path)
        assert len(said) == 1
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
            ({"x": np.zeros((4, 2))}, "expected arrays x, y or.*found x"),
            ({"x": np.zeros((4, 2)), "y": np.zeros((4, 1), int)}, r"labels of shape \(N,\)"),
            ({"x": np.full((4, 2), 9), "y": np.arange(4)}, "found 9.0; scale"),
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


def load_csv_text(tmp_path, text, label=None):
    path = tmp_path / "table.csv"
    path.write_text(text, encoding="utf-8")
    return load(path, label=label)


def all_rows(dataset):
    """{class name: list of input rows} over both parts."""
    rows = {}
    for part in (dataset.train, dataset.test):
        for inputs, target in zip(part.inputs.tolist(), part.targets.tolist(), strict=True):
            rows.setdefault(part.classes[target], []).append(inputs)
    return rows


class TestCsv:
    def test_named_label_column_anywhere(self, tmp_path):
        lines = [f"{i},{'yes' if i % 2 else 'no'},{-i}" for i in range(10)]
        loaded = load_csv_text(tmp_path, "\n".join(["a,Target,b", *lines]) + "\n\n")
        assert (len(loaded.train), len(loaded.test)) == (8, 2)
        assert loaded.train.classes == ("no", "yes")
        assert loaded.train.inputs.amin(0).tolist() == [0, 0]
        assert loaded.train.inputs.amax(0).tolist() == [1, 1]
        assert (loaded.train.inputs.sum(1) - 1).abs().max() < 1e-6
        assert loaded.train.inputs.shape == (8, 2)

    @pytest.mark.parametrize(
        ("header", "label", "inputs"),
        [
            ("kind,target,b", "kind", ("target", "b")),  # whatever others are called
            ("kind,a,b", "1", ("a", "b")),
            (None, "1", ("2", "3")),
            (None, 1, ("2", "3")),
            ("0,1,2", "0", ("1", "2")),  # names before numbers
        ],
    )
    def test_a_chosen_label_column(self, tmp_path, header, label, inputs):
        rows = [f"{'yes' if i % 2 else 'no'},{i},{-i}" for i in range(10)]
        loaded = load_csv_text(tmp_path, "\n".join([header, *rows] if header else rows), label)
        assert (len(loaded.train), len(loaded.test)) == (8, 2)
        assert loaded.train.classes == ("no", "yes")
        assert loaded.columns.names == inputs

    def test_a_header_of_numbers_goes_before_places(self, tmp_path):
        rows = ["5.1,3.5,1.4,0.2,0", "6.1,2.5,4.4,1.2,1"] * 5
        loaded = load_csv_text(tmp_path, "\n".join(["0,1,2,3,4", *rows]), "4")
        assert loaded.columns.names == ("0", "1", "2", "3")
        assert (loaded.columns.label, loaded.train.classes) == ("4", ("0", "1"))

    @pytest.mark.parametrize("header", [",0,1,2", ",a,b,kind", "a,,b,kind"])
    def test_a_column_without_a_name(self, tmp_path, header):
        rows = [f"{i},{i % 5},{i % 3},{'yes' if i % 2 else 'no'}" for i in range(10)]
        column = header.split(",").index("") + 1
        with pytest.raises(DataError, match=f"column {column} has no name; if it numbers the rows, as pandas does"):
            load_csv_text(tmp_path, "\n".join([header, *rows]))

    @pytest.mark.parametrize(("first", "labels"), [("2001,2002,kind", ("yes", "no")), ("2001,2002,2003", ("1", "0"))])
    def test_a_header_that_looks_like_a_sample(self, tmp_path, first, labels):
        rows = [f"5,1,{labels[0]}", f"6,2,{labels[1]}"] * 5
        with pytest.warns(DataWarning, match="line 1: no other row has the label .* if this is the header, name"):
            load_csv_text(tmp_path, "\n".join([first, *rows]))
        loaded = load_csv_text(tmp_path, "\n".join([first, *rows]), first.split(",")[-1])
        assert len(loaded.train) + len(loaded.test) == 10

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("a;b;c\n1;2;x\n", "found 1; they seem to be separated by semicolons, save them with commas"),
            ("a\tb\n1\t2\n", "found 1; they seem to be separated by tabs, save them with commas"),
            ("a;b\n1,5;2,5\n", "line 2: expected 1 cells, found 3; they seem to be separated by semicolons"),
            ("a,b\n1,NA\n2,x\n", r"line 2: the label is missing \('NA' counts as that\)"),
            ("a,b\n1_5,x\n2,y\n", "line 2, column a: expected a number or nothing, found '1_5'"),
        ],
    )
    def test_tables_that_cannot_be_read(self, tmp_path, text, expected):
        with pytest.raises(DataError, match=expected):
            load_csv_text(tmp_path, text)

    def test_another_encoding(self, tmp_path):
        (tmp_path / "table.csv").write_bytes("größe,class\n1,x\n2,y\n".encode("latin-1"))
        with pytest.raises(DataError, match=r"expected text in UTF-8 .* save it as that"):
            load(tmp_path / "table.csv")

    @pytest.mark.parametrize(
        ("labels", "classes"),
        [
            (("01", "1"), ("01", "1")),
            (("1_1", "11"), ("11", "1_1")),
            (("9007199254740993", "9007199254740992"), ("9007199254740992", "9007199254740993")),
            (("3.0", "3"), ("3",)),
            (("-2", "0.5"), ("-2", "0.5")),
        ],
    )
    def test_labels_that_differ_stay_apart(self, tmp_path, labels, classes):
        loaded = load_csv_text(tmp_path, "\n".join(["a,class", *[f"{i},{labels[i % 2]}" for i in range(10)]]))
        assert loaded.train.classes == classes

    def test_a_chosen_label_column_of_numbers(self, tmp_path):
        """A cell of the first sample that reads like the number of the column makes it no header."""
        loaded = load_csv_text(tmp_path, "\n".join(["2,1,5", "3,0,6"] * 5), "2")
        assert len(loaded.train) + len(loaded.test) == 10
        assert all_rows(loaded) == {"0": [[1, 1]] * 5, "1": [[0, 0]] * 5}

    def test_a_header_that_counts_with_a_chosen_label(self, tmp_path):
        loaded = load_csv_text(tmp_path, "\n".join(["0,1,2,3,4,5", *["9,1,2,2,2,2", "8,0,3,3,3,3"] * 5]), "1")
        assert loaded.columns.names == ("0", "2", "3", "4", "5")
        assert loaded.train.classes == ("0", "1")

    @pytest.mark.parametrize(
        ("first", "label", "expected"),
        [
            (
                "a,b,kind",
                "sort",
                "the header has no column 'sort' for the labels; expected a number from 1 to 3 or one",
            ),
            ("a,b,kind", "knid", r"no column 'knid' \(but 'kind'\) for .* from 1 to 3 or one of a, b, kind"),
            ("1,2,yes", "sort", "no header, so no column 'sort' for the labels; expected a number from 1 to 3\\."),
            ("1,2,yes", "4", "no header, so no column '4' for the labels; expected a number from 1 to 3\\."),
        ],
    )
    def test_no_such_label_column(self, tmp_path, first, label, expected):
        with pytest.raises(DataError, match=expected):
            load_csv_text(tmp_path, "\n".join([first, *["1,2,yes", "2,3,no"] * 5]), label)

    def test_words_that_may_be_labels(self, tmp_path):
        advice = r"encode words as numbers \(LGMClassifier takes text as it is\), or, if these are the labels, name"
        with pytest.raises(DataError, match=f"column kind: expected a number or nothing, found 'yes'; {advice}"):
            load_csv_text(tmp_path, "\n".join(["kind,a,b", *["yes,1,2", "no,2,3"] * 5]))

    @pytest.mark.parametrize("name", ["digits", "arrays.npz"])
    def test_only_a_table_has_a_label_column(self, tmp_path, name):
        np.savez(tmp_path / "arrays.npz", x=np.zeros((4, 2)), y=np.array([0, 1, 0, 1]))
        with pytest.raises(DataError, match="no table, so it has no column 'kind' of labels; leave that out"):
            load(name, tmp_path, label="kind")

    def test_no_header_and_words_as_labels(self, tmp_path):
        loaded = load_csv_text(tmp_path, "\n".join(["1,5,x", "2,5,y"] * 5))
        assert all_rows(loaded) == {"x": [[0, 0]] * 5, "y": [[1, 0]] * 5}

    @pytest.mark.parametrize("hole", ["", "NaN", " ", "?", "NA"])
    def test_missing_cells(self, tmp_path, hole):
        loaded = load_csv_text(tmp_path, "\n".join([f"0,{hole},0", "4,1,1", "2,3,1"] * 5))
        rows = all_rows(loaded)
        assert all(row[0] == 0 and math.isnan(row[1]) for row in rows["0"])
        assert sorted(rows["1"]) == [[0.5, 1]] * 5 + [[1, 0]] * 5

    def test_first_row_of_data_with_a_hole_is_no_header(self, tmp_path):
        loaded = load_csv_text(tmp_path, "\n".join([",1,0", "4,2,1"] * 5))
        assert len(loaded.train) + len(loaded.test) == 10

    def test_last_column_is_the_label_of_an_unnamed_table(self, tmp_path):
        loaded = load_csv_text(tmp_path, "\n".join(["p,q,r", *["1,2,10", "2,3,9"] * 5]))
        assert loaded.train.classes == ("9", "10")

    @pytest.mark.parametrize(
        ("header", "rows"),
        [
            ("0,1,y", ["5,1,0", "6,2,1"]),
            ("0,1,y", ["5,1,yes", "6,2,no"]),
            ("0,1,2", ["5,1,0", "6,2,1"]),
            ("1,2,3", ["5,1,0", "6,2,1"]),
            ("0,y", ["5,0", "6,1"]),
            ("2020,2021,y", ["5,1,0", "6,2,1"]),
            ("0,1,2,3,4,5", ["5,1,1,1,1,5", "6,2,2,2,2,4"]),
        ],
    )
    def test_a_header_of_numbers(self, tmp_path, header, rows):
        loaded = load_csv_text(tmp_path, "\n".join([header, *rows * 5]))
        assert len(loaded.train) + len(loaded.test) == 10
        assert len(loaded.train.classes) == 2
        assert loaded.columns.names == tuple(header.split(",")[:-1])

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            ("0,1,2", "5,1,0"),
            ("0,1,yes", "5,1,no"),
            ("0,1,2,3,4", "7,7,7,7,7"),
            ("0,1,2,3,4,5,yes", "7,7,7,7,7,7,no"),
            ("0.0,1.0,yes", "7,7,no"),
        ],
    )
    def test_a_first_sample_that_counts_is_no_header(self, tmp_path, first, second):
        loaded = load_csv_text(tmp_path, "\n".join([first, second] * 5))
        assert len(loaded.train) + len(loaded.test) == 10

    def test_a_class_of_one_sample_is_no_header(self, tmp_path):
        with pytest.warns(DataWarning, match="no other row has the label 'a'"):
            loaded = load_csv_text(tmp_path, "\n".join(["0,a", *["5,b", "6,c"] * 5]))
        assert len(loaded.train) + len(loaded.test) == 11

    def test_scale_comes_from_the_training_part_alone(self, tmp_path):
        targets = torch.arange(20) % 2
        values = torch.arange(20.0)
        train_rows, test_rows = holdout_indices(targets)
        values[test_rows[:2]] = torch.tensor([-1000.0, 1000.0])
        loaded = load_csv_text(tmp_path, "\n".join(f"{v},{t}" for v, t in zip(values, targets, strict=True)))
        low, high = values[train_rows].min(), values[train_rows].max()
        expected = ((values - low) / (high - low)).clamp(0, 1)[:, None]
        assert loaded.train.inputs.allclose(expected[train_rows])
        assert loaded.test.inputs.allclose(expected[test_rows])
        assert loaded.test.inputs[:2, 0].tolist() == [0, 1]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "two comma-separated columns, found 0"),
            ("1\n2\n", "two comma-separated columns, found 1"),
            ("a,label\n1,0\n", "two rows of data, found 1"),
            ("1,2,0\n1,0\n", "line 2: expected 3 cells, found 2"),
            ("a,label\n1,0\nred,1\n", "line 3, column a: expected a number or nothing, found 'red'"),
            ("a,label\n1,0\n1,\n", "line 3: the label is missing"),
            ("a,label\n1,0\ninf,1\n", "line 3, column a: expected a finite number, found inf"),
            ("label,a,class\n1,0,1\n0,0,1\n", "one column named label, target or class, found 2"),
            ("a,b,a,label\n1,0,1,0\n", "each name once in the header, found 'a' 2 times; rename"),
            ("0,1,\n1,0,1\n0,0,1\n", "line 1: the label is missing"),
            ("a,b,label\n" + "1,,0\n2,,1\n" * 5, "column b has no value"),
        ],
    )
    def test_bad_tables(self, tmp_path, text, message):
        with pytest.raises(DataError, match=message):
            load_csv_text(tmp_path, text)

    def test_not_text(self, tmp_path):
        (tmp_path / "bad.csv").write_bytes(b"\xff\xfe\x00")
        with pytest.raises(DataError, match=r"bad\.csv: expected text in UTF-8"):
            load(tmp_path / "bad.csv")


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
        with pytest.raises(DataError, match=r"found train/ alone; expected train/ and test/"):
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
        with pytest.raises(DataError, match=r"a.1\.png: expected 4x3 pixels.*found 5x5"):
            load(tmp_path)

    def test_unreadable_empty_and_deep(self, tmp_path):
        with pytest.raises(DataError, match="one subfolder of images per class"):
            load(tmp_path)
        (tmp_path / "a").mkdir()
        with pytest.raises(DataError, match="images of class 'a', found none"):
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
    with pytest.raises(DataError, match=r"data\.txt: expected a \.npz file, a \.csv file or a folder"):
        load(tmp_path / "data.txt")


class TestMissingValue:
    def test_in_a_table_it_has_no_part_in_the_range(self, tmp_path):
        path = tmp_path / "t.csv"
        path.write_text("a,b,label\n" + "1,-999,x\n3,5,y\n2,-999.0,x\n-999,4,y\n" * 3)
        loaded = load(path, missing_value=-999)
        assert loaded.columns.low == (1.0, 4.0)
        both = torch.cat([loaded.train.inputs, loaded.test.inputs])
        assert int(both.isnan().sum()) == 9

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
        (tmp_path / "t.csv").write_text("a,label\n" + "1,x\n2,y\n" * 3)
        write_idx_set(tmp_path)
        for path, value in ((tmp_path / "a.npz", 7), (tmp_path / "t.csv", -998), (tmp_path, 3)):
            with pytest.warns(DataWarning, match=f"{path.name}: nothing in it equals the missing value {value}"):
                load(path, missing_value=value)

    def test_as_a_label_is_noticed(self, tmp_path):
        (tmp_path / "t.csv").write_text("a,label\n" + "1,-999\n-999,5\n" * 3)
        with pytest.warns(DataWarning, match="-999 stands for missing, but as a label it is taken for a class"):
            assert load(tmp_path / "t.csv", missing_value=-999).train.classes == ("-999", "5")

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
