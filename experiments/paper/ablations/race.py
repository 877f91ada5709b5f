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
from torchlgm.errors import DivergedError

LEARNERS = ("LGM", "NN(relu)", "NN(sigmoid)")
TRIALS, FINALISTS = 12, 3  # of each
STAGES = {"trial": 4, "finalist": 12, "cell": 20}  # with their epochs
BATCH = 100
KNOBS = ("learning_rate", "weight_decay", "smoothing", "start")
VALID, SHARES = "validation accuracy", ("0.3", "0.7")
DATA = {  # cells by whose data recipes are chosen
    "dense": ("mpcompare/SweepLBP/Dense", "fashionmnist/F/Soft"),
    "windows": (
        "mpcompare/SweepLBP/Conv",
        "fashionmnist_nncomp/Local/Soft",
        "exp_partial_input_fm/Local (0.3)/LGM",
    ),
}


def cell_names(shapes: str) -> list[str]:
    """The cells that are trained in the end. With the input observed, LBP and TRW on Dense are one function."""
    if shapes == "dense":
        names = [f"mpcompare/{row}/Dense" for row in ("ParMF", "SeqMF", "SweepMF", "SweepLBP", *LEARNERS[1:])]
        return [*names, *(f"fashionmnist/{row}/Soft" for row in ("F", *LEARNERS[1:]))]
    names, ends = [], (*LEARNERS, *(f"{network}+mask" for network in LEARNERS[1:]), "LGM+fill")
    for word in ("Conv", "Local"):
        names += [f"fashionmnist_nncomp/{word}/{end}" for end in ("Soft", *LEARNERS[1:])]
        for table in ("exp_partial_input_m", "exp_partial_input_fm"):
            names += [f"{table}/{word} ({share})/{end}" for share in SHARES for end in ends]
        methods = ("SweepMF", "SweepLBP", "ParMF", "SeqMF", "ParLBP", "SeqLBP", "ParTRW", "SeqTRW")
        names += [f"mpcompare/{row}/{word}" for row in (*LEARNERS[1:], *methods)]
    return names


def race(shapes: str, bench: Bench) -> Iterator[Case]:
    """The cases of a stage wait for the rows of the one before."""
    rows = bench.rows()
    epochs = {stage: min(count, bench.options.epochs or count) for stage, count in STAGES.items()}
    numbers = range(2 if bench.options.quick else TRIALS)
    trials = [{"learner": learner, "trial": n} | _recipe(learner, n) for learner in LEARNERS for n in numbers]
    for stage in ("trial", "finalist"):
        for trial in trials:
            name = {"stage": stage, "learner": trial["learner"], "trial": trial["trial"]}
            yield Case(name, partial(_tried, bench, shapes, trial, epochs[stage]), {"epochs": epochs[stage]})
        ended = of_stage(rows, stage, epochs[stage])
        if len(ended) < len(trials):
            return
        trials = [row for learner in LEARNERS for row in best(ended, learner)[:FINALISTS]]
    for cell in map(find_cell, cell_names(shapes)):
        chosen = best(trials, learner_of(cell))[0]
        e = _with_recipe(cell.experiment, chosen, epochs["cell"])
        name = {"stage": "cell", "cell": cell.name, "trial": chosen["trial"]}
        yield Case(name, partial(bench.score, e), {"seeds": len(bench.seeds), "epochs": epochs["cell"]})


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
    values = [*(float(f"{value:.2g}") for value in (rate, decay)), draw.choice((0.0, 0.05))]
    return dict(zip(KNOBS, (*values, draw.choice(("default", "mild")) if lgm else "default"), strict=True))


def _with_recipe(e: Experiment, recipe: dict[str, Any], epochs: int) -> Experiment:
    changes = {knob: recipe[knob] for knob in KNOBS}
    return replace(e, **changes, batch=BATCH, epochs=epochs, cosine=True, patience=None)


def _tried(bench: Bench, shapes: str, trial: dict[str, Any], epochs: int) -> list[Row]:
    """The validation accuracy of a recipe, the mean over the data of the shapes."""
    accuracies, learner = [], trial["learner"]
    for name in DATA[shapes]:
        e = find_cell(name).experiment
        if learner != LEARNERS[0]:
            masked = {"mask_channel": e.visible is not None}
            e = replace(e, learner="network", activation=learner[3:-1], **masked)
        try:
            result = bench.fitted(_with_recipe(e, trial, epochs), 0)[1]
            accuracies.append(result.best["valid_accuracy"])
        except DivergedError:
            accuracies.append(0.0)
    return [{knob: trial[knob] for knob in KNOBS} | {VALID: fmean(accuracies)}]


def shown(rows: Sequence[Row]) -> list[Row]:
    """The trials, best first; the report has tables of its own for what came out."""
    first = of_stage(rows, "trial")
    return [row for learner in LEARNERS for row in best(first, learner)]


def summary(rows: Sequence[Row]) -> str:
    return f"{len(of_stage(rows, 'trial'))} trials."
