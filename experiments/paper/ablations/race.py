"""A fair race of layered graphical models with networks of their shape.

Each learner has the same number of trials, recipes that are drawn at random from one space: networks, of two
activations, have twice as many as LGMs, which make up for 18 looks at validation data by which the decade of the
learning rates of LGMs was set. Trials are short; the best by validation accuracy, the mean over several data sets, are
trained for longer, and the best of those trains the cells. Test data are looked at once, in the end.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any

from experiments.paper.ablations.cases import Bench, Case, Row
from experiments.paper.cells import Cell, Experiment, find_cell

TRIALS = {"LGM": 12, "NN(relu)": 12, "NN(sigmoid)": 12}
LEARNERS = tuple(TRIALS)
FINALISTS = 2  # of each
TRIAL_EPOCHS, EPOCHS, BATCH = 8, 20, 100
KNOBS = ("learning_rate", "weight_decay", "drop_inputs", "drop_hidden", "smoothing", "start")
VALID, SHARES = "validation accuracy", ("0.3", "0.7")
STAGES = ("trial", "finalist", "cell")
DATA = {  # cells by whose data recipes are chosen
    "dense": ("mpcompare/SweepLBP/Dense", "fashionmnist/F/Soft"),
    "conv": ("mpcompare/SweepLBP/Conv", "fashionmnist_nncomp/Conv/Soft", "exp_partial_input_m/Conv (0.3)/LGM"),
    "local": ("mpcompare/SweepLBP/Local", "fashionmnist_nncomp/Local/Soft", "exp_partial_input_m/Local (0.3)/LGM"),
}


def cell_names(column: str) -> list[str]:
    """The cells that are trained in the end. With the input observed, LBP and TRW on Dense are one function."""
    word = column.capitalize()
    methods = ("ParMF", "SeqMF", "SweepMF", *(() if column == "dense" else ("ParLBP", "SeqLBP")), "SweepLBP")
    names = [f"mpcompare/{row}/{word}" for row in (*methods, *LEARNERS[1:])]
    if column == "dense":
        return [*names, "fashionmnist/F/Soft", *(f"fashionmnist/{network}/Soft" for network in LEARNERS[1:])]
    names += [f"mpcompare/{row}/{word}" for row in ("ParTRW", "SeqTRW")]
    names += [f"fashionmnist_nncomp/{word}/{end}" for end in ("Soft", *LEARNERS[1:])]
    masked = [f"{network}+mask" for network in LEARNERS[1:]]
    for table in ("exp_partial_input_m", "exp_partial_input_fm"):
        names += [f"{table}/{word} ({share})/{end}" for share in SHARES for end in (*LEARNERS, *masked)]
    return names


def race(column: str, bench: Bench) -> Iterator[Case]:
    """The cases of a stage wait for the rows of the one before."""
    rows = bench.rows()
    short, long = (min(epochs, bench.options.epochs or epochs) for epochs in (TRIAL_EPOCHS, EPOCHS))
    trials = {learner: min(count, 2) if bench.options.quick else count for learner, count in TRIALS.items()}
    for learner, count in trials.items():
        for number in range(count):
            name = {"stage": STAGES[0], "learner": learner, "trial": number}
            make = partial(_tried, bench, column, learner, _recipe(learner, number), short)
            yield Case(name, make, {"epochs": short})
    first = of_stage(rows, STAGES[0], short)
    if len(first) < sum(trials.values()):
        return
    finalists = [row for learner in LEARNERS for row in best(first, learner)[:FINALISTS]]
    for row in finalists:
        name = {"stage": STAGES[1], "learner": row["learner"], "trial": row["trial"]}
        recipe = {knob: row[knob] for knob in KNOBS}
        yield Case(name, partial(_tried, bench, column, row["learner"], recipe, long), {"epochs": long})
    second = of_stage(rows, STAGES[1], long)
    if len(second) < len(finalists):
        return
    for cell in map(find_cell, cell_names(column)):
        chosen = best(second, learner_of(cell))[0]
        e = _with_recipe(cell.experiment, {knob: chosen[knob] for knob in KNOBS}, long)
        name = {"stage": STAGES[2], "cell": cell.name, "trial": chosen["trial"]}
        yield Case(name, partial(bench.score, e), {"seeds": len(bench.seeds), "epochs": long})


def learner_of(cell: Cell) -> str:
    return f"NN({cell.experiment.activation})" if cell.is_network else LEARNERS[0]


def of_stage(rows: Sequence[Row], stage: str, epochs: int = 1) -> list[Row]:
    return [row for row in rows if row["stage"] == stage and row["epochs"] >= epochs]


def best(rows: Sequence[Row], learner: str) -> list[Row]:
    own = [row for row in rows if row["learner"] == learner]
    return sorted(own, key=lambda row: row[VALID], reverse=True)


def _recipe(learner: str, number: int) -> dict[str, Any]:
    """Drawn from one space for all, but for the decade of the learning rate and how LGMs start."""
    lgm = learner == LEARNERS[0]
    draw = random.Random(f"{learner} {number}")
    rate = (0.02 if lgm else 0.001) * 10 ** draw.random()
    decay = draw.choice((0.0, 3e-5, 1e-4, 3e-4)) / rate  # a step shrinks parameters by learning rate times decay
    values = [*(float(f"{value:.2g}") for value in (rate, decay)), draw.choice((0.0, 0.1, 0.2))]
    values += [draw.choice((0.0, 0.1, 0.2)), draw.choice((0.0, 0.05))]
    start = draw.choice(("default", "mild")) if lgm else "default"
    return dict(zip(KNOBS, (*values, start), strict=True))


def _with_recipe(e: Experiment, recipe: dict[str, Any], epochs: int) -> Experiment:
    return replace(e, **recipe, batch=BATCH, epochs=epochs, cosine=True, patience=None)


def _tried(bench: Bench, column: str, learner: str, recipe: dict[str, Any], epochs: int) -> list[Row]:
    """The validation accuracy of a recipe, the mean over the data of the column."""
    accuracies = []
    for name in DATA[column]:
        e = find_cell(name).experiment
        if learner != LEARNERS[0]:
            masked = {"mask_channel": e.visible is not None}
            e = replace(e, learner="network", activation=learner[3:-1], **masked)
        result = bench.fitted(_with_recipe(e, recipe, epochs), 0)[1]
        accuracies.append(result.best["valid_accuracy"])
    return [{**recipe, VALID: fmean(accuracies)}]


def shown(rows: Sequence[Row]) -> list[Row]:
    """The trials, best first; the report has tables of its own for what came out."""
    first = of_stage(rows, STAGES[0])
    return [row for learner in LEARNERS for row in best(first, learner)]


def summary(rows: Sequence[Row]) -> str:
    chosen = {row["trial"] for row in of_stage(rows, STAGES[2])}
    return f"{len(of_stage(rows, STAGES[0]))} trials, of which {len(chosen)} were chosen."
