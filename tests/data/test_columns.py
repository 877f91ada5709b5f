"""Tables without labels, read in the way that a table with labels was."""

import math

import pytest
import torch

from torchlgm.data import Columns
from torchlgm.data.tables import load_csv, read_table
from torchlgm.errors import DataError, DataWarning

COLUMNS = Columns(("height", "weight", "same"), (0.0, -1.0, 5.0), (10.0, 3.0, 5.0))


def columns(*names, label=None):
    return Columns(names, (0.0,) * len(names), (1.0,) * len(names), label)


def test_scale_and_back():
    values = torch.tensor([[0.0, -1.0, 5.0], [2.5, 3.0, 5.0], [math.nan, 1.0, 5.0]], dtype=torch.float64)
    scaled = COLUMNS.scale(values)
    assert scaled.dtype == torch.float32
    expected = torch.tensor([[0, 0, 0], [0.25, 1, 0], [math.nan, 0.5, 0]], dtype=torch.float32)
    torch.testing.assert_close(scaled, expected, equal_nan=True)
    torch.testing.assert_close(COLUMNS.unscale(scaled), values, equal_nan=True)


def test_what_is_out_of_range_is_cut_off():
    assert COLUMNS.scale(torch.tensor([[-5.0, 99.0, 7.0]])).tolist() == [[0, 1, 1]]


def test_columns_without_a_range_are_refused(tmp_path):
    path = tmp_path / "table.csv"
    for rows, message in (
        ("0,,x\n1,,y\n", r"column b has no value in the training part \(16 of 20 rows\); remove the column"),
        ("0,1e308,x\n1,-1e308,y\n", r"column b reaches from -1e\+308 to 1e\+308; scale it down"),
    ):
        path.write_text("a,b,class\n" + rows * 10)
        with pytest.raises(DataError, match=message):
            load_csv(path)


def test_a_column_with_values_in_the_test_part_alone(tmp_path):
    path = tmp_path / "table.csv"
    messages = []
    for filled in range(3):
        rows = [f"{row},{row if row == filled else ''},{'xxy'[row]}" for row in range(3)]
        path.write_text("\n".join(["a,b,class", *rows]))
        try:
            load_csv(path)
        except DataError as error:
            messages.append(str(error))
    assert len(messages) == 1
    assert messages[0].endswith(
        "b has no value in the training part (2 of 3 rows); add rows in which it has one, or remove it."
    )


def test_a_table_tells_its_columns_and_takes_those_of_another(tmp_path):
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    first.write_text("a,b,class\n" + "0,-2,x\n4,2,y\n" * 5)
    second.write_text("b,a,class\n" + "0,1,x\n2,2,y\n" * 5)
    found = load_csv(first).columns
    assert found == Columns(("a", "b"), (0.0, -2.0), (4.0, 2.0), "class")
    again = load_csv(second, found)
    assert again.columns == found
    rows = {tuple(row) for part in (again.train, again.test) for row in part.inputs.tolist()}
    assert rows == {(0.25, 0.5), (0.5, 1.0)}


def test_other_columns_do_not_matter_beside_those_of_another_table(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("who,weight,same,height,class\n" + "ann,1,5,2.5,x\nbob,3,5,10,y\n" * 5)
    assert load_csv(path, COLUMNS).train.inputs.unique(dim=0).tolist() == [[0.25, 0.5, 0], [1, 1, 0]]


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("", r"expected 3 columns \(height, weight, same\) beside the label or a header .* found 2 columns"),
        ("height,weight,class\n", "the header has no same; found height, weight beside the label"),
        ("height,same,weight\n", "the header has no weight; found height, same beside the label"),
    ],
)
def test_a_table_without_the_columns_of_another(tmp_path, header, message):
    path = tmp_path / "table.csv"
    path.write_text(header + "0,1,x\n4,2,y\n" * 5)
    with pytest.raises(DataError, match=message):
        load_csv(path, COLUMNS)


