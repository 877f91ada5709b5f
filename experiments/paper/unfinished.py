"""Trainings that are not finished: each has a folder with its state, below the results that it is for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from zlib import crc32

from experiments.paper.jobs import Job, Options
from torchlgm._utils.atomic import atomic_write
from torchlgm._utils.lock import dir_lock

FOLDER, SECONDS = "unfinished", "own.json"


def mark(*settings: object) -> str:
    """What tells settings apart in the name of a folder."""
    return f"{crc32(repr(settings).encode()):08x}"


class Unfinished:
    """What is kept of a training till it is done; of quick ones nothing is.

    Its name tells all settings apart, so that a training with others, such as fewer epochs, leaves it alone.
    """

    def __init__(self, job: Job, options: Options) -> None:
        cell = job.cell.file.removesuffix(".json").replace("/", "-")
        seeds = "-".join(map(str, job.seeds))
        settings = mark(job.cell.experiment, options.where.type)
        self.folder = None if options.quick else options.out / FOLDER / f"{cell}.seed{seeds}.{settings}"

    @contextmanager
    def claimed(self) -> Iterator[bool]:
        """Whether it is ours, and no other run's; if so, it is till the end."""
        if self.folder is None:
            yield True
            return
        with suppress(FileExistsError):  # another run deleted it at this moment
            self.folder.mkdir(parents=True, exist_ok=True)
        with dir_lock(self.folder) as ours:
            try:
                yield ours
            finally:
                if ours:
                    with suppress(OSError):  # not empty: there is something to go on with
                        self.folder.rmdir()

    @property
    def seconds(self) -> float:
        """How much of the machine it has had."""
        if self.folder is None:
            return 0.0
        try:
            return float(json.loads((self.folder / SECONDS).read_text()))
        except (OSError, ValueError, TypeError):  # not there, or damaged: no reason to lose a training
            return 0.0

    def keep(self, more: float) -> None:
        """It is left, after `more` seconds."""
        if self.folder is not None and self.folder.is_dir():
            atomic_write(self.folder / SECONDS, json.dumps(self.seconds + more).encode())

    def end(self) -> None:
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
