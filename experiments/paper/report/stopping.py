"""Rules of stopping, judged by the epochs of trainings that went on for longer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple

from experiments.paper.ablations.history import Epoch, from_text, smoothed, stop, stopped
from experiments.paper.ablations.stopping import COLOURS, NONE, coloured_cells, judged_cells, one_function
from experiments.paper.cells import Cell, Experiment, all_cells, find_cell
from experiments.paper.report.summary import NEAR
from experiments.paper.tables import TABLE3

PATIENCE = (5, 10, 20)
RISE = 30  # epochs

Rows = Sequence[Mapping[str, Any]]
Histories = Mapping[tuple[str, str], list[list[Epoch]]]  # of the seeds, by cell and change


class Rule(NamedTuple):
    """End after so many epochs without a lower validation loss, or mean of five of them; test which weights."""

    patience: int
    loss: str = "plain"
    weights: str = "best"

    def of(self, history: Sequence[Epoch], cap: int) -> float | None:
        """The test accuracy; None if the training was left before the rule ends it."""
        losses = smoothed(history) if self.loss == "smoothed" else [epoch.loss for epoch in history]
        end = stop(history, self.patience, losses)
        if not stopped(losses[: end.epochs], self.patience) and len(history) < cap:
            return None
        return (end.best if self.weights == "best" else end.last).accuracy


RULES = tuple(Rule(*rule) for rule in product(PATIENCE, ("plain", "smoothed"), ("best", "last")))
MAIN = {  # of them, in words
    Rule(5): "5 epochs, best weights (our column)",
    Rule(5, weights="last"): "5 epochs, last weights",
    Rule(10): "10 epochs, best weights",
    Rule(10, weights="last"): "10 epochs, last weights",
    Rule(20): "20 epochs, best weights",
    Rule(20, weights="last"): "20 epochs, last weights",
}


class Trained(NamedTuple):
    """A cell, and what was changed of it beside when it stops."""

    cell: Cell
    change: str = NONE


def _group(trained: Trained) -> str:
    e = trained.cell.experiment
    what = ", pixels missing" * (e.visible is not None) + ", 4 to 32 colours" * (trained.change == COLOURS)
    return ("LGMs" if trained.cell.is_lgm else "networks") + what


def stopping(rows: Rows) -> Mapping[str, Any] | None:
    """Every rule by groups of cells, every cell, and what else was changed."""
    if not rows:
        return None
    histories: dict[tuple[str, str], list[list[Epoch]]] = {}
    for row in rows:
        histories.setdefault((row["cell"], row["change"]), []).append(from_text(row["history"]))
    names: dict[Experiment, str] = {}
    for cell in judged_cells():
        names.setdefault(one_function(cell.experiment), cell.name)
    cells = {Trained(cell): histories.get((names[one_function(cell.experiment)], NONE), []) for cell in judged_cells()}
    cells |= {Trained(cell, COLOURS): histories.get((cell.name, COLOURS), []) for cell in coloured_cells()}
    cap = max(row["cap"] for row in rows)
    gaps = {rule: _gaps(rule, cells, cap) for rule in RULES}
    groups = dict.fromkeys(_group(trained) for own in gaps.values() for trained in own)
    lines = {rule: {name: _words([own[t] for t in own if _group(t) == name]) for name in groups}
             for rule, own in gaps.items()}  # fmt: skip
    lgms = {rule: [gap for t, gap in own.items() if t.cell.is_lgm] for rule, own in gaps.items()}
    return {
        "rules": [{**rule._asdict(), **line} for rule, line in lines.items()],
        "main": [{"rule": words} | _judged(lgms[rule]) for rule, words in MAIN.items()],
        "cells": [line for trained, own in cells.items() if (line := _cell(trained.cell, own, cap))],
        "changes": [
            _change(*of, own[0], histories[names[one_function(find_cell(of[0], "paper").experiment)], NONE][0])
            for of, own in histories.items()
            if of[1] not in (NONE, COLOURS)
        ],
        "left": [_left(t.cell, own[0]) for t, own in cells.items() if own and Rule(10).of(own[0], cap) is None],
        "all": {p: _words(lgms[Rule(p)]) for p in PATIENCE},
        "last": {p: _words(lgms[Rule(p, weights="last")]) for p in PATIENCE},
        "trainings": len(rows),
    }


def _gaps(rule: Rule, cells: Mapping[Trained, list[list[Epoch]]], cap: int) -> Mapping[Trained, float]:
    values = {trained: [rule.of(history, cap) for history in histories] for trained, histories in cells.items()}
    known = {trained: [value for value in own if value is not None] for trained, own in values.items()}
    return {trained: fmean(own) - (trained.cell.paper.accuracy or 0.0) for trained, own in known.items() if own}


def _judged(gaps: Sequence[float]) -> dict[str, Any]:
    """What a rule makes of the LGM cells that it ended, and how many of all it could make right at most."""
    near = sum(abs(gap) <= NEAR for gap in gaps)
    all_lgms = [
        cell for cell in all_cells(ways=["ours"]) if cell.is_lgm and cell.paper.accuracy and not cell.paper.failed
    ]
    hopeless = list(all_cells([TABLE3], ["paper"], "Dense*"))  # by any rule of stopping
    most = len(all_lgms) - len(hopeless) - (len(gaps) - near)
    row: dict[str, Any] = {"LGM cells ended": len(gaps), "mean difference": f"{fmean(gaps):+.4f}" if gaps else "-"}
    return row | {f"within {NEAR}": near, f"at most, of {len(all_lgms)}": most}


def _words(gaps: Sequence[float]) -> str:
    """Such as "+0.0012, 40 of 41 within 0.01"."""
    return f"{fmean(gaps):+.4f}, {sum(abs(gap) <= NEAR for gap in gaps)} of {len(gaps)}" if gaps else "-"


def _cell(cell: Cell, histories: list[list[Epoch]], cap: int) -> Mapping[str, Any] | None:
    if not histories:
        return None
    line: dict[str, Any] = {"cell": cell.name, "paper": f"{cell.paper.accuracy:.3f}"}
    for patience in PATIENCE:
        line[f"{patience}, best"] = _mean(Rule(patience), histories, cap)
    line |= {f"{p}, last": _mean(Rule(p, weights="last"), histories, cap) for p in (5, 20)}
    return line | {"epochs": f"{fmean(map(len, histories)):.0f}"}


def _mean(rule: Rule, histories: list[list[Epoch]], cap: int) -> str:
    known = [value for history in histories if (value := rule.of(history, cap)) is not None]
    return f"{fmean(known):.4f}" if known else "-"


def _change(name: str, change: str, history: Sequence[Epoch], unchanged: Sequence[Epoch]) -> Mapping[str, Any]:
    """What is changed beside when to stop, and the same without, after as many epochs."""
    count = min(len(history), len(unchanged))
    line: dict[str, Any] = {"cell": name, "change": change, "epochs": count}
    line |= {"changed": f"{min(history[:count]).accuracy:.4f}", "unchanged": f"{min(unchanged[:count]).accuracy:.4f}"}
    return line | {"paper": f"{find_cell(name, 'paper').paper.accuracy:.3f}"}


def _left(cell: Cell, history: Sequence[Epoch]) -> Mapping[str, Any]:
    """Where a training has come that 10 epochs have not ended."""
    rise = f"{history[-1].accuracy - history[-RISE - 1].accuracy:+.4f}" if len(history) > 3 * RISE else ""
    line: dict[str, Any] = {"cell": cell.name, "paper": f"{cell.paper.accuracy:.3f}", "epochs": len(history)}
    return line | {"accuracy so far": f"{min(history).accuracy:.4f}", f"gained in the last {RISE} epochs": rise}
