"""Tables from the command line: the model is that of LGMClassifier, whatever its columns are."""

import csv
import io
import json

import numpy as np
import pandas as pd
import pytest

from helpers.runs import QUICK, write_table
from torchlgm import LGMClassifier

PLAIN = ("--no-compare", "--no-pictures")


def write_people(path, rows=80, seed=0):
    """Numbers, text and categories, some missing, and a class that depends on two of them."""
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "id": [f"p{i}" for i in range(rows)],
            "age": draw.integers(18, 80, rows).astype(float),
            "town": draw.choice(["Rome", "Oslo", "Bern"], rows),
            "code": draw.integers(1, 4, rows),
            "height": draw.normal(170, 10, rows).round(1),
        }
    )
    frame["kind"] = np.where(frame["height"] + 10 * (frame["town"] == "Oslo") > 172, "tall", "small")
    frame.loc[::7, ["age", "town"]] = np.nan
    frame.to_csv(path, index=False)
    return path


def probabilities(out):
    rows = list(csv.DictReader(io.StringIO(out)))
    classes = [name for name in rows[0] if name not in ("sample", "class")]
    return np.array([[float(row[name]) for name in classes] for row in rows])


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        (("--seed", 0), {"random_state": 0}),
        (
            ("--seed", 3, "--hidden", 9, "--bins", 4, "--epochs", 5, "--batch-size", 16, "--learning-rate", 0.01),
            {"random_state": 3, "hidden": 9, "bins": 4, "epochs": 5, "batch_size": 16, "learning_rate": 0.01},
        ),
        (
            ("--categorical", "code", "--visible", "1", "--fill", 0.1, "--epochs", 4),
            {"random_state": 0, "categorical_features": ["code"], "visible": None, "fill_weight": 0.1, "epochs": 4},
        ),
    ],
)
def test_the_command_line_and_the_estimator_are_one_model(torchlgm, tmp_path, options, parameters):
    table = write_people(tmp_path / "people.csv")
    frame = pd.read_csv(table)
    X, y = frame.drop(columns=["id", "kind"]), frame["kind"]
    expected = LGMClassifier(**parameters).fit(X, y).predict_proba(X)
    code, _, err = torchlgm("train", table, "--drop", "id", "--out", tmp_path / "run", *PLAIN, *options)
    assert code == 0, err
    assert "2 classes in column 'kind'" in err
    code, out, _ = torchlgm("predict", tmp_path / "run", table, "--json")
    assert code == 0
    given = [list(row["probs"].values()) for row in json.loads(out)]
    np.testing.assert_array_equal(given, expected)


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """A folder with people.csv and the run `run` of it."""
    folder = tmp_path_factory.mktemp("people")
    frame = pd.read_csv(write_people(folder / "people.csv"))
    from torchlgm.cli import console
    from torchlgm.cli.main import app

    options = ("--drop", "id", "--epochs", "20", "--hidden", "8")
    assert console.run(app, ["train", str(folder / "people.csv"), "--out", str(folder / "run"), *options]) == 0
    return folder, frame


def test_figures_are_of_rows_that_were_not_trained_on(torchlgm, people):
    folder, _ = people
    metrics = json.loads((folder / "run" / "metrics.json").read_text())
    assert metrics["samples"] == {"train": 64, "test": 16}
    assert {"lgm", "network"} == metrics["test"].keys()
    assert {"error", "of_mean", "right", "of_most_frequent"} < metrics["filling"].keys()
    code, out, _ = torchlgm("evaluate", folder / "run", "--json")
    rows = json.loads(out)["rows"]
    assert code == 0
    for row in rows:
        (kept,) = (r for r in metrics["test"]["lgm"] if r["visible"] == row["visible"])
        assert row["nll"] == pytest.approx(kept["nll"])
    scored = LGMClassifier.load(folder / "run" / "scored")
    assert json.loads(out)["samples"] == 16
    assert len(scored.loss_curve_) == 20


