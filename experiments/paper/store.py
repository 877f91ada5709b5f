"""What is kept in a folder of results: finished trainings, rows of ablations, and the states of trainings under way.

Each cell and column has one small JSON file with the runs of all its seeds; each ablation has one with its rows.
Threads may write to a folder at the same time.
"""

import json
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from zlib import crc32

from experiments.paper.cells import Cell, Experiment
from torchlgm._utils.atomic import atomic_write
from torchlgm._utils.lock import dir_lock
from torchlgm.errors import DataError

Run = dict[str, Any]  # the figures of one training
Content = dict[str, Any]  # of a JSON file
EVERY_RUN = {"machine": str}
GOOD_RUN = {"accuracy": int | float, "epochs": int, "best_epoch": int, "cap": int, "seconds": int | float}
STATES = "unfinished"


def plural(count: int, noun: str) -> str:
    """Such as "1 cell" or "2 cells"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def digest(*settings: object) -> str:
    """What distinguishes settings in the name of a folder."""
    return f"{crc32(repr(settings).encode()):08x}"


def cut_short(run: Run, cell: Cell) -> bool:
    """Whether a training used all epochs that it was allowed, fewer than its cell has, and would have gone on."""
    e = cell.experiment
    if "cap" not in run or not run["epochs"] == run["cap"] < e.epochs:
        return False
    return e.patience is None or run["epochs"] - run["best_epoch"] < e.patience


def counted(runs: Iterable[Run]) -> list[Run]:
    """Those with an accuracy."""
    return [run for run in runs if "accuracy" in run]


class State:
    """The folder of a training under way, in which it can be continued; with None, nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def remove(self) -> None:
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


class Store:
    """The results in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()

    def runs(self, cell: Cell) -> dict[int, Run]:
        """The runs of a cell by seed that went to their end, with its present settings."""

        def read(content: Content) -> dict[int, Run]:
            same = _DEFAULTS | content["experiment"] == _settings(cell.experiment)
            runs = {int(seed): _checked(seed, run) for seed, run in content["runs"].items()} if same else {}
            return {seed: run for seed, run in runs.items() if not cut_short(run, cell)}

        return _read(self.folder / cell.file, read, {})

    def add(self, cell: Cell, seed: int, run: Run) -> None:
        path = self.folder / cell.file
        with self._writing(path):
            runs = {str(seed): run for seed, run in sorted({**self.runs(cell), seed: run}.items())}
            content = {"cell": cell.name, "column": cell.way, "paper": cell.paper.accuracy}
            _write(path, content | {"experiment": _settings(cell.experiment), "runs": runs})

    def ablation_file(self, name: str) -> Path:
        return self.folder / "ablations" / f"{name}.json"

    def ablation(self, name: str) -> Content:
        """The "rows" of an ablation, how many cases are "left", and the "machine" that made them."""

        def read(content: Content) -> Content:
            if not all(isinstance(row, dict) for row in content["rows"]):
                raise TypeError("rows must be a list of objects")
            return {"left": 0, **content}

        return _read(self.ablation_file(name), read, {"rows": [], "left": 0})

    def update_ablation(self, name: str, change: Callable[[Content], Content]) -> None:
        """Write what `change` makes of an ablation, to which other runs may have added."""
        with self._writing(self.ablation_file(name)):
            _write(self.ablation_file(name), change(self.ablation(name)))

    def model_folder(self, cell: Cell) -> Path:
        return self.folder / "models" / f"{cell.table.label}-{cell.slug}"

    def state(self, *names: str) -> State:
        return State(self.folder.joinpath(STATES, *names))

    def require_writable(self) -> None:
        """Notice before a training, not after it, that its result could not be kept."""
        try:
            parent = next(path for path in (self.folder, *self.folder.absolute().parents) if path.exists())
            with TemporaryFile(dir=parent):
                pass
        except OSError as error:
            raise DataError(
                f"{self.folder}: nothing can be written there ({error.strerror}); name another folder by --out"
            ) from error

    @contextmanager
    def _writing(self, path: Path) -> Iterator[None]:
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._lock, dir_lock(path.parent, wait=True):
            yield


def _read(path: Path, check: Callable[[Content], Any], default: Any) -> Any:
    try:
        return check(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else default
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: not a result that can be read ({error!r}); delete it and run again") from error


def _write(path: Path, content: Content) -> None:
    atomic_write(path, (json.dumps(content, indent=1) + "\n").encode())


def _checked(seed: str, run: Run) -> Run:
    """Raise if a figure is missing that the report needs; a training that diverged has few."""
    for name, kind in (EVERY_RUN if "error" in run else EVERY_RUN | GOOD_RUN).items():
        if not isinstance(run[name], kind):
            raise TypeError(f"{name} of seed {seed} is {run[name]!r}")
    return run


def _settings(e: Experiment) -> Content:
    """As JSON gives them back. How many epochs were allowed belongs to the run: a cap may differ."""
    settings = asdict(e)
    del settings["epochs"]
    return json.loads(json.dumps(settings))


_DEFAULTS = _settings(Experiment("mnist"))  # of results that are older than a setting
