"""Table 3 under other orders of messages, and cells of one hidden layer under other rules of stopping."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from statistics import fmean, stdev

from experiments.paper.ablations.cases import Bench, Case, Row
from experiments.paper.ablations.full_size import WEIGHTS
from experiments.paper.ablations.star import ORDERS, Order, stop, train
from experiments.paper.cells import Experiment, find_cell
from experiments.pool import Watch

PUBLISHED = {2: 0.770, 5: 0.874, 8: 0.879, 20: 0.880}  # table 3, by T
EARLY = (1, 2, 3)  # epochs after which the test accuracy is kept
PATIENCE = (5, 10, 20)
CELLS = ("softclamp/LGM/Soft clamp",)


def orders(bench: Bench) -> Iterator[Case]:
    """The order that differs from ours on a star; edge by edge is one of the two."""
    cell = find_cell("cjinf/LGM/Dense(5)", "paper").experiment
    for t in (2, 5, 8):  # T=20 takes an hour on a core
        order, e = Order(ORDERS[1], t), replace(cell, iterations=t)
        yield Case({"order": order.name, "T": t}, partial(_row, bench, e, order), bench.effort(e, "cap"))


def _row(bench: Bench, e: Experiment, order: Order) -> list[Row]:
    histories = train(bench.options.cap(e), order, True, bench.seeds, bench.parts(e), Watch(bench.budget))
    ends = [stop(history, e.patience) for history in histories]
    row: Row = {f"epoch {n}": fmean(h[n - 1].accuracy for h in histories) for n in EARLY if len(histories[0]) >= n}
    row |= dict(zip(WEIGHTS, (fmean(end[k].accuracy for end in ends) for k in range(2)), strict=True))
    spread = stdev(best.accuracy for best, *_ in ends) if len(ends) > 1 else 0.0
    return [row | {"std": spread, "epochs": fmean(count for *_, count in ends)}]


def orders_shown(rows: Sequence[Row]) -> list[Row]:
    keys = ("order", "T", *(f"epoch {epoch}" for epoch in EARLY))
    return [
        {key: row.get(key, "") for key in keys}
        | {"test accuracy": f"{row['best weights']:.4f} ± {row['std']:.4f}", "paper": f"{PUBLISHED[row['T']]:.3f}"}
        for row in rows
    ]


def orders_summary(rows: Sequence[Row]) -> str:
    """How far accuracies are from the paper's, at the end of training and after two epochs."""
    ends, early = (
        ", ".join(f"T={row['T']} {row[key] - PUBLISHED[row['T']]:+.3f}" for row in rows)
        for key in ("best weights", "epoch 2")
    )
    return f"Less the paper's accuracy: {ends} at the end of training; {early} after two epochs."


def patience(bench: Bench) -> Iterator[Case]:
    """Cells of one hidden layer under other rules of stopping, all from one training."""

    def make(e: Experiment, paper: float | None) -> list[Row]:
        histories = train(
            bench.options.cap(e), Order(ORDERS[0], 2), False, bench.seeds, bench.parts(e), Watch(bench.budget)
        )
        rows = []
        for patience in PATIENCE:
            ends = [stop(history, patience) for history in histories]
            means = (fmean(end[k].accuracy for end in ends) for k in range(2))
            rows.append({"patience": patience, "paper": paper, **dict(zip(WEIGHTS, means, strict=True))})
            rows[-1] |= {"epochs": fmean(count for *_, count in ends)}
        return rows

    for name in CELLS:
        cell = find_cell(name, "paper")
        e = replace(cell.experiment, patience=max(PATIENCE))
        yield Case({"cell": name}, partial(make, e, cell.paper.accuracy), bench.effort(e, "cap"))


def patience_shown(rows: Sequence[Row]) -> list[Row]:
    order = ("cell", "paper", "patience", *WEIGHTS, "epochs", "seeds")
    return [{key: row[key] for key in order} for row in rows]


def patience_summary(rows: Sequence[Row]) -> str:
    """The mean signed distance to the paper of each rule."""
    rules = []
    for patience, which in product(PATIENCE, WEIGHTS):
        gaps = [row[which] - row["paper"] for row in rows if row["patience"] == patience]
        rules.append(f"{which} after a patience of {patience} {fmean(gaps):+.4f}")
    return f"Mean signed difference to the paper: {', '.join(rules)}."
