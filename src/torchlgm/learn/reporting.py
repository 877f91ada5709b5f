"""Where the figures of a training go: a live line, a CSV file, TensorBoard."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from torchlgm._utils.optional import import_optional
from torchlgm.errors import TrainingError

COLUMNS: tuple[str, ...] = ("epoch", "train_loss", "valid_loss", "valid_accuracy", "seconds", "samples_per_second")


class Reporter(Protocol):
    """Told about every epoch, and now and then about steps in between."""

    def step(self, epoch: int, epochs: int, done: int, samples: int) -> None: ...

    def epoch(self, row: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


class ProgressLine:
    """A live line with loss, validation accuracy, speed and time left."""

    def __init__(self, title: str = "training") -> None:
        import_optional("rich.progress", "cli")
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[figures]}"))
        self.progress = Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=Console(stderr=True))
        self.task = self.progress.add_task(title, total=None, figures="")
        self.place = self.figures = ""
        self.began, self.first = time.monotonic(), -1
        self.progress.start()

    def step(self, epoch: int, epochs: int, done: int, samples: int) -> None:
        now = (epoch - 1) * samples + done
        if self.first < 0:
            self.began, self.first = time.monotonic(), now
        speed = (now - self.first) / max(time.monotonic() - self.began, 1e-9)
        self.place = f"epoch {epoch}/{epochs}  {speed:,.0f} samples/s"
        self.progress.update(self.task, total=epochs * samples, completed=now)
        self._show()

    def epoch(self, row: Mapping[str, Any]) -> None:
        self.figures = f"loss {row['train_loss']:.4f}  valid {row['valid_loss']:.4f} acc {row['valid_accuracy']:.4f}"
        self._show()

    def _show(self) -> None:
        self.progress.update(self.task, figures=f"{self.place}  {self.figures}")

    def close(self) -> None:
        self.progress.stop()


class CsvLog:
    """One row for each epoch, after those of the epochs that were trained before."""

    def __init__(self, path: str | Path, before: Iterable[Mapping[str, Any]] = ()) -> None:
        self.path = Path(path)
        self._write("w", [dict(zip(COLUMNS, COLUMNS, strict=True)), *before])

    def _write(self, mode: str, rows: Iterable[Mapping[str, Any]]) -> None:
        try:
            with self.path.open(mode, newline="", encoding="utf-8") as handle:
                csv.DictWriter(handle, COLUMNS, extrasaction="ignore").writerows(rows)
        except OSError as error:
            raise TrainingError(f"cannot write to {self.path}: {error}") from error

    def step(self, epoch: int, epochs: int, done: int, samples: int) -> None: ...

    def epoch(self, row: Mapping[str, Any]) -> None:
        self._write("a", [row])

    def close(self) -> None: ...


class TensorBoardLog:
    """Scalars for TensorBoard (needs the package `tensorboard`)."""

    def __init__(self, folder: str | Path) -> None:
        self.writer = import_optional("torch.utils.tensorboard", "cli").SummaryWriter(str(folder))

    def step(self, epoch: int, epochs: int, done: int, samples: int) -> None: ...

    def epoch(self, row: Mapping[str, Any]) -> None:
        for name in COLUMNS[1:]:
            self.writer.add_scalar(name, row[name], row["epoch"])
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


def default_reporters(title: str = "training") -> list[Reporter]:
    """A live line on a terminal (with the package `rich`), nothing elsewhere."""
    return [ProgressLine(title)] if sys.stderr.isatty() and find_spec("rich") else []
