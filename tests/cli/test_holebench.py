"""HoleBench: it goes on where it was killed, holes are what they are called, the page says what was measured."""

import json
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from filelock import FileLock
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("single_precision")


@pytest.fixture(autouse=True)
def _scripts(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))


@pytest.fixture
def folder(tmp_path):
    """Two tables, one with names and with entries that are missing anyway."""
    folder = tmp_path / "tables"
    folder.mkdir()
    X, y = load_iris(return_X_y=True)
    flowers = pd.DataFrame(X[::3], columns=["a", "b", "c [cm]", "d"]).assign(target=np.array(["x", "y", "z"])[y[::3]])
    flowers.to_csv(folder / "flowers.csv", index=False)
    mixed = flowers.assign(shape=np.where(X[::3, 2] > 4, "round", "flat"), code=y[::3] + 7)
    mixed.loc[::5, ["a", "shape"]] = np.nan
    mixed.to_csv(folder / "mixed.csv", index=False)
    (folder / "kinds.json").write_text(json.dumps({"mixed": {"code": "cat", "target": "cat"}}))
    return folder


@pytest.fixture
def fits():
    """Quick methods instead of the real ones; the list of what was fitted."""
    from holes import methods

    found = []

    def quick(name, blind):
        def fit(X, y, seed):
            found.append(name)
            numbers = X.select_dtypes("number").columns
            centre = X[numbers].mean()
            model = LogisticRegression(max_iter=1000).fit(X[numbers].fillna(centre) * (0 if blind else 1), y)
            return lambda Z: model.predict_proba(Z[numbers].fillna(centre) * (0 if blind else 1))

        return fit

    real = dict(methods.METHODS)
    few = (methods.OURS, "random forest", "mask + MLP")
    methods.METHODS.clear()
    methods.METHODS.update({name: quick(name, blind=name == "random forest") for name in few})
    yield found
    methods.METHODS.clear()
    methods.METHODS.update(real)  # in their order


def run(monkeypatch, tmp_path, *arguments):
    import holebench

    files = ("--results", tmp_path / "results.jsonl", "--page", tmp_path / "docs" / "page.md", "--jobs", 1)
    monkeypatch.setattr(sys, "argv", ["holebench", *map(str, (*files, *arguments))])
    holebench.main()
    return tmp_path / "results.jsonl", (tmp_path / "docs" / "page.md").read_text()


