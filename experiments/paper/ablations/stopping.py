"""When to stop and which weights to test: rules beside each other, all read off one long training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from statistics import fmean
from typing import Any

from experiments.paper.ablations.cases import Bench, Case, Row
from experiments.paper.ablations.history import means, smoothed, stop
from experiments.paper.cells import Cell, Experiment, all_cells
from experiments.paper.report.summary import NEAR
from experiments.paper.tables import TABLE2, TABLE4, TABLE5, TABLE6, TABLE7, TABLE8

PATIENCE = (5, 10, 20)
RULES = ("best weights", "last weights", "smoothed loss")
NONE, RHO = "none", "E = rho theta"
CHANGES: Mapping[str, Mapping[str, Any]] = {  # of LGMs; the last four where pixels are missing
    NONE: {},
    RHO: {"method": "trw", "start": "rho"},
    "LBP": {"method": "lbp"},
    "parallel TRW": {"schedule": "parallel"},
    "masks drawn once": {"fixed_masks": True},
    "unaries from the data": {"start": "paper from data"},
}


def patience(models: Sequence[str], bench: Bench) -> Iterator[Case]:
    """The cells of tables 2, 4 and 6 to 8, and the soft one of table 5, as the paper but for when they stop."""
    for cell, change in _wanted(models):
        e = replace(cell.experiment, patience=max(PATIENCE), **CHANGES[change])
        if (
            cell.is_lgm and e.model == "dense" and e.method != "mf"
        ):  # one function, of which a sweep is the quickest form
            e = replace(e, method="lbp", schedule="sweep", iterations=1)
        name = {"cell": cell.name, "kind": "LGM" if cell.is_lgm else "network", "change": change}
        yield Case(name, partial(_rules, bench, e, cell.paper.accuracy), bench.effort(e, "cap"))


def _wanted(models: Sequence[str]) -> Iterator[tuple[Cell, str]]:
    """Cells and changes; LBP and TRW on Dense are one function, which the soft cell of table 2 has."""
    for cell in all_cells([TABLE2, TABLE4, TABLE5, TABLE6, TABLE7, TABLE8], ["paper"]):
        e, trw = cell.experiment, cell.is_lgm and cell.experiment.method == "published trw"
        if cell.paper.accuracy is None or e.learner == "cd" or e.model not in models:
            continue
        soft = cell.table is not TABLE5 or cell.column == "Soft"
        if soft and not (cell.table is TABLE4 and e.model == "dense" and cell.is_lgm and e.method != "mf"):
            yield cell, NONE
        if trw and (e.model != "dense" or e.schedule == "sequential"):
            yield cell, RHO
        if trw and e.visible is not None:
            yield from ((cell, change) for change in CHANGES if change not in (NONE, RHO))


def _rules(bench: Bench, e: Experiment, paper: float | None) -> list[Row]:
    histories = [bench.history(e, seed) for seed in bench.seeds]
    rows = []
    for patience in PATIENCE:
        ends = [stop(history, patience) for history in histories]
        smooth = [stop(history, patience, smoothed(history)) for history in histories]
        row = dict(zip(RULES, (*means(ends), means(smooth)[0]), strict=True))
        rows.append({"patience": patience, "paper": paper, **row, "epochs": fmean(end.epochs for end in ends)})
    return rows


def patience_shown(rows: Sequence[Row]) -> list[Row]:
    order = ("cell", "change", "paper", "patience", *RULES, "epochs", "seeds")
    return [{key: row.get(key, "-") for key in order} for row in rows]


def patience_summary(rows: Sequence[Row]) -> str:
    """The mean signed distance to the paper of each rule, and how many cells it brings near."""
    sentences = []
    for kind, change in dict.fromkeys((row["kind"], row["change"]) for row in rows):
        own = [row for row in rows if (row["kind"], row["change"]) == (kind, change)]
        rules = "; ".join(
            f"{rule} after {patience} {_gaps(row[rule] - row['paper'] for row in own if row['patience'] == patience)}"
            for patience, rule in product(PATIENCE, RULES)
        )
        words = f"{kind}s" + (f" with {change}" if change != NONE else "")
        sentences.append(f"{words}: {rules}.")
    return f"Mean signed difference to the paper, and cells within {NEAR}, by rule. {' '.join(sentences)}"


def _gaps(gaps: Iterable[float]) -> str:
    values = list(gaps)
    return f"{fmean(values):+.4f}, {sum(abs(gap) <= NEAR for gap in values)} of {len(values)}"
