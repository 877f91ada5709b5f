"""What the results say of one cell, in numbers and in a few characters."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from experiments.paper.cells import Cell
from experiments.paper.judging import CHANCE
from experiments.paper.results import Run, Store, counted, cut_short
from torchlgm.learn import spread

ROUNDING = 0.0005  # the paper has three digits
NEAR = 0.01  # a cell of ours and of the paper
COLUMN_NAMES = {"said": "the paper", "paper": "as the paper", "ours": "ours"}

Summaries = dict[Cell, dict[str, Any]]


def summary(cell: Cell, store: Store) -> dict[str, Any]:
    """What is known of a cell: accuracy over seeds, difference to the paper, epochs and seconds."""
    runs = list(store.runs(cell).values())
    good = counted(runs, cell)
    found: dict[str, Any] = {"cell": cell.name, "column": cell.way, "paper": cell.number.accuracy, "seeds": len(runs)}
    found |= {"counted": len(good), "failed": sum("accuracy" not in run for run in runs)}
    found["machine_seconds"] = sum(run["own_seconds"] for run in runs)
    if not good:
        return found
    accuracy = spread(run["accuracy"] for run in good)
    found["at_chance"] = 0 if cell.number.failed else sum(run["accuracy"] < CHANCE for run in good)
    found |= {"mean": accuracy.mean, "std": accuracy.std, "epochs": fmean(run["epochs"] for run in good)}
    timed = [run for run in good if on_gpu(run)] or good
    found |= {"cut_short": any(cut_short(run, cell) for run in good), "seconds": fmean(run["seconds"] for run in timed)}
    found["timed_on"] = "GPU" if on_gpu(timed[0]) else "CPU"
    if cell.number.accuracy is not None:
        found["difference"] = accuracy.mean - cell.number.accuracy
    return found


def on_gpu(run: Run) -> bool:
    return "CPU" not in run["machine"]


def accuracy_of(s: dict[str, Any]) -> str:
    if "mean" not in s:
        return "diverged" if s["failed"] else "-"
    n = s["counted"]
    lost = f", {s['failed']} diverged" if s["failed"] else ""
    lost += f", {s['at_chance']} at chance" if s["at_chance"] else ""
    return f"{s['mean']:.4f} ± {s['std']:.4f} ({n}{lost})" if n > 1 else f"{s['mean']:.4f} (1{lost})"