def test_a_renamed_column_is_not_taken_by_its_place(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("height,mass,same,class\n" + "0,1,5,x\n4,2,5,y\n" * 5)
    with pytest.raises(DataError, match="header has no weight; found height, mass, same beside the label"):
        load_csv(path, COLUMNS)


def test_names_that_are_numbers_are_recognised_in_another_table(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("1,0,2\n" + "3,1,0\n3,0,2\n" * 5)
    loaded = load_csv(path, Columns(("0", "1"), (0.0, 0.0), (4.0, 4.0)))
    assert loaded.train.classes == ("0", "2")
    assert loaded.train.inputs.unique(dim=0).tolist() == [[0, 0.75], [0.25, 0.75]]


@pytest.mark.parametrize(
    "text",
    [
        "height,weight\n1,\n2,3\n",
        "weight,comment,height\n,7,1\n3,,2\n",
        "1,?\n2,3\n",
    ],
)
def test_columns_by_name_or_by_place(tmp_path, text):
    path = tmp_path / "table.csv"
    path.write_text(text)
    values = read_table(path, columns("height", "weight")).values
    torch.testing.assert_close(values, torch.tensor([[1, math.nan], [2, 3]], dtype=torch.float64), equal_nan=True)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("1", "2"), "tall,heavy\n5,6\n"),
        (("1", "2"), "5,6\n"),
        (("0", "1"), "0,1\n5,6\n"),
        (("0", "1"), "1,0\n6,5\n"),
        (("0", "1"), "id,1,0,y\na,6,5,b\n"),
        (("0", "1"), "5,6\n"),
    ],
)
def test_columns_with_numbers_for_names(tmp_path, names, text):
    path = tmp_path / "table.csv"
    path.write_text(text)
    assert read_table(path, columns(*names)).values.tolist() == [[5, 6]]


@pytest.mark.parametrize("text", ["1,2\n5,6\n", "2,1\n6,5\n", "2,y,1\n6,a,5\n", "5,6\n"])
def test_names_that_count_are_names_if_there_was_a_header(tmp_path, text):
    path = tmp_path / "table.csv"
    path.write_text(text)
    assert read_table(path, columns("1", "2", label="y")).values.tolist() == [[5, 6]]


def test_labels_are_found_by_the_name_that_they_had(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,kind,b,class\n" + "0,x,1,p\n1,y,0,q\n" * 5)
    assert load_csv(path, columns("a", "b", label="kind")).train.classes == ("x", "y")
    assert load_csv(path, columns("a", "b", label="kind"), label="class").train.classes == ("p", "q")
    with pytest.raises(DataError, match="no column 'sort', which held the labels in the training; if another"):
        load_csv(path, columns("a", "b", label="sort"))


def test_few_values_far_outside_are_no_other_unit():
    values = torch.linspace(0, 1, 100).reshape(-1, 1).repeat(1, 2).double()
    values[:3, 0] = torch.tensor([9.0, 10.0, 11.0])
    columns("a", "b").warn_of_other_units(values)
    values[:6, 0] = torch.arange(9.0, 15.0)
    with pytest.warns(DataWarning, match="6 of 200 values lie far outside"):
        columns("a", "b").warn_of_other_units(values)


def test_values_in_other_units():
    known = columns("a", "b")
    known.warn_of_other_units(torch.tensor([[-0.9, 1.9], [math.nan, 0.5]]))
    with pytest.warns(DataWarning, match=r"2 of 4 values .* most in column b \(0 to 1 in the training\)"):
        known.warn_of_other_units(torch.tensor([[0.5, 300.0], [math.nan, -2.0]]))


def test_one_number_far_outside_may_stand_for_missing():
    with pytest.warns(
        DataWarning, match=r"all of them are -999: if that stands for missing, say so \(--missing-value\)"
    ):
        columns("a", "b").warn_of_other_units(torch.tensor([[0.5, -999.0], [-999.0, 0.1]]))


@pytest.mark.parametrize("start", [0, 1])
def test_a_long_count_is_a_header_and_a_short_one_a_sample(tmp_path, start):
    path = tmp_path / "table.csv"
    for width, rows in ((2, 2), (5, 2), (6, 1), (9, 1)):
        count = ",".join(str(start + i) for i in range(width))
        path.write_text(f"{count}\n{'7,' * (width - 1)}7\n")
        values = read_table(path, columns(*(str(i + 1) for i in range(width)))).values
        assert values.shape == (rows, width)


def test_the_text_of_a_table_is_kept(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text('who, weight,height\n"Ann, B.", 3.0 ,1e0\n')
    table = read_table(path, columns("height", "weight"))
    assert table.header == ["who", " weight", "height"]
    assert table.rows == [["Ann, B.", " 3.0 ", "1e0"]]
    assert table.places == [2, 1]
    assert table.values.tolist() == [[1, 3]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at least one row of data"),
        ("height,weight\n", "at least one row of data"),
        ("1,2,3\n", r"expected 2 columns \(height, weight\) or a header with these names, found 3 columns"),
        ("id,height\n1,2\n", "expected columns named height, weight, but the header has no weight; found id, height"),
        ("height,mass,class\n1,2,3\n", "the header has no weight; found height, mass, class"),
        ("tall,heavy\n1,2\n", "the header has no height, weight; found tall, heavy"),
        ("height,weight,height\n1,2,3\n", "each name once in the header, found 'height' 2 times"),
        (
            "height,weight\n1,tall\n",
            r"line 2, column weight: expected a number or nothing, found 'tall'; encode words as numbers\.",
        ),
    ],
)
def test_wrong_tables(tmp_path, text, message):
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_table(path, columns("height", "weight"))
