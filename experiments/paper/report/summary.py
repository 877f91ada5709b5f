"""What the results say of one cell, in numbers and in a few characters."""

from collections.abc import Iterable
from statistics import fmean
from typing import Any

from experiments.paper.cells import Cell
from experiments.paper.significance import CHANCE, Score
from experiments.paper.store import Run, Store, counted

ROUNDING = 0.0005  # the paper has three digits
NEAR = 0.01  # a cell of ours and of the paper
COLUMN_NAMES = {"published": "the paper", "paper": "as the paper", "ours": "ours"}

Summary = dict[str, Any]
Summaries = dict[Cell, Summary]


def summary(cell: Cell, store: Store) -> Summary:
    """What is known of a cell: accuracy over seeds, difference to the paper, epochs and seconds."""
    runs = list(store.runs(cell).values())
    good = counted(runs)
    result: Summary = {"cell": cell.name, "column": cell.way, "paper": cell.paper.accuracy, "counted": len(good)}
    result |= {"failed": len(runs) - sum("accuracy" in run for run in runs)}
    if not good:
        return result
    accuracy = Score.of(run["accuracy"] for run in good)
    result["at_chance"] = 0 if cell.paper.failed else sum(run["accuracy"] < CHANCE for run in good)
    result |= {"mean": accuracy.mean, "std": accuracy.std, "epochs": fmean(run["epochs"] for run in good)}
    timed = [run for run in good if on_gpu(run)] or good
    result["seconds"] = fmean(run["seconds"] for run in timed)
    result["timed_on"] = "GPU" if on_gpu(timed[0]) else "CPU"
    if cell.paper.accuracy is not None:
        result["difference"] = accuracy.mean - cell.paper.accuracy
    return result


def summaries(cells: Iterable[Cell], store: Store) -> Summaries:
    """Of the cells that have an accuracy."""
    return {cell: s for cell in cells if "mean" in (s := summary(cell, store))}


def on_gpu(run: Run) -> bool:
    return "CPU" not in run["machine"]


def accuracy_of(s: Summary) -> str:
    if "mean" not in s:
        return "diverged" if s["failed"] else "-"
    n = s["counted"]
    lost = f", {s['failed']} diverged" if s["failed"] else ""
    lost += f", {s['at_chance']} at chance" if s["at_chance"] else ""
    return f"{s['mean']:.4f} ± {s['std']:.4f} ({n}{lost})" if n > 1 else f"{s['mean']:.4f} (1{lost})"
