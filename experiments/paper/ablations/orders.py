"""Table 3, and backpropagation beside it, under the other order of messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean, stdev

from experiments.paper.ablations.cases import Bench, Case, Row
from experiments.paper.ablations.full_size import WEIGHTS
from experiments.paper.ablations.history import means, stop
from experiments.paper.ablations.star import ORDERS, Order, train
from experiments.paper.cells import Experiment, find_cell
from experiments.pool import Watch

PUBLISHED = {  # tables 3 and 1, by T
    "analytic": {2: 0.770, 5: 0.874, 8: 0.879, 20: 0.880},
    "backprop": {2: 0.947, 5: 0.945},
}
EARLY = (1, 2, 3)  # epochs after which the test accuracy is kept


def orders(bench: Bench) -> Iterator[Case]:
    """The order that differs from ours on a star; edge by edge is one of the two."""
    cell = find_cell("cjinf/LGM/Dense(5)", "paper").experiment
    for gradient, t in ((gradient, t) for gradient, by_t in PUBLISHED.items() for t in by_t):
        order, e = Order(ORDERS[1], t), replace(cell, iterations=t, gradient=gradient)
        name = {"order": order.name, "gradient": gradient, "T": t}
        yield Case(name, partial(_row, bench, e, order), bench.effort(e, "cap"))


def _row(bench: Bench, e: Experiment, order: Order) -> list[Row]:
    analytic = e.gradient == "analytic"
    histories = train(bench.options.cap(e), order, analytic, bench.seeds, bench.parts(e), Watch(bench.budget))
    ends = [stop(history, e.patience) for history in histories]
    row: Row = {f"epoch {n}": fmean(h[n - 1].accuracy for h in histories) for n in EARLY if len(histories[0]) >= n}
    row |= dict(zip(WEIGHTS, means(ends), strict=True))
    spread = stdev(end.best.accuracy for end in ends) if len(ends) > 1 else 0.0
    return [row | {"std": spread, "epochs": fmean(end.epochs for end in ends)}]


def orders_shown(rows: Sequence[Row]) -> list[Row]:
    keys = ("gradient", "T", *(f"epoch {epoch}" for epoch in EARLY))
    shown = []
    for row in rows:
        accuracy = f"{row['best weights']:.4f}" + (f" ± {row['std']:.4f}" if row["seeds"] > 1 else "")
        shown.append({key: row.get(key, "") for key in keys} | {"test accuracy": accuracy, "seeds": row["seeds"]})
        shown[-1]["paper"] = f"{PUBLISHED[row['gradient']][row['T']]:.3f}"
    return shown


def orders_summary(rows: Sequence[Row]) -> str:
    """How far accuracies are from the paper's, at the end of training and after two epochs."""

    def gaps(gradient: str, key: str) -> str:
        own = [row for row in rows if row["gradient"] == gradient]
        return ", ".join(f"T={row['T']} {row[key] - PUBLISHED[gradient][row['T']]:+.3f}" for row in own)

    return (
        f"The analytic gradient less the paper's accuracy: {gaps('analytic', 'best weights')} at the end of training; "
        f"{gaps('analytic', 'epoch 2')} after two epochs. Backpropagation: {gaps('backprop', 'best weights')}."
    )
