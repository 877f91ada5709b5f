"""Ablations that train models of full size: several at once on a GPU, one after the other elsewhere."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from experiments.paper.ablations.cases import Bench, Case, Row
from experiments.paper.ablations.history import means, stop
from experiments.paper.cells import Experiment, find_cell
from experiments.paper.report.templates import MEASURES
from experiments.paper.runner import accuracy, log_probs
from experiments.paper.significance import CHANCE, Lead, Score, lead
from torchlgm import data, metrics

SHARES = tuple(k / 10 for k in range(1, 11))  # of the pixels, visible
NEAR = 0.001  # accuracies as good as alike
STARTS_TRIED = {"paper": "N(0, 1)", "colours": "N(0, 2 / colours)"}
WEIGHTS = ("best weights", "last weights")


def _local(**changes: Any) -> Experiment:
    return replace(find_cell("mpcompare/SeqLBP/Local").experiment, **changes)


def iterations(bench: Bench) -> Iterator[Case]:
    def make(e: Experiment) -> list[Row]:
        models, test = [bench.trained(e, seed) for seed in bench.seeds], bench.parts(e)[2]
        tested = (1, 2, 3, 4, 5, 6, 8, 12, 20)
        return [{f"T={t}": fmean(accuracy(m, replace(e, iterations=t), test) for m in models) for t in tested}]

    wanted = [(m, "sequential", 5) for m in ("lbp", "trw", "mf")]
    wanted += [("lbp", "parallel", 5), ("lbp", "sweep", 1), ("lbp", "sweep", 3)]
    for method, schedule, t in wanted:
        e = _local(method=method, schedule=schedule, iterations=t)
        name = {"method": method, "schedule": schedule, "trained with": f"T={t}"}
        yield Case(name, partial(make, e), bench.effort(e))


def iterations_summary(rows: Sequence[Row]) -> str:
    matched, longest = [], []
    for row in rows:
        tested = {key: value for key, value in row.items() if key.startswith("T=")}
        own = tested[row["trained with"]]
        matched.append(own >= max(tested.values()) - NEAR)
        longest.append(list(tested.values())[-1] - own)
    return (
        f"The T of the training is best, or within {NEAR} of the best, in {sum(matched)} of {len(rows)} rows. Testing "
        f"with T=20 instead changes the accuracy by {min(longest):+.4f} to {max(longest):+.4f}."
    )


def _trained(row: Row) -> int:
    """How many seeds its figures are of."""
    return row["seeds"] - row.get("diverged", 0)


def _lead(row: Row, other: Row) -> Lead:
    first, second = (Score(side["accuracy"], side.get("std", 0.0), _trained(side)) for side in (row, other))
    return lead(first, second)


def starts(bench: Bench) -> Iterator[Case]:
    """The start where inputs are missing."""
    names = ("exp_partial_input_m/Local (0.7)", "exp_partial_input_fm/Conv (0.3)", "exp_partial_input_fm/Local (0.7)")
    wanted = [("weak", 0.01, 12), ("mild", 0.01, 12), ("strong", 0.01, 12)]
    wanted += [("mild", 0.005, 12), ("strong", 0.005, 12), ("mild", 0.01, 20)]
    for place, (start, rate, epochs) in product(names, wanted):
        cell = find_cell(f"{place}/LGM")
        e = replace(cell.experiment, start=start, learning_rate=rate, epochs=epochs)
        name = {"cell": cell.name, "start": start, "learning rate": rate, "epochs": epochs}
        yield Case(name, partial(bench.score, e), bench.effort(e, "cap"))


def starts_shown(rows: Sequence[Row]) -> list[Row]:
    """The worst seed stands for the spread."""
    return [{key: value for key, value in row.items() if key not in ("std", "diverged")} for row in rows]


def starts_summary(rows: Sequence[Row]) -> str:
    starts, epochs = [], []
    for cell in dict.fromkeys(row["cell"] for row in rows):
        own = {(row["start"], row["learning rate"], row["epochs"]): row for row in rows if row["cell"] == cell}
        alike = [row for (_, *settings), row in own.items() if settings == [0.01, 12]]
        first, second, *_ = sorted(alike, key=lambda row: row["accuracy"], reverse=True)
        starts.append(f"{first['start']} ({_lead(first, second)})")
        epochs.append(str(_lead(own["mild", 0.01, 20], own["mild", 0.01, 12])))
    stuck = sorted({row["start"] for row in rows if row["worst"] < CHANCE})
    text = (
        f"The best start of each cell at 0.01 and 12 epochs, with its lead over the next: {', '.join(starts)}. "
        f"20 epochs instead of 12 with the mild start add {', '.join(epochs)}."
    )
    return text + (f" With the {' or '.join(stuck)} start some trainings stayed at chance." if stuck else "")


def quantised(bench: Bench) -> Iterator[Case]:
    """The paper's start, and the weights it tested."""

    def make(paper: float | None, e: Experiment) -> list[Row]:
        ends = [stop(bench.whole_history(e, seed), None) for seed in bench.seeds]
        return [{"paper": paper, **dict(zip(WEIGHTS, means(ends), strict=True))}]

    names = ["softclamp/LGM/Binary threshold", "softclamp/LGM/Soft clamp", "fashionmnist/F/2", "fashionmnist/F/Soft"]
    names += [f"fashionmnist/{row}/{colours}" for colours in (4, 8) for row in "FNL"] + ["fashionmnist/F/32"]
    for cell in (find_cell(name, "paper") for name in names):
        for start in list(STARTS_TRIED)[: 1 if cell.experiment.input_labels == 2 else 2]:
            e = replace(cell.experiment, start=start)
            name = {"cell": cell.name, "start": STARTS_TRIED[start]}
            yield Case(name, partial(make, cell.paper.accuracy, e), bench.effort(e, "cap"))


