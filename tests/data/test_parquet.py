"""Parquet files as a stream: every row once in every epoch, whoever reads it, in little memory."""

import sys

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader

import torchlgm as lgm
from helpers.processes import run_code
from torchlgm import learn
from torchlgm.data import Columns, ParquetRows, load_table
from torchlgm.data.tables import read_parts
from torchlgm.errors import DataError
from torchlgm.learn.samples import as_labelled

pyarrow = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.parquet")
pytestmark = pytest.mark.usefixtures("single_precision")

ROWS = 103


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Rows whose column `at` tells their place."""
    path = tmp_path_factory.mktemp("parquet") / "a.parquet"
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"at": np.arange(ROWS), "size": draw.normal(size=ROWS), "is": draw.random(ROWS) < 0.5})
    frame.loc[5, "size"] = np.nan
    frame["y"] = (frame["at"] % 3).astype("Int64")
    frame.loc[7, "y"] = None
    frame.to_parquet(path, row_group_size=10)
    return path


def places(batches):
    return [round(at * (ROWS - 1)) for x, _ in batches for at in x[:, 0].tolist()]


def test_values(file):
    rows = ParquetRows(file, "y", shuffle=0, batch_size=1000)
    ((x, y),) = rows
    frame = pd.read_parquet(file)
    assert (len(rows), rows.columns.names, [*rows.classes]) == (ROWS, ("at", "size", "is"), [0, 1, 2])
    assert (x.dtype, y.dtype, x.shape) == (torch.float32, torch.int64, (ROWS, 3))
    assert places([(x, y)]) == list(range(ROWS))
    size = frame["size"]
    expected = ((size - size.min()) / (size.max() - size.min())).to_numpy(np.float32)
    np.testing.assert_allclose(x[:, 1], expected, rtol=1e-6)
    assert x[:, 2].tolist() == frame["is"].astype(float).tolist()
    assert y.tolist() == [-1 if i == 7 else i % 3 for i in range(ROWS)]


@pytest.mark.parametrize("processes", [1, 2, 4, 40])
@pytest.mark.parametrize("shuffle", [0, 25])
def test_every_row_once(file, processes, shuffle):
    rows, seen = ParquetRows(file, "y", shuffle=shuffle, batch_size=8), []
    for process in range(processes):
        rows.begin(3, process, processes)
        sizes = [len(x) for x, _ in rows]
        assert set(sizes[:-1]) <= {max(1, 8 // processes)}
        seen.append(places(rows))
    assert sorted(place for part in seen for place in part) == list(range(ROWS))
    assert max(map(len, seen)) - min(map(len, seen)) <= (17 if processes < 11 else 1), "about as many each"


def test_workers_share_the_rows(file):
    rows = ParquetRows(file, "y", batch_size=10)
    rows.begin(0, 1, 2)
    alone = places(rows)
    assert len(alone) < 60
    assert sorted(places(DataLoader(rows, batch_size=None, num_workers=2))) == sorted(alone)


def test_workers_that_live_on_read_another_order_in_every_epoch(file):
    rows = ParquetRows(file, "y", batch_size=20)
    loader = DataLoader(rows, batch_size=None, num_workers=1, persistent_workers=True)
    orders = []
    for epoch in (0, 1):
        rows.begin(epoch, 0, 2)
        orders.append(places(loader))
        assert orders[-1] == places(rows)
    assert orders[0] != orders[1]


def test_the_same_rows_to_train_and_to_validate(file):
    rows = ParquetRows(file, "y", batch_size=20)
    rows.begin(3, 1, 2)
    assert len(as_labelled("valid", rows)) == ROWS


def test_another_order_in_every_epoch(file):
    rows = ParquetRows(file, "y", shuffle=30, seed=1)
    first = places(rows)
    assert places(rows) == first != list(range(ROWS))
    rows.begin(1)
    assert sorted(places(rows)) == sorted(first)
    assert places(rows) != first
    assert places(ParquetRows(file, "y", shuffle=30, seed=2)) != first


def test_ranges_and_classes_of_other_rows(file, tmp_path):
    frame = pd.DataFrame({"at": [-5.0, 51.0, 400.0], "size": [0.0, None, 1.0], "y": ["b", "a", None]})
    for part in (0, 1):
        frame.to_parquet(tmp_path / f"{part}.parquet")
    columns = Columns(("at", "size"), (0.0, 0.0), (102.0, 2.0))
    rows = ParquetRows(tmp_path, "y", shuffle=0, columns=columns, classes=["a", "b"])
    ((x, y),) = rows
    torch.testing.assert_close(x[:3], torch.tensor([[0.0, 0.0], [0.5, torch.nan], [1.0, 0.5]]), equal_nan=True)
    assert y.tolist() == [1, 0, -1] * 2
    with pytest.raises(DataError, match="column 'y' has 'b', which is not among the classes"):
        list(ParquetRows(tmp_path, "y", columns=columns, classes=["a", "c"]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": "z"}, "there is no column 'z'"),
        ({"inputs": ["at", "name"]}, "column 'name' holds .*string, expected numbers or booleans"),
        ({"target": "name"}, "column 'name' holds .*; name its values by classes="),
        ({"target": "at", "inputs": ["size"]}, "column 'at' goes from -1"),
        ({"inputs": ["far"]}, "column 'far' has infinite or huge values"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"path": "nowhere.parquet"}, "nowhere.parquet: no such file"),
        ({"path": []}, "got none"),
        ({"path": None}, "expected a path or a list of them, got None"),
        ({"inputs": ["size", "y"]}, "and not the target 'y' among them"),
        ({"inputs": []}, "expected columns beside 'y', got none"),
        ({"inputs": "size"}, "expected a list of names"),
        ({"inputs": ["at"], "columns": Columns(("size",), (0.0,), (1.0,))}, "leave one of them out"),
        ({"target": "id", "inputs": ["at"]}, "'id' goes from 1e\\+09 to 3e\\+09, in 3 rows"),
        ({"classes": "01", "inputs": ["at"]}, "expected a list of the values"),
        ({"classes": [0, 0], "inputs": ["at"]}, "expected each value of column 'y' once"),
        ({"classes": ["a", "b"], "inputs": ["at"]}, "column 'y' holds int64, but classes= are"),
        ({"target": "void", "inputs": ["at"]}, "column 'void' has no values"),
    ],
)
def test_what_is_refused(tmp_path, change, message):
    far = [0.0, float("inf"), 1.0]
    frame = pd.DataFrame({"at": [-1, 0, 1], "size": [0.0, 1, 2], "name": ["a", "b", "c"], "far": far, "y": [0, 1, 1]})
    frame["id"], frame["void"] = [10**9, 2 * 10**9, 3 * 10**9], pd.array([None] * 3, "Int64")
    frame.to_parquet(tmp_path / "a.parquet")
    arguments = {"path": tmp_path / "a.parquet", "target": "y"} | change
    with pytest.raises(DataError, match=message):
        list(ParquetRows(arguments.pop("path"), arguments.pop("target"), **arguments))


def test_columns_of_other_kinds(tmp_path):
    """Nested ones beside the inputs, numbers without statistics, labels that are booleans, floats or categories."""
    import pyarrow as pa
    from pyarrow import parquet

    some, labels = np.arange(20.0), np.arange(20) % 2
    holes = np.where(some < 10, np.nan, some)
    columns = {"nested": [{"p": 1000.0, "q": -5.0}] * 20, "a": some, "b": holes, "c": some.astype(np.float16)}
    kinds = {"bool": (labels > 0, None), "float": (labels * 1.0, [0, 1])}
    kinds["category"] = pd.Series(["no", "yes"] * 10, dtype="category"), ["no", "yes"]
    for name, (y, classes) in kinds.items():
        parquet.write_table(pa.table({**columns, "y": pa.array(y)}), tmp_path / "a.parquet", row_group_size=10)
        rows = ParquetRows(tmp_path / "a.parquet", "y", inputs=["a", "b", "c"], shuffle=0, classes=classes)
        ((x, found),) = rows
        assert rows.columns.low == (0, 10, 0), name
        assert rows.columns.high == (19, 19, 19)
        torch.testing.assert_close(x[:, 0], torch.linspace(0, 1, 20))
        assert x[:, 1].isnan().tolist() == [True] * 10 + [False] * 10
        assert found.tolist() == labels.tolist()
        again = ParquetRows(tmp_path / "a.parquet", "y", shuffle=0, columns=rows.columns, classes=rows.classes)
        assert next(iter(again))[1].tolist() == labels.tolist()


def fitted(rows, valid, epochs=3, **options):
    graph = lgm.zoo.dense(3, [4], 3)
    predictor = lgm.Posterior(lgm.LGM(graph, generator=torch.Generator().manual_seed(0)), lgm.lbp(1))
    settings = learn.Settings(epochs=epochs, visible=0.6, scheduler=None)
    result = learn.fit(predictor, rows, valid, settings=settings, reporters=[], **options)
    return torch.cat([p.detach().flatten() for p in predictor.parameters()]), result


def test_resumed_to_the_same_weights(file, tmp_path):
    rows, valid = (ParquetRows(file, "y", batch_size=10, shuffle=shuffle) for shuffle in (20, 0))
    whole, result = fitted(rows, valid)
    fitted(rows, valid, epochs=1, folder=tmp_path)
    resumed, again = fitted(rows, valid, folder=tmp_path, resume=True)
    assert torch.equal(resumed, whole)
    assert len(again.history) == len(result.history) == 3


CAPPED = """
import resource, sys
from pathlib import Path
import pyarrow.parquet as pq, torch, torchlgm as lgm
from torchlgm import data, learn

