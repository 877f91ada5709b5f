"""How a question is asked: case by case, so that it can be left and gone on with, and asked again with more effort."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.paper.clock import Clock, Left
from experiments.paper.jobs import Options
from experiments.paper.run import machine
from experiments.paper.unfinished import FOLDER
from torchlgm._utils.atomic import atomic_write
from torchlgm._utils.lock import dir_lock
from torchlgm.errors import DataError
from torchlgm.learn.cuda.streams import before_threads, take_stream

Row = dict[str, Any]
AT_ONCE = 16  # trainings on a GPU


@dataclass(frozen=True, eq=False)
class Case:
    """A row of an answer, or several that are made together.

    `name` is what tells its rows from others, `effort`, such as seeds and epochs, what they have at least.
    """

    name: Row
    make: Callable[[], Sequence[Row]]  # the figures of each row
    effort: Mapping[str, int] = field(default_factory=dict)

    def own(self, rows: Iterable[Row]) -> list[Row]:
        return [row for row in rows if all(row.get(key) == value for key, value in self.name.items())]

    def is_done(self, rows: Iterable[Row]) -> bool:
        """A row that does not tell its effort had enough."""
        own = self.own(rows)
        return bool(own) and all(row.get(key, least) >= least for row in own for key, least in self.effort.items())

    def surplus(self, rows: Iterable[Row]) -> dict[str, int]:
        """What its rows have more of than it would give them."""
        own = self.own(rows)
        return {key: row[key] for row in own for key, least in self.effort.items() if row.get(key, least) > least}

    def rows(self) -> list[Row]:
        return [
            self.name | dict(self.effort) | {key: _rounded(value) for key, value in row.items()} for row in self.make()
        ]


@dataclass(frozen=True)
class Question:
    """`ask` gives the cases of the answer, of whose rows `show` makes a table and `say` a sentence.

    `heavy` ones train models of full size and want a GPU.
    """

    name: str
    title: str
    how: str | Callable[[Sequence[Row]], str]
    ask: Callable[[Options, Clock], Iterable[Case]]
    say: Callable[[Sequence[Row]], str]
    show: Callable[[Sequence[Row]], Sequence[Row]] = lambda rows: rows
    heavy: bool = False


class Answer:
    """What is known of a question, in a file that is written whole after every case."""

    def __init__(self, question: Question, out: Path) -> None:
        self.question, self.path = question, answer_file(out, question)
        self.content = _read(self.path)
        self.lock = threading.Lock()

    @property
    def rows(self) -> list[Row]:
        return self.content.get("rows", [])

    @property
    def left(self) -> int:
        """How many cases are still to be asked, for the first time or with more effort."""
        return self.content.get("left", 0)

    def ask(self, cases: Sequence[Case], options: Options, clock: Clock, tell: Callable[[str], None]) -> int:
        """Ask those that are not done, as many as there is time for; how many are left."""
        todo = [case for case in cases if not case.is_done(self.rows)]
        for case in todo:
            if more := case.surplus(self.rows):
                had = " and ".join(f"{count} {what}" for what, count in more.items())
                raise DataError(f"{self.path}: rows with {had} would be lost; ask for as many, or delete it.")

        def work(case: Case) -> None:
            if clock.over or clock.stopped:
                return
            try:
                made = case.rows()
            except Left:
                return
            with self.lock:
                todo.remove(case)
                self._put(case, made, cases, machine(options.where))
                for row in made:
                    tell("  " + ", ".join(f"{key} {value}" for key, value in row.items()))

        several = options.workers_or(AT_ONCE)
        at_once(work, list(todo), options, several if self.question.heavy else 1, clock)
        if not todo:
            shutil.rmtree(states_of(self.question.name, options), ignore_errors=True)
        return len(todo)

    def _put(self, case: Case, made: Sequence[Row], cases: Sequence[Case], where: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with dir_lock(self.path.parent, wait=True):
            self.content = _read(self.path)  # another run may have added to it
            self._write(case, made, cases, where)

    def _write(self, case: Case, made: Sequence[Row], cases: Sequence[Case], where: str) -> None:
        rows = [row for other in cases for row in (made if other is case else other.own(self.rows))]
        machines = {where, *self.content.get("machine", where).split("; ")}
        self.content = {"question": self.question.title, "rows": rows, "machine": "; ".join(sorted(machines))}
        if left := sum(not other.is_done(rows) for other in cases):
            self.content["left"] = left
        atomic_write(self.path, (json.dumps(self.content, indent=1) + "\n").encode())


def over_seeds(rows: Sequence[Row]) -> str:
    """How many seeds figures have, in words."""
    least, most = (pick(row["seeds"] for row in rows) for pick in (min, max))
    if most == 1:
        return "one seed"
    return f"mean over {most} seeds" if least == most else f"mean over {least} to {most} seeds"


def answer_file(out: Path, question: Question) -> Path:
    return out / "questions" / f"{question.name}.json"


def states_of(name: str, options: Options) -> Path:
    """Where the trainings of a question that is under way are kept."""
    return options.out / FOLDER / "questions" / name


def at_once(work: Callable[[Any], None], cases: Sequence[Any], options: Options, workers: int, clock: Clock) -> None:
    """`work` of each case; on a GPU each thread has a stream of its own, which captured steps need."""
    if min(workers, len(cases)) <= 1:
        for case in cases:
            work(case)
        return
    before_threads(options.where)
    with ThreadPoolExecutor(workers, initializer=take_stream, initargs=(options.where,)) as pool:
        try:
            for _ in pool.map(work, cases):
                pass
        except BaseException:
            clock.stopped = True  # the others leave too
            raise


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content["rows"], list) or not all(isinstance(row, dict) for row in content["rows"]):
            raise TypeError("rows must be a list of objects")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: not an answer that can be read ({error!r}); delete it and ask again.") from error
    return content


def _rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value
