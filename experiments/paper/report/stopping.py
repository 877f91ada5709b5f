"""Rules of stopping, judged by the epochs of trainings that went on for longer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple

from experiments.paper.ablations.history import Epoch, from_text, smoothed, stop, stopped
from experiments.paper.ablations.stopping import CHANGES, NONE, judged_cells, one_function
from experiments.paper.cells import Cell, Experiment
from experiments.paper.report.summary import NEAR

PATIENCE = (5, 10, 20)

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
    Rule(10): "10 epochs, best weights",
    Rule(20): "20 epochs, best weights",
    Rule(20, weights="last"): "20 epochs, last weights",
}


class Group(NamedTuple):
    lgm: bool
    missing: bool | None = None  # pixels; None: with and without

    def has(self, cell: Cell) -> bool:
        return cell.is_lgm == self.lgm and self.missing in (None, cell.experiment.visible is not None)


GROUPS = {
    "LGMs": Group(True, False),
    "LGMs, pixels missing": Group(True, True),
    "networks": Group(False, False),
    "networks, pixels missing": Group(False, True),
}


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
    cells = {cell: histories.get((names[one_function(cell.experiment)], NONE), []) for cell in judged_cells()}
    cap = max(row["cap"] for row in rows)
    gaps = {rule: _gaps(rule, cells, cap) for rule in RULES}
    lines = {rule: {name: _words(_of(own, group)) for name, group in GROUPS.items()} for rule, own in gaps.items()}
    return {
        "rules": [{**rule._asdict(), **line} for rule, line in lines.items()],
        "main": [{"rule": words} | lines[rule] for rule, words in MAIN.items()],
        "cells": [line for cell, own in cells.items() if (line := _cell(cell, own, cap))],
        "changes": _changes(histories, cap),
        "left": [_left(cell, own) for cell, own in cells.items() if own and Rule(10).of(own[0], cap) is None],
        "all": {p: _words(_of(gaps[Rule(p)], Group(lgm=True))) for p in PATIENCE},
        "last": _words(_of(gaps[Rule(20, weights="last")], Group(lgm=True))),
        "methods": "",
        "longest": max(len(own[0]) for cell, own in cells.items() if own and cell.experiment.visible),
        "trainings": len(rows),
    }


def _of(gaps: Mapping[Cell, float], group: Group) -> list[float]:
    return [gap for cell, gap in gaps.items() if group.has(cell)]


def _gaps(rule: Rule, cells: Mapping[Cell, list[list[Epoch]]], cap: int) -> Mapping[Cell, float]:
    values = {cell: [rule.of(history, cap) for history in histories] for cell, histories in cells.items()}
    known = {cell: [value for value in own if value is not None] for cell, own in values.items()}
    return {cell: fmean(own) - (cell.paper.accuracy or 0.0) for cell, own in known.items() if own}


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


def _changes(histories: Histories, cap: int) -> list[Mapping[str, Any]]:
    """What is changed beside when to stop, by the highest patience that ends both trainings."""
    lines = []
    for (name, change), own in histories.items():
        if change == NONE:
            continue
        line: dict[str, Any] = {"cell": name, "change": change}
        line |= {f"patience {p}": _mean(Rule(p), own, cap) for p in PATIENCE}
        lines.append(line | {"epochs": f"{fmean(map(len, own)):.0f}"})
    return sorted(lines, key=lambda line: list(CHANGES).index(line["change"]))


def _left(cell: Cell, histories: list[list[Epoch]]) -> str:
    """Where a training has come that 10 epochs have not ended."""
    best = min(histories[0])
    return f"{cell.name} ({best.accuracy:.4f} after {len(histories[0])} epochs, paper {cell.paper.accuracy:.3f})"