def test_columns_in_another_order_beside_others_and_without_some(torchlgm, people, tmp_path):
    folder, frame = people
    X = frame.drop(columns=["id", "kind"])
    (X[["height", "code", "town", "age"]].assign(note="x")).to_csv(tmp_path / "new.csv", index=False)
    code, out, err = torchlgm("predict", folder / "run", tmp_path / "new.csv", "--json")
    assert code == 0, err
    assert "leaves out 'note', which the training did not have" in err
    model = LGMClassifier.load(folder / "run" / "model")
    given = [list(row["probs"].values()) for row in json.loads(out)]
    np.testing.assert_array_equal(given, model.predict_proba(X))
    X.drop(columns=["height", "age"]).to_csv(tmp_path / "less.csv", index=False)
    code, out, err = torchlgm("predict", folder / "run", tmp_path / "less.csv")
    assert code == 0, err
    assert "lacks 'age', 'height', which is missing in all rows" in err
    np.testing.assert_allclose(probabilities(out), model.predict_proba(X.assign(height=np.nan, age=np.nan)), atol=1e-5)


def test_a_table_with_no_known_column(complaint, people, tmp_path):
    (tmp_path / "new.csv").write_text("a,b\n1,2\n")
    message = complaint("predict", people[0] / "run", tmp_path / "new.csv")
    assert "has none of the columns of the training, 'age', 'town', 'code', 'height'; got 'a', 'b'" in message


def test_categories_that_look_like_numbers_in_a_new_file(torchlgm, tmp_path):
    rows = [f"{'A' if i % 2 else i % 3},{i % 5},{'x' if i % 2 else 'y'}" for i in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["code,n,class", *rows]))
    assert torchlgm("train", tmp_path / "t.csv", "--out", tmp_path / "run", *PLAIN, "--epochs", 10)[0] == 0
    (tmp_path / "new.csv").write_text("code,n\n1,2\n2,\n")
    code, out, err = torchlgm("predict", tmp_path / "run", tmp_path / "new.csv")
    assert (code, err) == (0, "")
    rows = pd.DataFrame({"code": ["1", "2"], "n": [2, np.nan]})
    model = LGMClassifier.load(tmp_path / "run" / "model")
    np.testing.assert_allclose(probabilities(out), model.predict_proba(rows), atol=1e-5)


def test_rows_without_a_label_are_counted(torchlgm, tmp_path):
    table = write_people(tmp_path / "people.csv")
    frame = pd.read_csv(table)
    frame.loc[:4, "kind"] = np.nan
    frame.to_csv(table, index=False)
    code, _, err = torchlgm("train", table, "--drop", "id", "--out", tmp_path / "run", *PLAIN, "--epochs", 1)
    assert code == 0, err
    assert "75 rows of 4 columns, 2 classes in column 'kind', 5 rows without a label left out" in err


def test_a_column_of_names_of_rows_is_noticed_once(torchlgm, tmp_path):
    table = write_people(tmp_path / "people.csv")
    code, _, err = torchlgm("train", table, "--out", tmp_path / "run", *PLAIN, "--epochs", 1)
    assert code == 0, err
    assert err.count("nearly every row has a category of its own, in 'id'") == 1


def test_without_a_header(torchlgm, tmp_path):
    rows = [f"{10 if i % 2 else 90},{i % 3},{'low' if i % 2 else 'high'}" for i in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(rows))
    options = ("--no-header", "--out", tmp_path / "run", *PLAIN)
    code, _, err = torchlgm("train", tmp_path / "t.csv", *options)
    assert code == 0, err
    assert "2 classes in column '3'" in err
    (tmp_path / "new.csv").write_text("90,1\n10,2\n")
    code, out, _ = torchlgm("predict", tmp_path / "run", tmp_path / "new.csv")
    assert [row["class"] for row in csv.DictReader(io.StringIO(out))] == ["high", "low"]
    (tmp_path / "gaps.csv").write_text("90.00,\n10,1\n")
    assert torchlgm("complete", tmp_path / "run", tmp_path / "gaps.csv", "--out", tmp_path / "out")[0] == 0
    lines = (tmp_path / "out" / "completed.csv").read_text().splitlines()
    assert lines[0].startswith("90.00,")
    assert lines[1] == "10,1"


