"""`torchlgm bench`: what can be measured here is, and the rest says what it needs."""

import json

import pytest
import torch

from torchlgm.cli import bench
from torchlgm.cli.report import print_bench

pytestmark = pytest.mark.usefixtures("single_precision")


@pytest.fixture
def at_once(monkeypatch):
    """No repetitions beyond the fewest."""
    monkeypatch.setattr("torchlgm.cli.bench.bench.__defaults__", ("auto", 20, "trw", "sequential", 0.0))


@pytest.mark.usefixtures("at_once")
def test_the_table_on_a_cpu(torchlgm):
    code, out, _ = torchlgm("bench", "--device", "cpu", "--batch-size", 2, "--json")
    assert code == 0
    found = json.loads(out)
    assert found["machine"]["torch"] == torch.__version__
    assert found["machine"]["method"] == "trw, sequential, 5 iterations"
    measured = [row for row in found["rows"] if row["needs"] is None]
    assert [row["model"] for row in measured] == ["dense", "conv", "local"] * 2
    for row in measured:
        assert row["ours"] > 0
        assert row["theirs"] > 0
        assert row["ratio"] == row["ours"] / row["theirs"]
    lacking = {row["work"].split(", batch")[0]: row["needs"] for row in found["rows"] if row["needs"]}
    assert set(lacking) == {"train, captured", "predict, captured", "10 models in one", "peak memory"}
    assert set(lacking.values()) == {"needs a GPU"}


@pytest.mark.usefixtures("at_once")
def test_what_a_person_reads(torchlgm, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = torchlgm("bench", "--device", "cpu", "--batch-size", 2, "--method", "lbp", "--schedule", "sweep")
    assert code == 0
    assert "lbp, sweep, 1 iteration" in out
    assert "10 models in one, batch 2 (dense, local; rival: one model): needs a GPU" in out
    assert "…" not in out
    measured, lacking = out.split("Not measured:")
    assert "captured" not in measured
    assert "benchmarks/" not in lacking.replace("docs/benchmarks.md of the repository", "")


def test_wide_figures_fit(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    rows = [bench.Row("predict, captured, batch 4096", "local", "network", 1234.56, 0.1234)]
    print_bench({"on": "a GPU"}, rows)
    out = capsys.readouterr().out
    assert "1,235 ms" in out
    assert "0.123 ms" in out
    assert "…" not in out
    assert "Not measured" not in out


@pytest.mark.gpu
@pytest.mark.slow
def test_the_table_on_a_gpu():
    _, rows = bench.bench("cuda", budget=0.1)
    assert all(row.needs is None and row.ratio for row in rows)
