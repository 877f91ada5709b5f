"""When to stop and which weights to test: rules beside each other, all read off the epochs of one long training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from experiments.paper.ablations.cases import Bench, Case, Row
from experiments.paper.ablations.history import as_text, from_text
from experiments.paper.cells import Cell, Experiment, all_cells, find_cell
from experiments.paper.tables import TABLE1, TABLE2, TABLE4, TABLE5, TABLE6, TABLE7, TABLE8
from experiments.pool import TimeUp

LONGEST = 20  # epochs without a lower validation loss
NONE, LBP, RHO, DIVIDED = "none", "LBP", "E = rho theta", "TRW that divides by rho"
COLOURS = "start from N(0, 2 / colours)"
CHANGES: Mapping[str, Mapping[str, Any]] = {  # of TRW; from LBP on, where pixels are missing
    NONE: {},
    RHO: {"method": "trw", "start": "rho"},  # of Dense: docs/scale.md has Conv and Local
    DIVIDED: {"method": "trw"},  # of Conv and Local in table 4
    COLOURS: {"start": "colours"},  # of table 5, which N(0, 1) does not fit; the same for two colours
    LBP: {"method": "lbp"},  # all cells; what is below it one
    "parallel TRW": {"schedule": "parallel"},
    "masks drawn once": {"fixed_masks": True},
    "unaries from the data": {"start": "paper from data"},
}
FIRST = (  # of the trainings that take longest
    "exp_partial_input_m/Local (0.3)/LGM",
    "exp_partial_input_fm/Conv (0.3)/LGM",
    "exp_partial_input_fm/Local (0.7)/LGM",
    "mpcompare/SeqTRW/Conv",
    "fashionmnist_nncomp/Conv/Soft",
    "mpcompare/SeqTRW/Local",
    "fashionmnist_nncomp/Local/Soft",
)

ONE = FIRST[0]

Training = tuple[Cell, str]  # with a change


def patience(bench: Bench) -> Iterator[Case]:
    """Cells as the paper but for when they stop, what tells most first; a row is a training, done or left."""
    known = {(row["cell"], row["change"], row["seed"]): row for row in bench.rows()}
    seeds = range(max(bench.options.seeds or 1, *(1 + seed for *_, seed in known), 1))
    trainings = sorted(((seed, training) for training in wanted() for seed in seeds), key=_order)
    for seed, (cell, change) in trainings:
        e = replace(one_function(cell.experiment), patience=LONGEST, **CHANGES[change])
        name = {"cell": cell.name, "change": change, "seed": seed}
        row = known.get((cell.name, change, seed))
        yield Case(name, partial(_row, bench, e, seed, row), bench.effort(e, "cap", seeds=False) | {"ended": 1})


def wanted() -> Iterator[Training]:
    """Of all cells that are trained alike the first, with and without changes."""
    cells: dict[Experiment, Cell] = {}
    for cell in judged_cells():
        cells.setdefault(one_function(cell.experiment), cell)
    for cell in cells.values():
        yield cell, NONE
        if cell.is_lgm and cell.experiment.visible:
            yield from ((cell, change) for change in list(CHANGES)[4:] if change == LBP or cell.name == ONE)
    yield find_cell("mpcompare/SeqTRW/Dense", "paper"), RHO
    yield from ((find_cell(f"mpcompare/SeqTRW/{shape}", "paper"), DIVIDED) for shape in ("Conv", "Local"))
    yield from ((cell, COLOURS) for cell in coloured_cells())


def judged_cells() -> list[Cell]:
    """Cells of which the paper says all but how a training stops: none of table 3, nor those with many colours."""
    tables = (TABLE2, TABLE4, TABLE6, TABLE7, TABLE8, TABLE5, TABLE1)
    cells = [cell for table in tables for cell in all_cells([table], ["paper"])]
    return [
        cell
        for cell in cells
        if cell.paper.accuracy is not None
        and not cell.paper.failed
        and cell.experiment.learner != "cd"
        and (cell.table is not TABLE5 or cell.experiment.input_labels == 2)
    ]


def coloured_cells() -> list[Cell]:
    """Those of table 5 with 4 to 32 colours; an epoch with 256 takes hours."""
    return [cell for cell in all_cells([TABLE5], ["paper"]) if 2 < cell.experiment.input_labels < 256]


def one_function(e: Experiment) -> Experiment:
    """What experiments have in common that compute one function: on a star LBP and TRW are exact, as is one sweep."""
    star = e.model == "dense" and len(e.hidden) < 2 and e.learner == "lgm" and e.method != "mf"
    return replace(e, method="lbp", schedule="sweep", iterations=1) if star else e


def _order(training: tuple[int, Training]) -> tuple[int, int]:
    """What tells most first."""
    seed, (cell, change) = training
    long, missing = cell.experiment.method == "published trw", cell.experiment.visible is not None
    stages = (
        change == LBP and cell.name in FIRST,
        change == DIVIDED,
        change == COLOURS and cell.experiment.input_labels < 32,  # of 32 an epoch has 12,000 steps
        change == COLOURS,
        change == NONE and cell.name in FIRST and not missing,
        change not in (NONE, LBP, RHO, COLOURS),  # of ONE
        change == NONE and cell.is_lgm and not long,
        change == NONE and cell.is_network and missing,
        change == NONE and cell.is_lgm and not missing,
        change == NONE and cell.is_network,
        change == RHO,
        change == LBP,
        True,
    )
    return seed, stages.index(True)


def _row(bench: Bench, e: Experiment, seed: int, known: Row | None) -> list[Row]:
    """One that is left tells where shorter patience would have ended it."""
    history, ended = bench.history(e, seed)
    if not history or (known and len(from_text(known["history"])) >= len(history) and not ended):
        raise TimeUp
    return [{"ended": int(ended), "history": as_text(history)}]