class TestEvaluate:
    def test_other_tables_in_all_rows(self, torchlgm, trained, tmp_path):
        (tmp_path / "low.csv").write_text("\n".join(["noise,height,class", *[f"0,{20 + i},low" for i in range(10)]]))
        code, out, _ = torchlgm("evaluate", trained / "table", tmp_path / "low.csv", "--visible", "1", "--json")
        assert code == 0
        assert (json.loads(out)["part"], json.loads(out)["samples"]) == ("all", 10)
        assert json.loads(out)["rows"][0]["accuracy"] == 1.0
        how = ("--data-folder", tmp_path, "--visible", "1", "--json")
        assert torchlgm("evaluate", trained / "table", "low.csv", *how)[1].startswith("{")

    def test_another_column_of_labels(self, torchlgm, trained, tmp_path):
        (tmp_path / "new.csv").write_text("height,noise,size\n20,1,low\n90,1,high\n")
        _, _, err = torchlgm("evaluate", trained / "table", tmp_path / "new.csv", "--target", "sizes")
        assert "there is no column 'sizes'" in err
        code, out, _ = torchlgm("evaluate", trained / "table", tmp_path / "new.csv", "--target", "size", "--json")
        assert code == 0
        assert json.loads(out)["rows"][0]["accuracy"] == 1.0

    def test_no_labels_and_other_labels(self, complaint, trained, tmp_path):
        (tmp_path / "new.csv").write_text("height,noise\n20,1\n90,1\n")
        message = complaint("evaluate", trained / "table", tmp_path / "new.csv")
        assert "there is no column 'class', which held the labels in the training" in message
        assert message.endswith("name it with --target; if none does, `torchlgm predict` needs none")
        (tmp_path / "new.csv").write_text("height,noise,class\n20,1,tiny\n90,1,high\n")
        message = complaint("evaluate", trained / "table", tmp_path / "new.csv")
        assert "has a class 'tiny', but the model knows 'high', 'low' only" in message

    def test_says_that_the_table_has_changed(self, torchlgm, tmp_path):
        table = write_table(tmp_path / "table.csv")
        assert torchlgm("train", table, "--out", tmp_path / "run", *QUICK, *PLAIN)[0] == 0
        assert not torchlgm("evaluate", tmp_path / "run")[2]
        write_table(table, seed=1)
        assert "table.csv has changed since the training" in torchlgm("evaluate", tmp_path / "run")[2]

    def test_other_units_are_noticed(self, torchlgm, trained, tmp_path):
        (tmp_path / "mm.csv").write_text("\n".join(["noise,height,class", *["0,2000,low", "0,9000,high"] * 5]))
        for command in ("evaluate", "predict"):
            code, _, err = torchlgm(command, trained / "table", tmp_path / "mm.csv")
            assert code == 0, err
            assert "lie far outside the range that the training saw" in err


class TestComplete:
    def test_cells_keep_their_text_and_other_columns_stay(self, torchlgm, trained, tmp_path):
        lines = ["id,noise,class,height", '"7, a",0.12345678901234,low,-99', "8,?,,1e1", "9,+1.50,high,090.0"]
        (tmp_path / "gaps.csv").write_text("\n".join(lines))
        arguments = ("complete", trained / "table", tmp_path / "gaps.csv", "--missing-value", -99)
        code, out, _ = torchlgm(*arguments, "--out", tmp_path / "out")
        assert code == 0
        assert "Filled in 2 missing values of 3 samples" in out
        header, first, second, third = (tmp_path / "out" / "completed.csv").read_text().splitlines()
        assert (header, third) == (lines[0], lines[3])
        assert first.startswith('"7, a",0.12345678901234,low,')
        assert 0 < float(first.split(",")[-1]) < 100
        assert second.startswith("8,")
        assert second.endswith(",,1e1")
        assert -5 < float(second.split(",")[1]) < 5

    def test_names_and_columns_that_are_lacking(self, torchlgm, people, tmp_path):
        folder, _ = people
        (tmp_path / "gaps.csv").write_text("town,height\n,180\nOslo,\n")
        assert torchlgm("complete", folder / "run", tmp_path / "gaps.csv", "--out", tmp_path / "out")[0] == 0
        rows = list(csv.DictReader(io.StringIO((tmp_path / "out" / "completed.csv").read_text())))
        assert rows[0]["town"] in ("Rome", "Oslo", "Bern")
        assert (rows[0]["height"], rows[1]["town"]) == ("180", "Oslo")
        assert all(18 <= float(row["age"]) <= 80 for row in rows)


