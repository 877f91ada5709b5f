"""What has been measured: a file of one JSON line for each training, so that a run can be killed and go on."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common import rounded
from filelock import FileLock, Timeout

from holes.trainings import Training
from torchlgm._utils.atomic import atomic_write

Line = dict[str, Any]
NO_HOLES = "complete"


class Record:
    """`about` are the runs (machine, day, settings), `tables` facts about tables, `trainings` their figures."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.about: list[Line] = []
        self.tables: dict[str, Line] = {}
        self.trainings: dict[Training, Line] = {}
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        for number, line in enumerate(lines, start=1):
            if number == len(lines) and not line.endswith("\n"):  # a run was killed while it wrote this
                self._write(lines[:-1])
                break
            try:
                self._take(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise SystemExit(f"{file}, line {number}: expected a record of holebench ({error})") from None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """While one process writes to the file, another one that wants to is refused."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(self.file.with_name(f".{self.file.name}.lock"), timeout=0):
                yield
        except Timeout:
            raise SystemExit(f"{self.file}: another run is writing to it; wait, or name another file") from None

    def add(self, line: Line) -> None:
        line = rounded(line)
        self._take(line)
        with self.file.open("a") as file:
            file.write(_text(line))
            file.flush()
            os.fsync(file.fileno())

    def add_training(self, training: Training, result: Line) -> None:
        holes = list(training.holes) if training.holes else None
        self.add({"training": [training.table, training.seed, training.method, holes], **result})

    def begin(self, about: Line) -> None:
        """Say what is run now, unless the last run was the same."""
        if not self.about or self.about[-1] != rounded(about):
            self.add({"about": about})

    def describe(self, name: str, facts: Line) -> None:
        known = self.tables.get(name)
        if known is None:
            self.add({"table": name, **facts})
        elif known != rounded(facts):
            raise SystemExit(f"{self.file}: {name} was {known}, and is now {rounded(facts)}; name another file")

    def done(self, training: Training, tests: Collection[str]) -> bool:
        return training in self.trainings and set(tests) <= self.trainings[training]["tests"].keys()

    def forget(self, methods: Collection[str]) -> None:
        """Drop what was measured of these methods."""
        self.trainings = {key: line for key, line in self.trainings.items() if key.method not in methods}
        if self.file.exists():
            lines = self.file.read_text().splitlines(keepends=True)
            self._write([line for line in lines if json.loads(line).get("training", [0, 0, None])[2] not in methods])

    def _take(self, line: Line) -> None:
        if "about" in line:
            self.about.append(line["about"])
        elif "table" in line:
            self.tables[line["table"]] = {key: value for key, value in line.items() if key != "table"}
        else:
            table, seed, method, holes = line["training"]
            training = Training(table, seed, method, None if holes is None else (holes[0], float(holes[1])))
            self.trainings[training] = {key: line[key] for key in ("fit s", "row ms", "tests")}

    def _write(self, lines: list[str]) -> None:
        atomic_write(self.file, "".join(lines).encode())


def _text(line: Line) -> str:
    return json.dumps(line, separators=(",", ":")) + "\n"