def quantised_shown(rows: Sequence[Row]) -> list[Row]:
    order = ("cell", "paper", "start", *WEIGHTS, "seeds")
    return [{key: row[key] for key in order} for row in rows]


def quantised_summary(rows: Sequence[Row]) -> str:
    """How far off each choice is, for cells in which the start makes a difference and for the others."""
    by_colours = STARTS_TRIED["colours"]
    several = {row["cell"] for row in rows if row["start"] == by_colours}
    groups = {"two colours": [row for row in rows if row["cell"] not in several]}
    for start in STARTS_TRIED.values():
        groups[f"more colours, {start}"] = [row for row in rows if row["cell"] in several and row["start"] == start]
    distances = []
    for words, group in groups.items():
        best, last = (fmean(abs(row[which] - row["paper"]) for row in group) for which in WEIGHTS)
        distances.append(f"{words}: {best:.4f} and {last:.4f}")
    return f"Mean distance to the paper with the best and with the last weights: {'; '.join(distances)}."


def calibration(bench: Bench) -> Iterator[Case]:
    def make(e: Experiment) -> list[Row]:
        test = bench.parts(e)[2].to("cpu")
        runs = [_by_share(bench.trained(e, seed), e, test) for seed in bench.seeds]
        return [{key: fmean(run[key] for run in same) for key in same[0]} for same in zip(*runs, strict=True)]

    sets = {"MNIST": "exp_partial_input_m", "FashionMNIST": "exp_partial_input_fm"}
    for name, column in product(sets, ("LGM", "LGM+fill", "NN(relu)", "NN(relu)+mask")):
        cell = find_cell(f"{sets[name]}/Local (0.3)/{column}")
        e = replace(cell.experiment, visible=(SHARES[0], 1.0), smoothing=0.0)
        yield Case({"data": name, "model": column}, partial(make, e), bench.effort(e))


def _by_share(model: nn.Module, e: Experiment, test: data.Data) -> list[dict[str, float]]:
    def predict(x: Tensor) -> Tensor:
        return log_probs(model, e, x).exp().cpu()

    return metrics.by_visible_share(predict, test, SHARES, torch.Generator().manual_seed(0))


def calibration_shown(rows: Sequence[Row]) -> list[Row]:
    """Models below each other, some shares beside each other."""
    shown: dict[tuple[str, str, str], Row] = {}
    for name, (measure, words), row in product(dict.fromkeys(row["data"] for row in rows), MEASURES.items(), rows):
        if row["data"] == name:
            key = name, measure, row["model"]
            line = shown.setdefault(key, {"data": name, "measure": words, "model": row["model"]})
            if row["visible"] in (0.1, 0.3, 0.5, 0.7, 1.0):
                line[f"{row['visible']:.0%} visible"] = row[measure]
    return list(shown.values())


def calibration_summary(rows: Sequence[Row]) -> str:
    """How often each model is best, over data and shares."""
    sentences = []
    places = list(dict.fromkeys((row["data"], row["visible"]) for row in rows))
    for measure in ("nll", "brier", "calibration_error"):
        groups = [[row for row in rows if (row["data"], row["visible"]) == place] for place in places]
        best = Counter(min(group, key=lambda row: row[measure])["model"] for group in groups)
        counts = sorted(((count, model) for model, count in best.items()), reverse=True)
        sentences.append(f"{MEASURES[measure]}: " + ", ".join(f"{model} in {count}" for count, model in counts))
    return f"Which model is best, over {len(places)} pairs of data set and share: {'; '.join(sentences)}."
