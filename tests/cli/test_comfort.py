"""What makes the command line pleasant: lists of runs, options from a file, silence, tables for people, samples."""

import json
import sys

import numpy as np
import pytest
from PIL import Image

from helpers.runs import QUICK, as_image, write_halves
from torchlgm.cli.report import print_predictions

PLAIN = (*QUICK, "--no-pictures", "--no-compare")


def test_runs_are_listed_with_their_accuracy(torchlgm, trained, tmp_path):
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "config.json").write_text((trained / "halves" / "config.json").read_text())
    for name in ("halves", "table"):
        (tmp_path / name).symlink_to(trained / name)
    code, out, _ = torchlgm("runs", tmp_path, "--json")
    rows = {row["folder"].rpartition("/")[2]: row for row in json.loads(out)}
    assert code == 0
    assert (rows["begun"]["state"], rows["table"]["state"]) == ("not finished", "finished")
    assert (rows["halves"]["model"], rows["table"]["model"]) == ("dense", "table")
    assert rows["halves"]["accuracy"] > 0.5
    out = torchlgm("runs", tmp_path)[1]
    assert "1.000" in out
    assert "not finished" in out


def test_a_folder_without_runs(torchlgm, complaint, tmp_path):
    assert "`torchlgm train` makes one" in torchlgm("runs", tmp_path)[1]
    assert "no such folder" in complaint("runs", tmp_path / "nowhere")


def test_options_come_from_the_configuration_of_a_run(torchlgm, complaint, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = trained / "halves" / "config.json"
    code, _, err = torchlgm("train", "--config", config, "--epochs", "2", "--no-pictures", "--out", "again", "--quiet")
    assert (code, err) == (0, "")
    before, after = (json.loads(path.read_text()) for path in (config, tmp_path / "again" / "config.json"))
    assert after == before | {"epochs": 2, "pictures": False}
    (tmp_path / "wrong.json").write_text('{"epoch": 3}')
    assert "there is no option 'epoch'; did you mean 'epochs'?" in complaint("train", "--config", "wrong.json")
    assert "leave out --config" in complaint("train", "--resume", trained / "halves", "--config", config)


def test_a_run_has_samples_to_try_and_a_page(torchlgm, trained):
    run = trained / "halves"
    names = sorted(path.name for path in (run / "samples").iterdir())
    assert len(names) == 4
    assert sum(name.endswith("-half.png") for name in names) == 2
    code, out, _ = torchlgm("predict", run, run / "samples", "--json")
    assert code == 0
    assert [row["sample"] for row in json.loads(out)] == names
    assert torchlgm("predict", trained / "table", trained / "table" / "samples.csv")[0] == 0
    page = (run / "report.html").read_text()
    assert page.count('<img alt="') >= 6
    assert "torchlgm train" in page
    assert 'src="http' not in page


def test_people_get_a_table_and_programs_get_csv(torchlgm, trained, monkeypatch):
    run = trained / "halves"
    assert torchlgm("predict", run, run / "samples")[1].startswith("sample,class,")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    out = torchlgm("predict", run, run / "samples")[1]
    assert "█" in out or "%" in out
    assert "," not in out.splitlines()[0]


def test_long_tables_are_cut(capsys):
    print_predictions([{"sample": str(i), "probs": {"a": 0.75, "b": 0.25}} for i in range(60)])
    assert "... and 10 more; --out FILE.csv" in capsys.readouterr().out


@pytest.mark.parametrize("flag", [[], ["--invert"]])
def test_dark_strokes_on_white_are_noticed(torchlgm, tmp_path, monkeypatch, flag):
    monkeypatch.chdir(tmp_path)
    write_halves(tmp_path / "halves.npz")
    with np.load("halves.npz") as arrays:
        dark = {name: array * 0.2 if array.dtype.kind == "f" else array for name, array in arrays.items()}
    np.savez(tmp_path / "dark.npz", **dark)
    assert torchlgm("train", "dark.npz", *PLAIN, "--out", "run")[0] == 0
    as_image(np.full((6, 6), 0.9), tmp_path / "scan.png")
    code, _, err = torchlgm("predict", "run", "scan.png", *flag)
    assert code == 0
    assert ("--invert swaps them" in err) == (not flag)


def test_images_of_another_size_are_brought_to_it(torchlgm, complaint, trained, tmp_path):
    Image.fromarray(np.full((20, 30), 128, np.uint8), "L").save(tmp_path / "large.png")
    assert "--resize scales it" in complaint("predict", trained / "halves", tmp_path / "large.png")
    assert torchlgm("predict", trained / "halves", tmp_path / "large.png", "--resize")[0] == 0


def test_a_near_miss_is_recognised(complaint):
    assert "did you mean 'digits'?" in complaint("train", "digit")


def test_pretrained_models_go_by_name(torchlgm, complaint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    as_image(np.zeros((8, 8)), tmp_path / "blank.png", hole=np.arange(64).reshape(8, 8) < 32)
    code, out, _ = torchlgm("predict", "digits", "blank.png", "--json")
    assert code == 0
    assert list(json.loads(out)[0]["probs"]) == [str(digit) for digit in range(10)]
    assert torchlgm("complete", "digits", "blank.png", "--out", "filled")[0] == 0
    assert (tmp_path / "filled" / "blank.png").is_file()
    assert "no such folder" in complaint("show", "digits")
    (tmp_path / "digits").mkdir()
    assert "not a run folder" in complaint("predict", "digits", "blank.png")
