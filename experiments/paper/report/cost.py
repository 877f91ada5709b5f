"""What was run: how many cells and trainings, and what they cost."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

from experiments.paper.cells import Cell
from experiments.paper.report.summary import COLUMN_NAMES, on_gpu
from experiments.paper.store import Run, Store, counted
from experiments.paper.tables import TABLES, WAYS


class Cost:
    """What trainings cost on a GPU, or would cost if they had run on one."""

    def __init__(self, cells: Sequence[Cell], store: Store) -> None:
        self.cells = cells
        self.runs = {cell: list(store.runs(cell).values()) for cell in cells}
        self.all_runs = [(cell, run) for cell, runs in self.runs.items() for run in runs]
        self.rates: dict[object, list[float]] = defaultdict(list)  # seconds of an epoch, by cell and by kind
        for cell, run in self.all_runs:
            if on_gpu(run) and "epochs" in run:
                self.rates[cell].append(run["own_seconds"] / run["epochs"])
                self.rates[_kind(cell)].append(run["own_seconds"] / run["epochs"])

    def minutes(self, cells: Sequence[Cell]) -> float:
        return sum(self._seconds(cell, run) or 0.0 for cell in cells for run in self.runs[cell]) / 60

    def _seconds(self, cell: Cell, run: Run) -> float | None:
        """None if nothing like it ran on a GPU."""
        if on_gpu(run):
            return run["own_seconds"]
        rates = self.rates.get(cell) or self.rates.get(_kind(cell))
        return fmean(rates) * run.get("epochs", 0) if rates else None

    def table(self) -> list[Mapping[str, object]]:
        """A row for each table and one for all: the paper's numbers, how many of them we have, and what that took."""
        rows = [self._row([cell for cell in self.cells if cell.table is table]) for table in TABLES]
        rows.append({key: sum(row[key] for row in rows) for key in rows[0]})
        names = [*(f"{table.number}: {table.label}" for table in TABLES), "all"]
        return [
            {"table": name} | {key: f"{n:.1f}" if "minutes" in key else f"{n:.0f}" for key, n in row.items()}
            for name, row in zip(names, rows, strict=True)
        ]

    def _row(self, cells: Sequence[Cell]) -> Mapping[str, float]:
        runs = [run for cell in cells for run in self.runs[cell]]
        gpu, cpu = (sum(run["own_seconds"] / 60 for run in runs if on_gpu(run) is which) for which in (True, False))
        published = [cell for cell in cells if cell.paper.accuracy is not None]
        known = {
            COLUMN_NAMES[way]: sum(cell.way == way and bool(self.runs[cell]) for cell in published) for way in WAYS
        }
        row = {"numbers of the paper": len({cell.name for cell in published}), **known, "trainings": len(runs)}
        return row | {"GPU minutes": gpu, "CPU minutes": cpu, "GPU minutes, had all run on one": self.minutes(cells)}

    def machines(self) -> str:
        return "; ".join(sorted({run["machine"] for _, run in self.all_runs})) or "none yet"

    def estimate(self) -> Mapping[str, object] | None:
        """What all would need of one GPU, and from how many trainings that is guessed; None if nothing is guessed."""
        guessed = [(cell, run) for cell, run in self.all_runs if not on_gpu(run)]
        if not self.rates or not guessed:
            return None
        few = [cell for cell in self.cells if cell.experiment.input_labels < 256]
        alike = sum(cell in self.rates for cell, _ in guessed)
        unknown = [cell for cell, run in guessed if self._seconds(cell, run) is None]
        return {
            "gpus": ", ".join(sorted({run["machine"].split(",")[0] for _, run in self.all_runs if on_gpu(run)})),
            "guessed": len(guessed),
            "by_cell": alike,
            "by_kind": len(guessed) - alike - len(unknown),
            "unknown": len(unknown),
            "unknown_rows": ", ".join(dict.fromkeys(cell.row for cell in unknown)),
            "minutes": self.minutes(few),
            "our_minutes": self.minutes([cell for cell in few if cell.way == "ours"]),
        }

    def fewer_seeds(self) -> list[str]:
        """The cells that have fewer seeds than planned."""
        have = {
            cell: len(counted(runs, cell)) + sum("error" in run for run in runs) for cell, runs in self.runs.items()
        }
        fewer = {cell: count for cell, count in have.items() if 0 < count < cell.seeds}
        return [f"{cell.name}, {COLUMN_NAMES[cell.way]}: {n} of {cell.seeds}" for cell, n in fewer.items()]


def _kind(cell: Cell) -> tuple[object, ...]:
    e = cell.experiment
    return e.learner, e.model, e.batch, e.colours
