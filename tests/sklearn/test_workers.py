"""Workers of Dask and of Spark give the answers that the classifier gives alone."""

import sys

import numpy as np
import pandas as pd
import pytest

from torchlgm import LGMClassifier

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("single_precision")]
ROWS, PARTS = 1_000_000, 20


@pytest.fixture(scope="module")
def table():
    draw = np.random.default_rng(0)
    X = pd.DataFrame(draw.normal(size=(ROWS, 6)).astype("float32"), columns=list("abcdef"))
    return X.mask(draw.random(X.shape) < 0.2)


@pytest.fixture
def answers(table):
    """A function of a part of the table."""
    X = table[:2000]
    classifier = LGMClassifier(hidden=8, epochs=3, n_members=2, random_state=0).fit(X, X["a"] + X["b"].fillna(0) > 0)
    return lambda part: pd.DataFrame(classifier.predict_proba(part), index=part.index, columns=["no", "yes"])


@pytest.fixture
def alone(table, answers):
    return pd.concat([answers(table[i : i + ROWS // PARTS]) for i in range(0, ROWS, ROWS // PARTS)])


def test_two_workers_of_dask(table, answers, alone, tmp_path):
    distributed, frames = pytest.importorskip("dask.distributed"), pytest.importorskip("dask.dataframe")
    where = {"dashboard_address": None, "local_directory": str(tmp_path)}
    with distributed.LocalCluster(2, threads_per_worker=1, **where) as cluster, distributed.Client(cluster):
        parts = frames.from_pandas(table, npartitions=PARTS)
        found = parts.map_partitions(answers, meta={"no": "f8", "yes": "f8"}).compute()
    pd.testing.assert_frame_equal(found, alone, atol=1e-12)


def test_two_workers_of_spark(table, answers, alone, tmp_path, monkeypatch):
    sql = pytest.importorskip("pyspark.sql")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    table.reset_index(names="row").to_parquet(tmp_path / "table.parquet", row_group_size=ROWS // PARTS)

    def answer(parts):
        for part in parts:
            yield answers(part.drop(columns="row")).assign(row=part["row"])

    builder = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.local.dir", str(tmp_path)).getOrCreate()
    try:
        rows = spark.read.parquet(str(tmp_path / "table.parquet"))
        rows.mapInPandas(answer, "no double, yes double, row long").write.parquet(str(tmp_path / "answers"))
    finally:
        spark.stop()
    found = pd.read_parquet(tmp_path / "answers").set_index("row").sort_index()
    pd.testing.assert_frame_equal(found, alone, atol=1e-12, check_names=False)
