"""Tables in files: what pandas reads, which column has the labels, and what is missing."""

import sys
import zipfile

import numpy as np
import pandas as pd
import pytest

from torchlgm.data import load_table
from torchlgm.data.tables import is_table, read_cells, read_frame
from torchlgm.errors import DataError, DataWarning, MissingExtraError

ROWS = ["5.1,red,a", "4.9,,b", "NA,blue,a", "6.0,?,b"]


@pytest.fixture
def table(tmp_path):
    def write(text, name="table.csv"):
        (tmp_path / name).write_text(text if isinstance(text, str) else "\n".join(text), encoding="utf-8")
        return tmp_path / name

    return write


def test_numbers_text_and_holes(table):
    loaded = load_table(table(["length,colour,kind", *ROWS]))
    assert (loaded.target, loaded.unlabelled) == ("kind", 0)
    assert loaded.X.columns.tolist() == ["length", "colour"]
    np.testing.assert_array_equal(loaded.X["length"], [5.1, 4.9, np.nan, 6.0])
    assert loaded.X["colour"].fillna("-").tolist() == ["red", "-", "blue", "-"]
    assert loaded.y.tolist() == ["a", "b", "a", "b"]


def test_the_target_and_columns_to_leave_out(table):
    path = table(["id,kind,length,day of week,note", *[f"{i},{'ab'[i % 2]},{i / 2},Mon,x{i}" for i in range(6)]])
    loaded = load_table(path, target="kind", drop=["id,note", "day of week"])
    assert loaded.X.columns.tolist() == ["length"]
    assert loaded.y.tolist() == list("ababab")
    with pytest.raises(DataError, match=r"there is no column 'kinds'; did you mean 'kind'\?"):
        load_table(path, target="kinds")
    with pytest.raises(DataError, match="there is no column 'zzz'; expected one of id, kind, length"):
        load_table(path, drop=["zzz"])
    with pytest.raises(DataError, match="column 'kind' is dropped, so it cannot be the target"):
        load_table(path, target="kind", drop=["kind"])
    with pytest.raises(DataError, match="at least two columns"):
        load_table(path, drop=["id,kind,length,note"])


def test_rows_without_a_label_are_left_out(table):
    loaded = load_table(table("a,b,class\n1,2,0\n2,3,\n3,4,1\n4,5,0\n"))
    assert loaded.unlabelled == 1
    assert loaded.X["a"].tolist() == [1, 3, 4]
    assert loaded.X.index.tolist() == [0, 1, 2]
    assert loaded.y.tolist() == [0, 1, 0]
    assert loaded.y.dtype.kind == "i"
    with pytest.raises(DataError, match="no row has a label in column 'class'"):
        load_table(table("a,class\n1,\n2,\n"))


def test_without_a_header(table):
    loaded = load_table(table("1.5,2,x\n3,4,y\n"), header=False)
    assert loaded.X.columns.tolist() == ["1", "2"]
    assert loaded.target == "3"
    assert load_table(table("1.5,2,x\n3,4,y\n"), target="2", header=False).X.columns.tolist() == ["1", "3"]


def test_a_header_that_looks_like_data_is_noticed(table):
    with pytest.warns(DataWarning, match=r"taken for the names of the columns, but holds numbers .*\(--no-header\)"):
        load_table(table("5.1,3.5,a\n4.9,3.0,b\n5,3.1,a\n"))
    assert load_table(table("0,1,class\n5.1,3.5,a\n4.9,3.0,b\n")).X.columns.tolist() == ["0", "1"]  # as pandas numbers


def test_numbers_that_stand_for_missing(table):
    path = table("a,b,class\n-999,1,x\n2,-999,y\n3,4,x\n")
    assert load_table(path, missing_value=-999).X.isna().to_numpy().sum() == 2
    with pytest.warns(DataWarning, match="nothing in it equals the missing value -99"):
        load_table(path, missing_value=-99)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "a;b;class\n1,5;x y;p\n2,5;z;q\n"),
        ("t.csv", "a|b|class\n1.5|x y|p\n2.5|z|q\n"),
        ("t.tsv", "a\tb\tclass\n1.5\tx y\tp\n2.5\tz\tq\n"),
        ("t.csv", '\ufeff"a", "b" ,class\n1.5,"x y",p\n2.5,z,q\n'),
    ],
)
def test_separators(table, name, text):
    loaded = load_table(table(text, name))
    assert loaded.X.iloc[:, 0].tolist() == [1.5, 2.5]
    assert loaded.X.iloc[:, 1].tolist() == ["x y", "z"]
    assert loaded.y.tolist() == ["p", "q"]


def test_an_index_that_pandas_wrote_is_left_out(tmp_path):
    pd.DataFrame({"a": [1, 2, 3], "class": list("xyx")}).to_csv(tmp_path / "t.csv")
    with pytest.warns(DataWarning, match="the first column has no name and numbers the rows, so it is left out"):
        assert load_table(tmp_path / "t.csv").X.columns.tolist() == ["a"]
    with pytest.warns(DataWarning):
        assert read_cells(tmp_path / "t.csv").columns.tolist() == ["a", "class"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a table, got an empty file"),
        ("a,b\n", "expected at least one row below the header"),
        ("a,b\n1,2\n1,2,3\n", "rows differ in their number of cells"),
        ("a\n1\n", "expected at least two columns"),
    ],
)
def test_wrong_tables(table, text, message):
    with pytest.raises(DataError, match=rf"table\.csv: {message}"):
        load_table(table(text))


def test_files_that_are_no_tables(tmp_path, table):
    with pytest.raises(DataError, match="no such file"):
        load_table(tmp_path / "none.csv")
    with pytest.raises(DataError, match=r"expected a name that ends in \.csv, \.tsv"):
        load_table(table("a,b\n1,2\n", "t.txt"))
    (tmp_path / "bad.csv").write_bytes("größe,class\n1,x\n2,y\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"bad\.csv: expected text in UTF-8"):
        load_table(tmp_path / "bad.csv")
    assert [is_table(tmp_path / name) for name in ("a.csv", "a.PARQUET", "a.npz", "a")] == [True, True, False, False]


def test_measurements_are_no_labels(table):
    with pytest.raises(DataError, match=r"the labels in column 'y' are 20 different numbers in 20 rows, such as 0.37"):
        load_table(table(["a,y", *[f"1,{0.37 + i}" for i in range(20)]]))
    with pytest.warns(DataWarning, match="every row has a label of its own, such as c0; are these the labels"):
        load_table(table(["a,y", *[f"1,c{i}" for i in range(20)]]))


@pytest.mark.parametrize(("name", "library"), [("t.parquet", "pyarrow"), ("t.xlsx", "openpyxl")])
def test_formats_that_need_another_library(tmp_path, monkeypatch, name, library):
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")
    monkeypatch.setitem(sys.modules, library, None)
    if library == "pyarrow":
        monkeypatch.setitem(sys.modules, "fastparquet", None)
    with pytest.raises(MissingExtraError, match=rf"pandas needs {library} to read this; pip install"):
        read_frame(tmp_path / name)


def test_the_text_of_cells_is_kept(table):
    cells = read_cells(table('a,b\n1.50,"x, y"\n?,NA\n'))
    assert cells.to_numpy().tolist() == [["1.50", "x, y"], ["?", "NA"]]
