"""Results of trainings: one small JSON file for each cell and column, which holds its seeds."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from experiments.paper.cells import Cell
from torchlgm._utils.atomic import atomic_write
from torchlgm._utils.lock import dir_lock
from torchlgm.errors import DataError

Run = dict[str, Any]  # the figures of one training
EVERY_RUN = {"own_seconds": float, "machine": str}
GOOD_RUN = {"accuracy": float, "epochs": int, "best_epoch": int, "cap": int, "seconds": float}


def cut_short(run: Run, cell: Cell) -> bool:
    """Whether a training took all epochs that it was allowed, fewer than its cell has, and would have gone on."""
    e = cell.experiment
    if "cap" not in run or not run["epochs"] == run["cap"] < e.epochs:
        return False
    return e.patience is None or run["epochs"] - run["best_epoch"] < e.patience


def counted(runs: Iterable[Run], cell: Cell) -> list[Run]:
    """The runs that count: those that went to their end or, if none did, all with an accuracy."""
    good = [run for run in runs if "accuracy" in run]
    return [run for run in good if not cut_short(run, cell)] or good


class Store:
    """The results in a folder. Threads and processes may write to it at the same time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()

    def runs(self, cell: Cell) -> dict[int, Run]:
        """What is known of a cell by seed; nothing if it was trained otherwise than it would be now."""
        content = self._read(cell)
        return {} if content is None else {int(seed): run for seed, run in content["runs"].items()}

    def add(self, cell: Cell, seed: int, run: Run) -> None:
        path = self.folder / cell.file
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._lock, dir_lock(path.parent, wait=True):
            runs = {**self.runs(cell), seed: run}
            content = {
                "cell": cell.name,
                "column": cell.way,
                "paper": cell.number.accuracy,
                "experiment": _plain(cell),
                "runs": {str(seed): runs[seed] for seed in sorted(runs)},
            }
            atomic_write(path, (json.dumps(content, indent=1) + "\n").encode())

    def _read(self, cell: Cell) -> dict[str, Any] | None:
        path = self.folder / cell.file
        if not path.exists():
            return None
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            same = content["experiment"] == _plain(cell)
            if same:
                for seed, run in content["runs"].items():
                    _check(int(seed), run)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{path}: not a result that can be read ({error!r}); delete it and run again.") from error
        return content if same else None

    def require_writable(self) -> None:
        """Notice before a training, not after it, that its result could not be kept."""
        try:
            there = next(place for place in (self.folder, *self.folder.absolute().parents) if place.exists())
            with TemporaryFile(dir=there):
                pass
        except OSError as error:
            raise DataError(
                f"{self.folder}: nothing can be written there ({error.strerror}); name another folder by --out."
            ) from error


def _check(seed: int, run: Run) -> None:
    """Raise if a figure is missing that others count on; a training that diverged has few."""
    for name, kind in (EVERY_RUN if "error" in run else EVERY_RUN | GOOD_RUN).items():
        if not isinstance(run[name], (int, float) if kind is float else kind):
            raise TypeError(f"{name} of seed {seed} is {run[name]!r}")


def _plain(cell: Cell) -> dict[str, Any]:
    """The experiment as JSON gives it back. How many epochs were allowed belongs to the run: a cap may differ."""
    words = asdict(cell.experiment)
    del words["epochs"]
    return json.loads(json.dumps(words))