def test_a_run_that_was_killed_goes_on(folder, fits, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("holes.page.Panel.draw", lambda panel: None)  # which takes most of the time
    few = (folder, "--seeds", 1, "--shares", 0, 60, "--patterns", "random", "group")
    results, page = run(monkeypatch, tmp_path, *few)
    once = 2 * 3  # tables, methods
    assert len(fits) == once + 2 * once  # holes in test rows alone, and in all rows in two patterns
    assert "18 trainings" in capsys.readouterr().out
    whole = results.read_text()
    results.write_text(whole[:-30])  # killed while it wrote the last line
    again, same = run(monkeypatch, tmp_path, *few)
    assert len(fits) == 3 * once + 1
    assert len(again.read_text().splitlines()) == len(whole.splitlines())
    assert same.split("## Ranks")[0] == page.split("## Ranks")[0]
    run(monkeypatch, tmp_path, *few, "--again", "LGMClassifier")
    assert fits[3 * once + 1 :] == ["LGMClassifier"] * once
    run(monkeypatch, tmp_path, *few, "--shares", 0, 30, 60, "--where", "test")
    assert len(fits) == 3 * once + 1 + once + once  # no training of them knew 30 %
    rivals = ("--methods", "random forest", "mask + MLP", "--where", "both", "--results", tmp_path / "rivals.jsonl")
    assert "## Where it loses" not in run(monkeypatch, tmp_path, *few, *rivals)[1]
    with pytest.raises(SystemExit, match=r"flowers was .*'rows': 50.* and is now .*'rows': 45"):
        run(monkeypatch, tmp_path, *few, "--most-rows", 45)


def test_the_page_says_what_was_measured(folder, fits, tmp_path, monkeypatch):
    results, page = run(monkeypatch, tmp_path, folder, "--seeds", 1, "--shares", 0, 40, "--where", "test")
    records = [json.loads(line) for line in results.read_text().splitlines()]
    blind = next(r for r in records if r.get("training") == ["flowers", 0, "random forest", None])
    assert blind["tests"]["random 40"][:3] == [pytest.approx(np.log(3), abs=0.01), 0.5, pytest.approx(1 / 3, abs=0.05)]
    assert blind["tests"].keys() == {"0", "random 40", "blocks 40", "group 40", "by value 40"}
    facts = next(r for r in records if r.get("table") == "mixed")
    assert facts == {
        "table": "mixed",
        "rows": 50,
        "columns": 6,
        "classes": 3,
        "entropy": pytest.approx(1.098, abs=0.01),
    }
    for picture in ("holes-flowers", "holes-mixed", "holes-test-random", "holes-test-by-value"):
        assert f"](images/{picture}.svg)" in page
        assert (tmp_path / "docs" / "images" / f"{picture}.svg").stat().st_size > 1000
    row = next(line for line in page.splitlines() if line.startswith("| trees  "))
    assert row.split("|")[-3:-1] == [" 1.00      ", " 1.00       "]  # it knows only the shares of the classes
    assert "](../results.jsonl)" in page
    assert max(len(line) for line in page.splitlines() if line[:1] not in "|!") <= 120


def test_the_published_page_is_that_of_the_results():
    from holes.page import Page
    from holes.record import Record

    file = ROOT / "docs" / "missing-data.md"
    page = Page(Record(ROOT / "benchmarks" / "results" / "holes-cpu.jsonl"), file)
    assert page.text() == file.read_text()
    panels = [*page.by_table, *page.by_pattern]
    assert {panel.file for panel in panels} == set((ROOT / "docs" / "images").glob("holes-*"))


def test_one_failure_does_not_stop_the_others(folder, fits, tmp_path, monkeypatch, capsys):
    from holes import methods

    monkeypatch.setitem(methods.METHODS, "mask + MLP", lambda X, y, seed: 1 / 0)
    few = (folder, "--seeds", 1, "--shares", 0, 40, "--patterns", "random", "--where", "test")
    with pytest.raises(SystemExit, match="2 trainings failed"):
        run(monkeypatch, tmp_path, *few)
    assert "failed: mixed | 0 | mask + MLP | complete: ZeroDivisionError" in capsys.readouterr().out
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 2 + 1 + 4
    with FileLock(tmp_path / ".results.jsonl.lock"), pytest.raises(SystemExit, match="another run is writing"):
        run(monkeypatch, tmp_path, *few)
    with pytest.raises(SystemExit, match="there is no wine, but flowers, mixed"):
        run(monkeypatch, tmp_path, *few, "--tables", "wine")
    (tmp_path / "results.jsonl").write_text('{"training": 3}\n')
    with pytest.raises(SystemExit, match="line 1: expected a record of holebench"):
        run(monkeypatch, tmp_path, *few)


def test_holes_are_what_they_are_called():
    from holes.patterns import PATTERNS

    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(2000, 10))).assign(name=pd.Categorical(rng.choice(["u", "v"], 2000)))
    for pattern, holes in PATTERNS.items():
        few, many = (holes(X, share, np.random.default_rng(1)) for share in (0.3, 0.7))
        assert [few.mean(), many.mean()] == pytest.approx([0.3, 0.7], abs=0.05), pattern
        if pattern != "by value":
            assert (few <= many).all(), pattern
    assert len(np.unique(PATTERNS["group"](X, 0.4, rng), axis=0)) == 1
    blocks = PATTERNS["blocks"](X, 0.4, rng)
    assert (blocks.sum(1) == 4).all()
    assert ((blocks != np.roll(blocks, 1, axis=1)).sum(1) == 2).all()  # one run, which may go on at the first column
    large = PATTERNS["by value"](X, 0.4, rng)[:, 0]
    assert X[0][large].mean() > 0.3 > -0.1 > X[0][~large].mean()


@pytest.mark.filterwarnings("ignore:The argument 'eval_set' is deprecated")  # its successor is in no older LightGBM
@pytest.mark.parametrize(
    "method", ["LightGBM, hiding", "XGBoost, hiding", "CatBoost", "random forest, hiding", "mask + logistic"]
)
def test_methods_take_names_and_holes(folder, method):
    from holes import boosters, methods, tables

    for library in ("LightGBM", "XGBoost", "CatBoost"):
        if library in method:
            pytest.importorskip(library.lower())
    train, test = tables.read(folder, "mixed").split(0)
    probs = methods.METHODS[method](train.X, train.y, 0)(
        test.X.mask(np.random.default_rng(0).random(test.X.shape) < 0.2)
    )
    assert probs.shape == (13, 3)
    assert probs.sum(1) == pytest.approx(1, abs=1e-5)
    assert (probs.argmax(1) == test.y).mean() > 0.7
    assert boosters.MOST_TREES == 300  # as the page says


def test_names_beside_lines_do_not_overlap():
    from holes.pictures import apart

    for heights in ([0.2, 0.2, 0.21, 0.9], [1.0, 1.0, 1.0], [0.0, 0.0], [0.5]):
        placed = apart(heights, 0.1)
        assert all(later - earlier >= 0.1 - 1e-9 for earlier, later in pairwise(placed))
        assert 0 <= min(placed) <= max(placed) <= 1 + 1e-9
