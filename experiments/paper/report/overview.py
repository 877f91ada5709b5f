"""What was run: how many cells and trainings, and what they cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import fmean

from experiments.paper.cells import Cell
from experiments.paper.report.summary import COLUMN_NAMES, on_gpu, summary
from experiments.paper.results import Run, Store
from experiments.paper.tables import COLUMNS, TABLES
from experiments.paper.words import number_of

GOAL = 30  # minutes of a GPU for all cells but those with 256 colours
FEW = 3  # cells that are named rather than counted

HEADS = ("table", "numbers of the paper", "as the paper", "ours", "trainings")
MINUTES = ("GPU minutes", "CPU minutes", "GPU minutes, had all run on one")


def section(cells: Sequence[Cell], store: Store) -> str:
    """A table of the tables: their numbers, how many of them we have in either column, and what that took."""
    heads = HEADS + MINUTES
    lines = ["## What was run", "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    total = [0.0] * (len(heads) - 1)
    needs = Needs(cells, store)
    for number, table in enumerate(TABLES, 1):
        own = [cell for cell in cells if cell.table is table]
        theirs = sum(paper.accuracy is not None for _, _, paper in table.cells())
        known = [
            sum(cell.way == way and cell.number.accuracy is not None and bool(store.runs(cell)) for cell in own)
            for way in COLUMNS
        ]
        runs = [run for cell in own for run in store.runs(cell).values()]
        spent = [sum(run["own_seconds"] / 60 for run in runs if on_gpu(run) is gpu) for gpu in (True, False)]
        row = [theirs, *known, len(runs), *spent, needs.minutes(own)]
        total = [a + b for a, b in zip(total, row, strict=True)]
        lines.append(_counts(f"{number}: {table.label}", row))
    lines.append(_counts("all", total))
    machines = sorted({run["machine"] for cell in cells for run in store.runs(cell).values()})
    lines += ["", f"Machines: {'; '.join(machines) or 'none yet'}."]
    return "\n".join([*lines, *needs.said(), *_fewer_seeds(cells, store)])


def _counts(name: str, row: Sequence[float]) -> str:
    counts, minutes = row[: -len(MINUTES)], row[-len(MINUTES) :]
    return f"| {' | '.join([name, *[f'{n:.0f}' for n in counts], *[f'{n:.1f}' for n in minutes]])} |"


class Needs:
    """What trainings need of a GPU, or would need if they had run on one."""

    def __init__(self, cells: Sequence[Cell], store: Store) -> None:
        self.cells, self.runs = cells, {cell: list(store.runs(cell).values()) for cell in cells}
        self.rates: dict[object, list[float]] = defaultdict(list)  # seconds of an epoch, by cell and by kind
        for cell, runs in self.runs.items():
            for run in runs:
                if on_gpu(run) and "epochs" in run:
                    self.rates[cell].append(run["own_seconds"] / run["epochs"])
                    self.rates[_kind(cell)].append(run["own_seconds"] / run["epochs"])

    def minutes(self, cells: Sequence[Cell]) -> float:
        return sum(self._seconds(cell, run) or 0.0 for cell in cells for run in self.runs[cell]) / 60

    def said(self) -> Iterator[str]:
        guessed = [(cell, run) for cell, runs in self.runs.items() for run in runs if not on_gpu(run)]
        if not self.rates or not guessed:
            return
        few = [cell for cell in self.cells if cell.experiment.input_labels < 256]
        alike = sum(cell in self.rates for cell, _ in guessed)
        unknown = [cell for cell, run in guessed if self._seconds(cell, run) is None]
        gpus = sorted({run["machine"].split(",")[0] for runs in self.runs.values() for run in runs if on_gpu(run)})
        need, ours = self.minutes(few), self.minutes([cell for cell in few if cell.way == "ours"])
        yield ""
        yield (
            f"GPU minutes are those of the trainings that ran on one. The last column estimates what all would need of "
            f"one GPU alone ({', '.join(gpus)}), as many at once as then: each of the {len(guessed)} trainings that "
            f"ran on a CPU is taken to need for an epoch what other seeds of its cell did "
            f"({number_of(alike, 'training')}) or, where none had a GPU, the mean of all with the same learner, "
            f"model, batch and colours ({len(guessed) - alike - len(unknown)})."
        )
        if unknown:
            names = ", ".join(dict.fromkeys(cell.row for cell in unknown))
            yield f"Not in it: {number_of(len(unknown), 'training')} of a kind that never had a GPU ({names})."
        word = "met" if need <= GOAL else "missed"
        yield (
            f"Without the cells with 256 colours it is about {need:.0f} minutes ({ours:.0f} for our column): the goal "
            f"of {GOAL} minutes for all of these is {word}."
        )

    def _seconds(self, cell: Cell, run: Run) -> float | None:
        """None if nothing like it ran on a GPU."""
        if on_gpu(run):
            return run["own_seconds"]
        rates = self.rates.get(cell) or self.rates.get(_kind(cell))
        return fmean(rates) * run.get("epochs", 0) if rates else None


def _kind(cell: Cell) -> tuple[object, ...]:
    e = cell.experiment
    return e.learner, e.model, e.batch, e.colours


def _fewer_seeds(cells: Sequence[Cell], store: Store) -> Iterator[str]:
    lines = [line for way in COLUMNS for line in _fewer_in([cell for cell in cells if cell.way == way], store)]
    if lines:
        yield from ("", "Cells with fewer seeds than planned:", "", *lines)


def _fewer_in(cells: Sequence[Cell], store: Store) -> Iterator[str]:
    """One line for the cells of a column."""
    groups: dict[tuple[int, int], dict[int, list[Cell]]] = defaultdict(lambda: defaultdict(list))
    for cell in cells:
        s = summary(cell, store)
        have = s["counted"] + s["failed"]
        if 0 < have < cell.seeds:
            groups[have, cell.seeds][TABLES.index(cell.table) + 1].append(cell)
    said = [
        f"{have} of {planned} in " + ", ".join(_named(number, some) for number, some in tables.items())
        for (have, planned), tables in sorted(groups.items())
    ]
    if said:
        yield f"- {COLUMN_NAMES[cells[0].way]}: {'; '.join(said)}."


def _named(number: int, cells: Sequence[Cell]) -> str:
    if len(cells) > FEW:
        return f"{len(cells)} cells of table {number}"
    return f"{' and '.join(f'{cell.row}/{cell.column}' for cell in cells)} of table {number}"
