"""Questions that train models of full size: several at once on a GPU, one after the other elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import groupby, product
from statistics import fmean
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from torchlgm import data, learn, metrics
from torchlgm.errors import DivergedError
from torchlgm.learn.streams import before_threads, take_stream
from torchlgm.paper.cells import Cell, Experiment, all_cells, make_model, make_objective, make_settings, valid_batch
from torchlgm.paper.comparisons import CHANCE
from torchlgm.paper.jobs import Options
from torchlgm.paper.sources import Sources

Row = dict[str, Any]
Case = TypeVar("Case")
Found = TypeVar("Found")
AT_ONCE = 16  # trainings on a GPU
SEEDS = 3
SHARES = tuple(k / 10 for k in range(1, 11))  # of the pixels, visible
MEASURES = {"accuracy": "accuracy", "nll": "NLL", "brier": "Brier score", "calibration_error": "calibration error"}
NEAR = 0.001  # accuracies as good as alike


def at_once(
    work: Callable[[Case], Found], cases: Sequence[Case], device: torch.device, workers: int | None = None
) -> Iterator[Found]:
    """`work` of each case, in their order; on a GPU each thread has a stream of its own, which captured steps need."""
    workers = min(workers or (AT_ONCE if device.type == "cuda" else 1), len(cases))
    if workers == 1:
        yield from map(work, cases)
        return
    before_threads(device)
    with ThreadPoolExecutor(workers, initializer=take_stream, initargs=(device,)) as pool:
        yield from pool.map(work, cases)


def accuracy(model: nn.Module, e: Experiment, part: data.Data) -> float:
    probs = learn.predict_log_probs(model, make_objective(e), part.inputs, valid_batch(e))[:, 0].exp()
    return metrics.accuracy(probs, part.targets)


class Bench:
    """Trains experiments as `options` say; the data is loaded once."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.sources = Sources(options.data, options.where)
        self.seeds = range(options.seeds or SEEDS)

    def rows(self, work: Callable[[Case], Found], cases: Sequence[Case]) -> Iterator[Found]:
        return at_once(work, cases, self.options.where, self.options.workers)

    def parts(self, e: Experiment) -> tuple[data.Data, data.Data, data.Data]:
        return self.sources.take(e, self.options.quick)

    def epochs(self, e: Experiment) -> int:
        return min(1 if self.options.quick else self.options.epochs or e.epochs, e.epochs)

    def trained(self, e: Experiment, seed: int) -> nn.Module:
        settings = replace(make_settings(e, seed), epochs=self.epochs(e))
        train, valid, _ = self.parts(e)
        model = make_model(e, seed, train)
        learn.fit(model, make_objective(e), train, valid, settings, device=self.options.where, reporters=[])
        return model

    def trained_well(self, e: Experiment) -> Iterator[nn.Module]:
        """A model for each seed, but for trainings that diverge."""
        for seed in self.seeds:
            with suppress(DivergedError):
                yield self.trained(e, seed)


def _local(**changes: Any) -> Experiment:
    cell = next(all_cells(ways=["ours"], pattern="mpcompare/SeqLBP/Local"))
    return replace(cell.experiment, **changes)


# Iterations


def iterations(options: Options) -> Iterator[Row]:
    bench = Bench(options)
    test = bench.parts(_local())[2]

    def row(case: tuple[str, str, int]) -> Row:
        method, schedule, trained = case
        e = _local(method=method, schedule=schedule, iterations=trained)
        models = [bench.trained(e, seed) for seed in bench.seeds]
        tested = {
            f"T={t}": fmean(accuracy(model, replace(e, iterations=t), test) for model in models)
            for t in (1, 2, 3, 4, 5, 6, 8, 12, 20)
        }
        return {"method": method, "schedule": schedule, "trained with": f"T={trained}", "seeds": len(models), **tested}

    cases = [(m, "sequential", 5) for m in ("lbp", "trw", "mf")]
    cases += [("lbp", "parallel", 5), ("lbp", "sweep", 1), ("lbp", "sweep", 3)]
    yield from bench.rows(row, cases)


def iterations_say(rows: Sequence[Row]) -> str:
    matched, longest = [], []
    for row in rows:
        tested = {key: value for key, value in row.items() if key.startswith("T=")}
        own = tested[row["trained with"]]
        matched.append(own >= max(tested.values()) - NEAR)
        longest.append(list(tested.values())[-1] - own)
    return (
        f"The T of the training is best, or within {NEAR} of it, in {sum(matched)} of {len(rows)} rows. Testing with "
        f"T=20 instead changes the accuracy by {min(longest):+.4f} to {max(longest):+.4f}."
    )


# Damping, start and learning rate


def choices(options: Options) -> Iterator[Row]:
    bench = Bench(options)
    test = bench.parts(_local())[2]

    def row(case: tuple[tuple[str, int], tuple[str, dict[str, Any]]]) -> Row:
        (schedule, t), (name, changes) = case
        e = _local(schedule=schedule, iterations=t, **changes)
        found = [accuracy(model, e, test) for model in bench.trained_well(e)]
        over = learn.spread(found or [0.0])
        figures = {"accuracy": over.mean, "std": over.std, "seeds": len(bench.seeds), "epochs": bench.epochs(e)}
        return {"schedule": f"{schedule}, T={t}", "change": name, **figures, "diverged": len(bench.seeds) - len(found)}

    wanted: list[tuple[str, dict[str, Any]]] = [("none", {})]
    wanted += [("damping 0.5", {"damping": 0.5})]
    wanted += [("start weak", {"start": "weak"}), ("start N(0, 1)", {"start": "paper", "learning_rate": 1e-3})]
    wanted += [(f"learning rate {r}", {"learning_rate": r}) for r in (0.003, 0.03)]
    yield from bench.rows(row, list(product((("sequential", 5), ("sweep", 1)), wanted)))


