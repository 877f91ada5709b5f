"""Rules of stopping, judged by the epochs of trainings that went on for longer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple

from experiments.paper.ablations.history import Epoch, from_text, smoothed, stop, stopped
from experiments.paper.ablations.stopping import CHANGES, COLOURS, LBP, NONE, coloured_cells, judged_cells, one_function
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


class Trained(NamedTuple):
    """A cell, and what was changed of it beside when it stops."""

    cell: Cell
    change: str = NONE


def _group(trained: Trained) -> str:
    e = trained.cell.experiment
    what = ("LGMs" if trained.cell.is_lgm else "networks") + ", pixels missing" * (e.visible is not None)
    return what if trained.change == NONE else f"{what}, {NAMES[trained.change]}"


NAMES = {COLOURS: "4 to 32 colours", LBP: "LBP"}


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
    missing = [cell for cell in judged_cells() if cell.is_lgm and cell.experiment.visible]
    cells |= {Trained(cell, LBP): histories.get((cell.name, LBP), []) for cell in missing}
    cap = max(row["cap"] for row in rows)
    gaps = {rule: _gaps(rule, cells, cap) for rule in RULES}
    groups = dict.fromkeys(_group(trained) for own in gaps.values() for trained in own)
    lines = {rule: {name: _words([own[t] for t in own if _group(t) == name]) for name in groups}
             for rule, own in gaps.items()}  # fmt: skip
    lgms = {rule: [gap for t, gap in own.items() if t.cell.is_lgm and t.change != LBP] for rule, own in gaps.items()}
    return {
        "rules": [{**rule._asdict(), **line} for rule, line in lines.items()],
        "main": [{"rule": words} | lines[rule] for rule, words in MAIN.items()],
        "cells": [line for trained, own in cells.items() if (line := _cell(trained, own, cap))],
        "changes": _changes(histories, cap),
        "left": [_left(t, own) for t, own in cells.items() if own and Rule(10).of(own[0], cap) is None],
        "all": {p: _words(lgms[Rule(p)]) for p in PATIENCE},
        "last": {p: _words(lgms[Rule(p, weights="last")]) for p in PATIENCE},
        "trainings": len(rows),
    }


def _gaps(rule: Rule, cells: Mapping[Trained, list[list[Epoch]]], cap: int) -> Mapping[Trained, float]:
    values = {trained: [rule.of(history, cap) for history in histories] for trained, histories in cells.items()}
    known = {trained: [value for value in own if value is not None] for trained, own in values.items()}
    return {trained: fmean(own) - (trained.cell.paper.accuracy or 0.0) for trained, own in known.items() if own}


def _words(gaps: Sequence[float]) -> str:
    """Such as "+0.0012, 40 of 41 within 0.01"."""
    return f"{fmean(gaps):+.4f}, {sum(abs(gap) <= NEAR for gap in gaps)} of {len(gaps)}" if gaps else "-"


def _cell(trained: Trained, histories: list[list[Epoch]], cap: int) -> Mapping[str, Any] | None:
    if not histories:
        return None
    cell, change = trained
    line: dict[str, Any] = {
        "cell": cell.name + f" ({NAMES[LBP]})" * (change == LBP),
        "paper": f"{cell.paper.accuracy:.3f}",
    }
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
        if change in (NONE, *NAMES):
            continue
        line: dict[str, Any] = {"cell": name, "change": change}
        line |= {f"patience {p}": _mean(Rule(p), own, cap) for p in PATIENCE}
        lines.append(line | {"epochs": f"{fmean(map(len, own)):.0f}"})
    return sorted(lines, key=lambda line: list(CHANGES).index(line["change"]))


def _left(trained: Trained, histories: list[list[Epoch]]) -> str:
    """Where a training has come that 10 epochs have not ended."""
    best, cell = min(histories[0]), trained.cell
    name = cell.name + f", {NAMES[LBP]}" * (trained.change == LBP)
    return f"{name} ({best.accuracy:.4f} after {len(histories[0])} epochs, paper {cell.paper.accuracy:.3f})"
