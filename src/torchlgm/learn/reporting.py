"""Where the figures of a training go: a live line, a CSV file, TensorBoard."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

COLUMNS: tuple[str, ...] = ("epoch", "train_loss", "valid_loss", "valid_accuracy", "seconds", "samples_per_second")


class Reporter(Protocol):
    """Told about every epoch, and now and then about steps in between."""

    def step(self, epoch: int, epochs: int, done: int, samples: int) -> None: ...

    def epoch(self, row: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


class ProgressLine:
    """A live line with loss, validation accuracy, speed and time left."""

    def __init__(self, title: str = "training") -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[figures]}"))
        self.progress = Progress(*columns, TextColumn("left"), TimeRemainingColumn(), transient=False)
        self.title = title
        self.task = self.progress.add_task(title, total=None, figures="")
        self.figures = ""
        self.began, self.first = time.monotonic(), -1
        self.progress.start()

    def step(self, epoch: int, epochs: int, done: int, samples: int) -> None:
        total, now = epochs * samples, (epoch - 1) * samples + done
        if self.first < 0:
            self.first = now
        speed = (now - self.first) / max(time.monotonic() - self.began, 1e-9)
        figures = f"epoch {epoch}/{epochs}  {self.figures}  {speed:,.0f} samples/s"
        self.progress.update(self.task, total=total, completed=now, figures=figures)

    def epoch(self, row: Mapping[str, Any]) -> None:
        self.figures = f"loss {row['train_loss']:.4f}  valid {row['valid_loss']:.4f} acc {row['valid_accuracy']:.4f}"

    def close(self) -> None:
        self.progress.stop()


class CsvLog:
    """One row for each epoch; rows of epochs that are trained again after a resume are dropped first."""

    def __init__(self, path: str | Path, keep_until: int = 0) -> None:
        self.path = Path(path)
        rows = []
        if keep_until and self.path.exists():
            with self.path.open(newline="") as handle:
                rows = [row for row in csv.DictReader(handle) if int(row["epoch"]) <= keep_until]
        with self.path.open("w", newline="") as handle:
            writer = csv.DictWriter(handle, COLUMNS, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)

    def step(self, epoch: int, epochs: int, done: int, samples: int) -> None: ...

    def epoch(self, row: Mapping[str, Any]) -> None:
        with self.path.open("a", newline="") as handle:
            csv.DictWriter(handle, COLUMNS, extrasaction="ignore").writerow(dict(row))

    def close(self) -> None: ...


class TensorBoardLog:
    """Scalars for TensorBoard (needs the package `tensorboard`)."""

    def __init__(self, folder: str | Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder))

    def step(self, epoch: int, epochs: int, done: int, samples: int) -> None: ...

    def epoch(self, row: Mapping[str, Any]) -> None:
        for name in COLUMNS[1:]:
            self.writer.add_scalar(name, row[name], row["epoch"])
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


def default_reporters(title: str = "training") -> list[Reporter]:
    """A live line on a terminal, nothing elsewhere."""
    return [ProgressLine(title)] if sys.stderr.isatty() else []
