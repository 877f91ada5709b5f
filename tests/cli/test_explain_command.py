"""`torchlgm explain`: what each input adds to the answer."""

import json

import pytest

from helpers.runs import write_halves


def test_a_row_of_the_table_of_a_run(torchlgm, trained):
    code, out, _ = torchlgm("explain", trained / "table", "3")
    assert code == 0
    assert out.startswith("row 3: class low, ")
    code, printed, _ = torchlgm("explain", trained / "table", "3", "--json")
    assert code == 0
    facts = json.loads(printed)
    _, predicted, _ = torchlgm("predict", trained / "table", trained / "table.csv", "--json")
    row = json.loads(predicted)[3]
    assert (facts["row"], facts["class"]) == (3, row["class"])
    assert facts["probability"] == pytest.approx(row["probs"]["low"], abs=1e-6)
    assert facts["base"] + sum(share["share"] for share in facts["shares"]) == pytest.approx(facts["answer"])
    assert {share["column"] for share in facts["shares"]} == {"height", "noise"}


def test_another_class_and_another_file(torchlgm, trained, tmp_path):
    (tmp_path / "new.csv").write_text("noise,height\n,20\n1,80\n")
    code, out, _ = torchlgm("explain", trained / "table", "0", tmp_path / "new.csv", "--class", "high", "--json")
    assert code == 0
    facts = json.loads(out)
    assert facts["class"] == "high"
    assert facts["probability"] < 0.5
    assert [(share["column"], share["value"]) for share in facts["shares"]] == [("height", 20)]
    assert facts["shares"][0]["share"] < 0


def test_an_image(torchlgm, trained, tmp_path):
    picture = tmp_path / "why.png"
    code, out, _ = torchlgm("explain", trained / "halves", "1", "--out", picture)
    assert code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert out.startswith("1: ")
    _, out, _ = torchlgm("explain", trained / "halves", "1", write_halves(tmp_path / "halves.npz"), "--json")
    facts = json.loads(out)
    _, out, _ = torchlgm("predict", trained / "halves", tmp_path / "halves.npz", "--json")
    probs = json.loads(out)[1]["probs"]
    for row in facts["classes"]:
        assert row["probability"] == pytest.approx(probs[row["class"]], abs=1e-5)
        assert row["base"] + row["for"] + row["against"] == pytest.approx(row["answer"], abs=1e-6)


def test_a_picture_of_a_row(torchlgm, trained, tmp_path):
    assert torchlgm("explain", trained / "table", "0", "--out", tmp_path / "why.svg")[0] == 0
    assert "</svg>" in (tmp_path / "why.svg").read_text()


def test_what_is_not_there(complaint, trained, tmp_path):
    table, halves = trained / "table", trained / "halves"
    assert "table.csv: has no row '60'; expected one of rows 0 to 59" in complaint("explain", table, "60")
    assert "has no row 'x.png'; expected one of rows 0 to" in complaint("explain", halves, "x.png")
    assert "--class middle: expected one of high, low" in complaint("explain", table, "0", "--class", "middle")
    assert "ends in .png, .pdf, .svg" in complaint("explain", table, "0", "--out", tmp_path / "why.txt")
    (tmp_path / "why.png").touch()
    assert "already exists" in complaint("explain", table, "0", "--out", tmp_path / "why.png")
