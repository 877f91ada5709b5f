"""Where the figures of a training go."""

import csv
import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from helpers.tiny_training import Watcher, train
from torchlgm.errors import MissingExtraError
from torchlgm.learn import CsvLog, ProgressBar, TensorBoardLog, reporting

pytestmark = pytest.mark.usefixtures("single_precision")

ROW = {
    "epoch": 3,
    "train_loss": 0.5,
    "valid_loss": 0.25,
    "valid_accuracy": 0.9,
    "seconds": 2.0,
    "samples_per_second": 100.0,
}


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as handle:
        return list(csv.DictReader(handle))


def test_csv_log_is_the_history(tmp_path: Path):
    _, result = train(tmp_path)
    rows = _rows(tmp_path / "log.csv")
    assert [{k: float(v) for k, v in row.items()} for row in rows] == result.history
    assert list(rows[0]) == list(reporting.COLUMNS)


def test_csv_log_goes_on_after_what_was_there(tmp_path: Path):
    path = tmp_path / "log.csv"
    path.write_text("rubbish\n")
    log = CsvLog(path, before=[ROW | {"epoch": 1, "more": "ignored"}])
    log.epoch(ROW | {"epoch": 2})
    log.close()
    assert [row["epoch"] for row in _rows(path)] == ["1", "2"]


def test_tensorboard_log(tmp_path: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    _, result = train(reporters=[TensorBoardLog(tmp_path)])
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    for name in reporting.COLUMNS[1:]:
        scalars = events.Scalars(name)
        assert [s.step for s in scalars] == [1, 2, 3, 4]
        assert [s.value for s in scalars] == pytest.approx([row[name] for row in result.history])


@pytest.mark.parametrize(("library", "reporter"), [("tensorboard", TensorBoardLog), ("tqdm", ProgressBar)])
def test_a_library_that_is_not_there(
    library: str, reporter: Callable[[str], Any], without: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    without(library)
    with pytest.raises(MissingExtraError, match=rf"needs .*{library}.*pip install 'torchlgm\[cli\]'"):
        reporter("here")


def test_quiet_when_not_on_a_terminal(capfd: pytest.CaptureFixture[str], tmp_path: Path):
    train(tmp_path)
    assert capfd.readouterr() == ("", "")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]):
    screen = _Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    _, result = train(epochs=3)
    last = [line for line in re.split(r"[\r\n]", screen.getvalue()) if "training 3/3" in line][-1]
    row = result.history[-1]
    assert f"loss {row['valid_loss']:.3f}, accuracy {row['valid_accuracy']:.3f}" in last
    assert "left" in last
    assert "|" in last
    assert len(last.rstrip("\x1b[A")) <= 80
    assert capfd.readouterr().out == "", "stdout is for results"


def test_lines_at_every_tenth_of_the_epochs():
    written: list[str] = []
    lines = reporting.ProgressLines("LGM", written.append)
    lines.SECONDS = 1e9
    for epoch in range(1, 31):
        lines.step(epoch, 30, 10, 10)
        lines.epoch(ROW | {"epoch": epoch})
    lines.close()
    assert len(written) == 10
    assert written[0] == "LGM, epoch 3/30: validation loss 0.2500, accuracy 0.9000"
    lines.SECONDS = 0.0
    lines.epoch(ROW | {"epoch": 1})
    assert len(written) == 11, "and after half a minute"


def test_no_bar_without_tqdm(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stderr", _Terminal())
    monkeypatch.setattr(reporting, "find_spec", lambda name: None)
    assert reporting.default_reporters() == []


def test_a_bar_in_a_notebook(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    (bar,) = reporting.default_reporters()
    bar.close()
    assert isinstance(bar, ProgressBar)


def test_speed_counts_from_the_first_step_after_a_resume(monkeypatch: pytest.MonkeyPatch):
    bar = ProgressBar()
    bar.step(3, 5, 50, 100)
    bar.step(4, 5, 50, 100)
    bar.epoch(ROW)
    state = bar.bar.format_dict
    bar.close()
    assert (state["initial"], state["n"], state["total"]) == (250, 350, 500)
    assert state["prefix"] == "training 4/5"
    assert state["postfix"] == "loss 0.250, accuracy 0.900"


def test_reporters_are_closed_whatever_happens():
    closed = []

    class Closing(Watcher):
        def close(self) -> None:
            closed.append(True)

    def fail(epoch: int, done: int) -> None:
        raise RuntimeError("a reporter that fails")

    train(reporters=[Closing(lambda epoch, done: None)])
    with pytest.raises(RuntimeError, match="a reporter that fails"):
        train(reporters=[Closing(fail)])
    assert closed == [True, True]
