"""Where the figures of a training go: a progress bar, a CSV file, TensorBoard."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from math import isnan
from pathlib import Path
from typing import Any, Protocol

from torchlgm._utils.machine import as_path
from torchlgm._utils.optional import import_optional
from torchlgm.errors import TrainingError

COLUMNS: tuple[str, ...] = ("epoch", "train_loss", "valid_loss", "valid_accuracy", "seconds", "samples_per_second")


class Reporter(Protocol):
    """Told about every epoch, and now and then about steps in between."""

    def step(self, epoch: int, epochs: int, done: int, samples: int) -> None:
        """Called now and then in an epoch.

        Parameters
        ----------
        epoch, epochs : int
            The epoch, counted from 1, and how many there will be.
        done, samples : int
            How many samples of this epoch have been trained on, and how many there are.
        """
        ...

    def epoch(self, row: Mapping[str, Any]) -> None:
        """Called after each epoch.

        Parameters
        ----------
        row : mapping
            The figures of the epoch: `epoch`, `train_loss`, `valid_loss`, `valid_accuracy` and others.
        """
        ...

    def close(self) -> None:
        """Called when training ends, also by an error."""
        ...


class ProgressBar:
    """A bar with the time left, loss and accuracy, within 80 columns; on a terminal (stderr) or in a notebook.

    Parameters
    ----------
    title : str
        What stands in front of the bar.
    """

    FORMAT = "{desc} {percentage:3.0f}%|{bar}| {remaining} left{postfix}"

    def __init__(self, title: str = "training") -> None:
        self.bar = import_optional("tqdm.auto", "cli").tqdm(desc=title, bar_format=self.FORMAT, dynamic_ncols=True)
        self.title, self.begun = title, False

    def step(self, epoch: int, epochs: int, done: int, samples: int) -> None:
        now = (epoch - 1) * samples + done
        if not self.begun:  # of a resumed training, speed counts from the first step
            self.bar.reset()
            self.bar.initial = self.bar.n = self.bar.last_print_n = now
            self.begun = True
        self.bar.total = epochs * samples
        self.bar.set_description_str(f"{self.title} {epoch}/{epochs}", refresh=False)
        self.bar.update(now - self.bar.n)

    def epoch(self, row: Mapping[str, Any]) -> None:
        known = not isnan(row["valid_accuracy"])  # there are classes
        accuracy = f", accuracy {row['valid_accuracy']:.3f}" if known else ""
        self.bar.set_postfix_str(f"loss {row['valid_loss']:.3f}{accuracy}")

    def close(self) -> None:
        self.bar.close()


class ProgressLines:
    """A line for every tenth of the epochs, and after every half minute: for logs and pipes."""

    SECONDS = 30.0

    def __init__(self, title: str, write: Callable[[str], None] = print) -> None:
        self.title, self.write = title, write
        self.epochs, self.tenth, self.last = 1, 0, time.monotonic()

    def step(self, epoch: int, epochs: int, done: int, samples: int) -> None:
        self.epochs = epochs

    def epoch(self, row: Mapping[str, Any]) -> None:
        tenth, now = 10 * row["epoch"] // self.epochs, time.monotonic()
        if tenth > self.tenth or now - self.last >= self.SECONDS:
            self.tenth, self.last = tenth, now
            figures = f"validation loss {row['valid_loss']:.4f}, accuracy {row['valid_accuracy']:.4f}"
            self.write(f"{self.title}, epoch {row['epoch']}/{self.epochs}: {figures}")

    def close(self) -> None: ...


class CsvLog:
    """One row for each epoch.

    Parameters
    ----------
    path : str or Path
        The file; an older one is replaced.
    before : iterable of mapping
        The rows of epochs that were trained before, to write first.
    """

    def __init__(self, path: str | Path, before: Iterable[Mapping[str, Any]] = ()) -> None:
        self.path = as_path(path, TrainingError)
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
    """Scalars for TensorBoard (needs the package `tensorboard`).

    Parameters
    ----------
    folder : str or Path
        Where TensorBoard looks for them.
    """

    def __init__(self, folder: str | Path) -> None:
        writer = import_optional("torch.utils.tensorboard", "cli").SummaryWriter
        try:
            self.writer = writer(str(as_path(folder, TrainingError)))
        except OSError as error:
            raise TrainingError(f"cannot write to {folder}: {error}") from error

    def step(self, epoch: int, epochs: int, done: int, samples: int) -> None: ...

    def epoch(self, row: Mapping[str, Any]) -> None:
        for name in COLUMNS[1:]:
            self.writer.add_scalar(name, row[name], row["epoch"])
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


def default_reporters(title: str = "training") -> list[Reporter]:
    """A progress bar on a terminal or in a notebook (with the package `tqdm`), nothing elsewhere.

    Parameters
    ----------
    title : str
        What stands in front of the bar.

    Returns
    -------
    list of Reporter
        For `fit(..., reporters=...)`; empty where nothing is shown.
    """
    shown = sys.stderr.isatty() or "ipykernel" in sys.modules
    return [ProgressBar(title)] if shown and find_spec("tqdm") else []