def test_what_stands_for_missing_in_training_does_so_ever_after(torchlgm, tmp_path):
    table = write_table(tmp_path / "holes.csv")
    table.write_text(table.read_text().replace(",,", ",-999,"))
    run = tmp_path / "run"
    assert torchlgm("train", table, "--missing-value", -999, "--out", run, *QUICK, *PLAIN)[0] == 0
    assert json.loads((run / "config.json").read_text())["missing_value"] == -999
    assert not torchlgm("evaluate", run)[2]  # would complain of other units
    new, bare = tmp_path / "new.csv", tmp_path / "bare.csv"
    new.write_text("height,noise\n80,-999\n")
    bare.write_text("height,noise\n80,\n")
    given, expected = (torchlgm("predict", run, file)[1] for file in (new, bare))
    assert given == expected
    assert torchlgm("complete", run, new, "--out", tmp_path / "filled")[1].startswith("Filled in 1 missing values")
    assert torchlgm("predict", run, new, "--missing-value", 80)[1] != expected
    assert "missing  7.5% of all values" in torchlgm("data", table, "--missing-value", -999)[1]


def test_several_seeds_and_what_is_shown(torchlgm, tmp_path):
    table = write_table(tmp_path / "table.csv")
    code, out, _ = torchlgm("train", table, "--out", tmp_path / "run", *QUICK, "--no-pictures", "--seeds", 2)
    assert code == 0
    assert "±" in out
    assert "`predict` uses one trained on all" in out
    code, out, _ = torchlgm("show", tmp_path / "run")
    assert code == 0
    for words in ("columns    height, noise", "classes    high, low", "LGM, seed 1: 3 epochs", "hidden1-class"):
        assert words in out
    assert json.loads(torchlgm("show", tmp_path / "run", "--json")[1])["columns"]["height"] == "numbers"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--smoothing", 0.1), "--smoothing is for images and arrays, but the data are tables; leave it out"),
        (("--target", "kind"), "there is no column 'kind'"),
        (("--categorical", "kind"), "does not name columns"),
        (("--device", "cuda"), "cuda"),
    ],
)
def test_options_that_do_not_apply(complaint, tmp_path, options, message, monkeypatch):
    table = write_table(tmp_path / "table.csv")
    assert message in complaint("train", table, "--out", tmp_path / "run", *options, *PLAIN)
    assert not (tmp_path / "run").exists()


def test_options_of_tables_do_not_apply_to_images(complaint, trained, tmp_path):
    message = complaint("train", trained / "halves.npz", "--drop", "id", "--out", tmp_path / "run")
    assert "--drop is for tables, but the data are images and arrays; leave it out" in message
    assert "--target is for tables" in complaint("evaluate", trained / "halves", "--target", "kind")
    assert "the training of a table cannot be resumed" in complaint("train", "--resume", trained / "table")


def test_huge_numbers_are_filled_in_and_judged_like_others(torchlgm, tmp_path):
    """The squares of such numbers are infinite."""
    numbers = np.random.default_rng(0).normal(size=(60, 2))
    filling = []
    for unit in (1.0, 2.0**1020):
        frame = pd.DataFrame(numbers * unit, columns=["a", "b"]).assign(kind=np.where(numbers[:, 0] > 0, "x", "y"))
        frame.to_csv(tmp_path / "table.csv", index=False)
        run = tmp_path / f"{unit:g}"
        options = ("--epochs", 2, "--no-compare", "--no-pictures", "--out", run)
        code, _, _ = torchlgm("train", tmp_path / "table.csv", *options)
        assert code == 0
        filling.append(json.loads((run / "metrics.json").read_text())["filling"])
    assert filling[1] == pytest.approx(filling[0], rel=1e-6)


def test_a_model_of_the_class_alone_is_not_said_to_fill_in(torchlgm, people, tmp_path):
    folder, _ = people
    options = ("--drop", "id", "--epochs", 2, "--no-compare", "--no-pictures")
    for fill in ("0", "0.5"):
        code, out, _ = torchlgm("train", folder / "people.csv", *options, "--fill", fill, "--out", tmp_path / fill)
        assert code == 0
        advice = out.partition("What to try next:")[2]
        assert ("--drop id" in advice, "torchlgm complete" in advice) == (fill == "0", fill == "0.5")
        assert ("--fill 0.5" in advice) == (fill == "0")
