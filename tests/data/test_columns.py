"""Tables without labels, read in the way that a table with labels was."""

import math

import pytest
import torch

from torchlgm.data import Columns
from torchlgm.data.tables import load_csv, read_table
from torchlgm.errors import DataError

COLUMNS = Columns(("height", "weight", "same"), (0.0, -1.0, 5.0), (10.0, 3.0, 5.0))


def test_scale_and_back():
    values = torch.tensor([[0.0, -1.0, 5.0], [2.5, 3.0, 5.0], [math.nan, 1.0, 5.0]], dtype=torch.float64)
    scaled = COLUMNS.scale(values)
    assert scaled.dtype == torch.float32
    expected = torch.tensor([[0, 0, 0], [0.25, 1, 0], [math.nan, 0.5, 0]], dtype=torch.float32)
    torch.testing.assert_close(scaled, expected, equal_nan=True)
    torch.testing.assert_close(COLUMNS.unscale(scaled), values, equal_nan=True)


def test_what_is_out_of_range_is_cut_off():
    assert COLUMNS.scale(torch.tensor([[-5.0, 99.0, 7.0]])).tolist() == [[0, 1, 1]]


def test_a_table_tells_its_columns_and_takes_those_of_another(tmp_path):
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    first.write_text("a,b,class\n" + "0,-2,x\n4,2,y\n" * 5)
    second.write_text("b,a,class\n" + "0,1,x\n2,2,y\n" * 5)
    columns = load_csv(first).columns
    assert columns == Columns(("a", "b"), (0.0, -2.0), (4.0, 2.0))
    again = load_csv(second, columns)
    assert again.columns == columns
    rows = {tuple(row) for part in (again.train, again.test) for row in part.inputs.tolist()}
    assert rows == {(0.25, 0.5), (0.5, 1.0)}


def test_another_number_of_columns(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a,class\n" + "0,x\n4,y\n" * 5)
    with pytest.raises(DataError, match="expected 3 input columns and a label, found 1"):
        load_csv(path, COLUMNS)


@pytest.mark.parametrize(
    "text",
    [
        "height,weight\n1,\n2,3\n",
        "weight,comment,height\n,7,1\n3,,2\n",
        "1,?\n2,3\n",
        "tall,heavy\n1,nan\n2,3\n",
    ],
)
def test_columns_by_name_or_by_place(tmp_path, text):
    path = tmp_path / "table.csv"
    path.write_text(text)
    values = read_table(path, ("height", "weight"))
    torch.testing.assert_close(values, torch.tensor([[1, math.nan], [2, 3]], dtype=torch.float64), equal_nan=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at least one row of data"),
        ("height,weight\n", "at least one row of data"),
        ("1,2,3\n", r"expected 2 columns \(height, weight\) or a header with these names, found 3 columns"),
        ("height,weight\n1,tall\n", "line 2: expected a number or nothing, found 'tall'"),
    ],
)
def test_wrong_tables(tmp_path, text, message):
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_table(path, ("height", "weight"))
