"""Tables that are answered in parts: the same answers, in memory that does not grow with the table."""

import sys

import pandas as pd
import pytest

from helpers.processes import python
from torchlgm.cli import streaming

ROWS = 300_000
MEMORY = """
import resource, sys
from pathlib import Path
from torchlgm.cli import console
from torchlgm.cli.main import app

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

run, small, large, out = map(Path, sys.argv[1:])
assert console.run(app, ["predict", str(run), str(small), "--out", str(out / f"a{small.suffix}")]) == 0
before = peak()
assert console.run(app, ["predict", str(run), str(large), "--out", str(out / f"b{large.suffix}")]) == 0
print(peak() - before)
"""


@pytest.mark.parametrize("rows", [7, 10_000])
def test_parts_have_the_answers_of_the_whole(torchlgm, trained, tmp_path, monkeypatch, rows):
    monkeypatch.setattr(streaming, "ROWS", rows)
    code, whole, _ = torchlgm("predict", trained / "table", trained / "table.csv")
    assert code == 0
    code, _, said = torchlgm("predict", trained / "table", trained / "table.csv", "--out", tmp_path / "out.csv")
    assert (code, (tmp_path / "out.csv").read_text()) == (0, whole)
    assert "Probabilities of 60 samples are in" in said


@pytest.mark.parametrize("rows", [7, 10_000])
def test_parquet_in_and_out(torchlgm, trained, tmp_path, monkeypatch, rows):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(streaming, "ROWS", rows)
    pd.read_csv(trained / "table.csv").to_parquet(tmp_path / "in.parquet")
    code, whole, _ = torchlgm("predict", trained / "table", trained / "table.csv")
    code, _, _ = torchlgm("predict", trained / "table", tmp_path / "in.parquet", "--out", tmp_path / "out.parquet")
    assert code == 0
    answers = pd.read_parquet(tmp_path / "out.parquet")
    lines = [line.split(",") for line in whole.splitlines()]
    assert answers.columns.tolist() == lines[0]
    assert answers["class"].tolist() == [line[1] for line in lines[1:]]
    for i, name in enumerate(lines[0][2:], 2):
        assert answers[name].tolist() == pytest.approx([float(line[i]) for line in lines[1:]], abs=1e-5)


def test_a_failure_leaves_nothing(complaint, trained, tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "ROWS", 20)
    lines = (trained / "table.csv").read_text().splitlines()
    (tmp_path / "in.csv").write_text("\n".join([*lines[:50], "1,2,3,4,5,6,7"]))
    said = complaint("predict", trained / "table", tmp_path / "in.csv", "--out", tmp_path / "out.csv")
    assert "rows differ in their number of cells" in said
    assert {path.name for path in tmp_path.iterdir()} == {"in.csv"}
    (tmp_path / "empty.csv").write_text(lines[0] + "\n")
    assert "at least one row" in complaint(
        "predict", trained / "table", tmp_path / "empty.csv", "--out", tmp_path / "o.csv"
    )


def test_images_are_not_written_as_parquet(complaint, trained, tmp_path):
    said = complaint("predict", trained / "halves", trained / "halves.npz", "--out", tmp_path / "out.parquet")
    assert ".parquet is for predictions of a table" in said


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="counts memory in kilobytes")
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_memory_does_not_grow_with_the_table(trained, tmp_path, suffix):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    frame = pd.read_csv(trained / "table.csv")
    small, large = (tmp_path / f"{name}{suffix}" for name in ("small", "large"))
    for path, rows in ((small, ROWS // 10), (large, ROWS)):
        part = pd.concat([frame] * (rows // len(frame)))
        part.to_parquet(path) if suffix == ".parquet" else part.to_csv(path, index=False)
    done = python("-c", MEMORY, trained / "table", small, large, tmp_path)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 40, "megabytes more for ten times the rows"