torch.set_num_threads(1)
small, large, megabytes = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
names = pq.read_schema(large).names

def train(path):
    rows = data.ParquetRows(path, "y", batch_size=2000, shuffle=20_000)
    model = lgm.LGM(lgm.zoo.dense(len(rows.columns.names), [2], 2), generator=torch.Generator().manual_seed(0))
    valid = next(iter(rows))
    settings = learn.Settings(epochs=1, learning_rate=0.05)
    return len(rows), learn.fit(lgm.Posterior(model, lgm.lbp(1)), rows, valid, settings=settings)

train(small)  # libraries are loaded, threads have started
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
cap = 1024 * int(status["VmData"].split()[0]) + megabytes * 2**20
resource.setrlimit(resource.RLIMIT_DATA, (cap, cap))
rows, result = train(large)
print(rows, result.best["valid_accuracy"])
try:
    x = data.load_table(large)
except (MemoryError, data.tables.DataError):
    print("too large to load")
"""


def write(path, rows):
    """Twenty columns of random numbers, which cannot be packed."""
    import pyarrow as pa
    from pyarrow import parquet

    draw = np.random.default_rng(0)
    schema = pa.schema([*[(f"x{i}", pa.float32()) for i in range(20)], ("y", pa.int8())])
    with parquet.ParquetWriter(path, schema, compression="none") as file:
        for start in range(0, rows, 50_000):
            x = draw.random((min(50_000, rows - start), 20), dtype=np.float32)
            file.write_table(pa.table([*x.T.copy(), (x[:, 0] > 0.5).astype(np.int8)], schema=schema))


def test_a_block_at_a_time_is_in_memory(tmp_path):
    import pyarrow as pa

    write(tmp_path / "a.parquet", 400_000)
    before, most = pa.total_allocated_bytes(), 0
    for _ in ParquetRows(tmp_path / "a.parquet", "y", batch_size=5000, shuffle=10_000):
        most = max(most, pa.total_allocated_bytes() - before)
    assert 0 < most < 10_000_000 < (tmp_path / "a.parquet").stat().st_size / 3


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits memory")
def test_more_data_than_memory(tmp_path):
    """Training may take 100 MB more than with a small file, but the rows have 640 MB, in the file and in memory."""
    small, large = tmp_path / "small.parquet", tmp_path / "large.parquet"
    write(small, 40_000)
    write(large, 8_000_000)
    assert large.stat().st_size > 640_000_000
    done = run_code(CAPPED, small, large, 100)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.split()[0] == "8000000"
    assert float(first.split()[1]) > 0.9
    assert second == "too large to load"


def test_a_damaged_group_of_rows_is_refused_at_once(tmp_path):
    """Before pyarrow is asked for its statistics: that can end the process."""
    file = tmp_path / "a.parquet"
    pd.DataFrame({"x": np.arange(30.0), "y": np.arange(30) % 3}).to_parquet(file, row_group_size=10)
    about = pyarrow.parquet.read_metadata(file)
    content = bytearray(file.read_bytes())
    page = about.row_group(2).column(0).dictionary_page_offset
    content[page : page + 20] = b"\xff" * 20
    file.write_bytes(content)
    assert about.row_group(2).column(0).statistics.max == 29.0
    with pytest.raises(DataError, match="not a readable table"):
        ParquetRows(file, "y")


@pytest.mark.parametrize("noted", [b"{nonsense", b"\xfd\xff"])
def test_what_pandas_has_noted_may_be_damaged(tmp_path, noted):
    file = tmp_path / "a.parquet"
    table = pyarrow.table({"x": np.arange(3.0), "y": [0, 1, 0]})
    pyarrow.parquet.write_table(table.replace_schema_metadata({b"pandas": noted}), file)
    for read in (lambda: list(read_parts(file, 2)), lambda: load_table(file)):
        with pytest.raises(DataError, match="not a readable table"):
            read()


def test_types_that_pandas_has_noted_may_be_unknown(tmp_path):
    file = tmp_path / "a.parquet"
    pd.DataFrame({"x": np.arange(3.0), "y": [0, 1, 0]}).to_parquet(file)
    table = pyarrow.parquet.read_table(file)
    index = b'"index_columns": [{"kind": "range", "name": null, "start": 0, "stop": 3, "step": 1}]'
    noted = table.schema.metadata[b"pandas"]
    assert index in noted
    columns = b'"index_columns": ["x"]'
    damaged = noted.replace(index, columns).replace(b'"numpy_type": "float64"', b'"numpy_type": "float66"')
    pyarrow.parquet.write_table(table.replace_schema_metadata({b"pandas": damaged}), file)
    for read in (lambda: list(read_parts(file, 2)), lambda: load_table(file)):
        with pytest.raises(DataError, match="not a readable table"):
            read()
