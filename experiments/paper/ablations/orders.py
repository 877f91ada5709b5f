"""Table 3, and backpropagation beside it, under other orders of messages than ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean

from experiments.paper.ablations.cases import Bench, Case, Row
from experiments.paper.ablations.full_size import WEIGHTS
from experiments.paper.ablations.history import Epoch, means, stop
from experiments.paper.ablations.star import INPUTS_FIRST, ORDERS, OUTPUT_FIRST, Order, train
from experiments.paper.cells import Experiment, find_cell
from experiments.paper.significance import Score
from experiments.pool import Watch

PUBLISHED = {  # tables 3 and 1, by T
    "analytic": {2: 0.770, 5: 0.874, 8: 0.879, 20: 0.880},
    "backprop": {2: 0.947, 5: 0.945},
}
EARLY = (1, 2, 3)  # epochs after which the test accuracy is kept
NEAR = 0.01


def orders(bench: Bench) -> Iterator[Case]:
    """Inputs first, beliefs are exact from T = 3 on, so that T = 5 stands for more; edge by edge is one of the two."""
    cell = find_cell("cjinf/LGM/Dense(5)", "paper").experiment
    wanted = [("analytic", name, last, t) for name in ORDERS for last in (True, False) for t in PUBLISHED["analytic"]]
    wanted = [one for one in wanted if one[1] != INPUTS_FIRST or one[3] == 2 or (one[3] == 5 and one[2])]
    wanted += [("backprop", OUTPUT_FIRST, True, t) for t in PUBLISHED["backprop"]]
    for gradient, name, last, t in wanted:
        e = replace(cell, iterations=t, gradient=gradient)
        row = {"gradient": gradient, "order": name, "last belief": last, "T": t}
        yield Case(row, partial(_row, bench, e, Order(name, t, last)), bench.effort(e, "cap"))


def _row(bench: Bench, e: Experiment, order: Order) -> list[Row]:
    analytic = e.gradient == "analytic"
    histories = train(bench.options.cap(e), order, analytic, bench.seeds, bench.parts(e), Watch(bench.budget))
    return [figures(histories, e.patience)]


def figures(histories: Sequence[Sequence[Epoch]], patience: int | None) -> Row:
    """Over seeds: test accuracies after the first epochs, and where training stops."""
    ends = [stop(history, patience) for history in histories]
    early = {f"epoch {n}": fmean(h[n - 1].accuracy for h in histories) for n in EARLY if len(histories[0]) >= n}
    row: Row = early | dict(zip(WEIGHTS, means(ends), strict=True))
    spread = Score.of(end.best.accuracy for end in ends).std
    return row | {"std": spread, "epochs": fmean(end.epochs for end in ends)}


def orders_shown(rows: Sequence[Row]) -> list[Row]:
    """By T, beside the paper."""
    lines: list[Row] = []
    for gradient, published in PUBLISHED.items():
        lines.append(
            {"gradient": gradient, "order": "the paper"} | {f"T={t}": f"{x:.3f}" for t, x in published.items()}
        )
        for name, last in _orders(rows, gradient):
            own = [row for row in rows if (row["gradient"], row["order"], row["last belief"]) == (gradient, name, last)]
            line = {"gradient": gradient, "order": name, "last belief": "yes" if last else "no"}
            lines.append(line | {"accuracy": "at the end"} | {f"T={row['T']}": _text(row) for row in own})
            second = {f"T={row['T']}": f"{row['epoch 2']:.3f}" for row in own if "epoch 2" in row}
            lines.append(line | {"accuracy": "after two epochs"} | second)
    heads = ("gradient", "order", "last belief", "accuracy", *(f"T={t}" for t in PUBLISHED["analytic"]))
    return [{head: line.get(head, "") for head in heads} for line in lines]


def _orders(rows: Sequence[Row], gradient: str) -> list[tuple[str, bool]]:
    return list(dict.fromkeys((row["order"], row["last belief"]) for row in rows if row["gradient"] == gradient))


def _text(row: Row) -> str:
    """Such as "0.874 ± 0.017 (3)", with the number of seeds."""
    return f"{row['best weights']:.3f}" + (f" ± {row['std']:.3f} ({row['seeds']})" if row["seeds"] > 1 else "")


def orders_summary(rows: Sequence[Row]) -> str:
    """How many of the paper's numbers each order gives."""
    shares = []
    for name, last in _orders(rows, "analytic"):
        own = [row for row in rows if (row["gradient"], row["order"], row["last belief"]) == ("analytic", name, last)]
        for key, when in (("best weights", "at the end"), ("epoch 2", "after two epochs")):
            near = [abs(row[key] - PUBLISHED["analytic"][row["T"]]) <= NEAR for row in own if key in row]
            shares.append(
                f"{sum(near)} of {len(near)} {when} with {name}, {'with' if last else 'without'} a last belief"
            )
    return f"By the analytic gradient, within {NEAR} of the paper are {'; '.join(shares)}."