def choices_say(rows: Sequence[Row]) -> str:
    said = []
    for schedule, group in groupby(rows, key=lambda row: row["schedule"]):
        base, *others = group
        changes = {row["change"]: row["accuracy"] - base["accuracy"] for row in others}
        best, worst = max(changes, key=changes.__getitem__), min(changes, key=changes.__getitem__)
        said.append(
            f"With {schedule}, the best change is {best} ({changes[best]:+.4f}), "
            f"the worst {worst} ({changes[worst]:+.4f})."
        )
    return " ".join(said)


# The start where inputs are missing


def missing_starts(options: Options) -> Iterator[Row]:
    bench = Bench(options)
    names = ("exp_partial_input_m/Local (0.7)", "exp_partial_input_fm/Conv (0.3)", "exp_partial_input_fm/Local (0.7)")
    cells = [cell for cell in all_cells(ways=["ours"]) if cell.name in {f"{name}/LGM" for name in names}]

    def row(case: tuple[Cell, tuple[str, float, int]]) -> Row:
        cell, (start, rate, epochs) = case
        e = replace(cell.experiment, start=start, learning_rate=rate, epochs=epochs)
        test = bench.parts(e)[2]
        found = [accuracy(model, e, test) for model in bench.trained_well(e)]
        figures = {"accuracy": fmean(found or [0.0]), "worst": min(found, default=0.0), "seeds": len(bench.seeds)}
        return {"cell": cell.name, "start": start, "learning rate": rate, "epochs": epochs, **figures}

    wanted = [("weak", 0.01, 12), ("mild", 0.01, 12), ("strong", 0.01, 12)]
    wanted += [("mild", 0.005, 12), ("strong", 0.005, 12), ("mild", 0.01, 20)]
    for cell in cells:
        bench.parts(cell.experiment)  # loads the data
    yield from bench.rows(row, list(product(cells, wanted)))


def missing_starts_say(rows: Sequence[Row]) -> str:
    best = [
        max((row for row in rows if row["cell"] == cell), key=lambda row: row["accuracy"])
        for cell in dict.fromkeys(row["cell"] for row in rows)
    ]
    stuck = sorted({row["start"] for row in rows if row["worst"] < CHANCE})
    said = f"Best in each cell: {', '.join(_way(row) for row in best)}."
    return said + (f" Some training stayed at chance with the start {', '.join(stuck)}." if stuck else "")


def _way(row: Row) -> str:
    return f"{row['start']} with {row['learning rate']}, {row['epochs']} epochs ({row['accuracy']:.4f})"


# Calibration


def calibration(options: Options) -> Iterator[Row]:
    bench = Bench(options)

    def rows(case: tuple[tuple[str, str], str]) -> list[Row]:
        (name, table), column = case
        e = _hidden(table, column)
        test = bench.parts(e)[2].to("cpu")
        runs = [_by_share(bench.trained(e, seed), make_objective(e), test) for seed in bench.seeds]
        means = [{key: fmean(run[key] for run in same) for key in same[0]} for same in zip(*runs, strict=True)]
        same = {"data": name, "model": column, "seeds": len(runs), "epochs": bench.epochs(e)}
        return [same | mean for mean in means]

    sets = (("MNIST", "exp_partial_input_m"), ("FashionMNIST", "exp_partial_input_fm"))
    cases = list(product(sets, ("LGM", "LGM+fill", "NN(relu)", "NN(relu)+mask")))
    for (_, table), column in cases:
        bench.parts(_hidden(table, column))  # loads the data
    for found in bench.rows(rows, cases):
        yield from found


def _hidden(table: str, column: str) -> Experiment:
    cell = next(c for c in all_cells(ways=["ours"]) if c.name == f"{table}/Local (0.3)/{column}")
    return replace(cell.experiment, visible=(SHARES[0], 1.0), smoothing=0.0)


def _by_share(model: nn.Module, objective: learn.Objective, test: data.Data) -> list[dict[str, float]]:
    def predict(x: Tensor) -> Tensor:
        return learn.predict_log_probs(model, objective, x)[:, 0].exp().cpu()

    return metrics.by_visible_share(predict, test, SHARES, torch.Generator().manual_seed(0))


def calibration_shown(rows: Sequence[Row]) -> list[Row]:
    """Models below each other, some shares beside each other."""
    shown: dict[tuple[str, str, str], Row] = {}
    for (measure, name), row in product(MEASURES.items(), rows):
        place = shown.setdefault((row["data"], measure, row["model"]), {"data": row["data"], "measure": name})
        place["model"] = row["model"]
        if row["visible"] in (0.1, 0.3, 0.5, 0.7, 1.0):
            place[f"{row['visible']:.0%} visible"] = row[measure]
    return [shown[key] for key in sorted(shown, key=lambda key: (key[0] != "MNIST", list(MEASURES).index(key[1])))]


def calibration_say(rows: Sequence[Row]) -> str:
    """How often each model is best, over data and shares."""
    said = []
    for measure in ("nll", "brier", "calibration_error"):
        best = [
            min((row for row in rows if (row["data"], row["visible"]) == place), key=lambda row: row[measure])["model"]
            for place in dict.fromkeys((row["data"], row["visible"]) for row in rows)
        ]
        counts = sorted(((best.count(model), model) for model in set(best)), reverse=True)
        said.append(f"{MEASURES[measure]}: " + ", ".join(f"{model} in {count}" for count, model in counts))
    places = len({(row["data"], row["visible"]) for row in rows})
    how = f"Seeds: {rows[0]['seeds']}, epochs: {rows[0]['epochs']}."
    return f"{how} Lowest, of {places} pairs of data and share, {'; '.join(said)}."
