"""A fair race of layered graphical models with networks of their shape.

Each learner has the same number of trials, recipes that are drawn at random from one space: networks, of two
activations, have twice as many as LGMs, which make up for what LGMs had before: 18 looks at validation data by which
the decade of their learning rates was set. Trials are short; the best by validation accuracy, the mean over several
data sets, are trained for longer, and the best of those, of networks the better activation, trains the cells. Test data
are looked at once, in the end.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any

from experiments.paper.ablations.cases import Bench, Case, Row
from experiments.paper.cells import Experiment, find_cell
from torchlgm.errors import DivergedError

LEARNERS = ("LGM", "NN(relu)", "NN(sigmoid)")
TRIALS, FINALISTS = {"dense": 24, "windows": 12}, 3  # of each
STAGES = {"trial": 4, "finalist": 10, "cell": 16}  # with their epochs
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
LOWEST_RATE = {"LGM": 0.0125, "NN(relu)": 0.001, "NN(sigmoid)": 0.001}
DECAYS = (0.0, 3e-5, 1e-4, 3e-4)  # of parameters, in a step at the highest rate
SMOOTHING = (0.0, 0.05, 0.1)
ALIKE = ("ParLBP", "SeqLBP", "ParTRW", "SeqTRW", "SweepLBP")  # rows of table 4 that are one function on Dense
STARTS = ("default", "mild")  # of LGMs; from weak ones some Conv models learn nothing


def cell_names(shapes: str, network: str) -> list[str]:
    """The cells that are trained in the end, what tells most first; on Dense LBP and TRW are one function."""
    if shapes == "dense":
        names = [f"mpcompare/{row}/Dense" for row in (network, "SweepLBP", "SweepMF", "ParMF", "SeqMF")]
        return [*names, *(f"fashionmnist/{row}/Soft" for row in (network, "F"))]
    words = ("Conv", "Local")
    names = [f"fashionmnist_nncomp/{word}/{end}" for word in words for end in (network, "Soft")]
    names += [f"mpcompare/{row}/{word}" for word in words for row in (network, "SweepLBP", "SweepMF")]
    for end in (f"{network}+mask", "LGM", "LGM+fill", network):
        tables = ("exp_partial_input_m", "exp_partial_input_fm")
        names += [f"{table}/{word} ({share})/{end}" for table in tables for word in words for share in SHARES]
    methods = [f"{order}{method}" for method in ("TRW", "LBP", "MF") for order in ("Seq", "Par")]  # they take longest
    return [*names, *(f"mpcompare/{method}/{word}" for method in methods for word in words)]


def race(shapes: str, bench: Bench) -> Iterator[Case]:
    """The cases of a stage wait for the rows of the one before."""
    rows = bench.rows()
    epochs = {stage: min(count, bench.options.epochs or count) for stage, count in STAGES.items()}
    drawn = {learner: recipes(shapes, learner)[: 2 if bench.options.quick else None] for learner in LEARNERS}
    trials = [{"learner": learner, "trial": n} | one for learner in LEARNERS for n, one in enumerate(drawn[learner])]
    for stage in ("trial", "finalist"):
        for trial in trials:
            name = {"stage": stage, "learner": trial["learner"], "trial": trial["trial"]}
            yield Case(name, partial(_tried, bench, shapes, trial, epochs[stage]), {"epochs": epochs[stage]})
        ended = of_stage(rows, stage, epochs[stage])
        if len(ended) < len(trials):
            return
        trials = [row for learner in LEARNERS for row in best(ended, learner)[:FINALISTS]]
    network = max((best(trials, learner)[0] for learner in LEARNERS[1:]), key=lambda row: row[VALID])
    for cell in map(find_cell, cell_names(shapes, network["learner"])):
        chosen = network if cell.is_network else best(trials, LEARNERS[0])[0]
        e = _with_recipe(cell.experiment, chosen, epochs["cell"])
        name = {"stage": "cell", "cell": cell.name, "trial": chosen["trial"]}
        yield Case(name, partial(bench.score, e), {"seeds": len(bench.seeds), "epochs": epochs["cell"]})


def of_stage(rows: Sequence[Row], stage: str, epochs: int = 1) -> list[Row]:
    return [row for row in rows if row["stage"] == stage and row["epochs"] >= epochs]


def best(rows: Sequence[Row], learner: str) -> list[Row]:
    own = [row for row in rows if row["learner"] == learner]
    return sorted(own, key=lambda row: row[VALID], reverse=True)


def recipes(shapes: str, learner: str) -> list[dict[str, Any]]:
    """Drawn from one space for all, but for the decade of the learning rate and how LGMs start: a Latin hypercube, in
    which every value, or equal part of the decade, has as many trials as any other."""
    draw, count = random.Random(f"{shapes} {learner}"), TRIALS[shapes]

    def spread(values: Sequence[Any]) -> list[Any]:
        return draw.sample([values[i * len(values) // count] for i in range(count)], count)

    rates = [LOWEST_RATE[learner] * 10 ** ((i + draw.random()) / count) for i in range(count)]
    starts = spread(STARTS if learner == LEARNERS[0] else STARTS[:1])
    knobs = zip(rates, spread(DECAYS), spread(SMOOTHING), starts, strict=True)
    rounded = ((float(f"{rate:.2g}"), float(f"{decay / rate:.2g}"), *rest) for rate, decay, *rest in knobs)
    return [dict(zip(KNOBS, values, strict=True)) for values in rounded]


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
