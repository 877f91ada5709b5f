"""The cells that a race has trained, beside the best network known of each."""

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.paper.ablations import race
from experiments.paper.cells import Cell, find_cell
from experiments.paper.report.findings import rival
from experiments.paper.report.summary import COLUMN_NAMES, ROUNDING, Summaries, summaries
from experiments.paper.report.templates import listed
from experiments.paper.significance import Score, lead
from experiments.paper.store import Store

SHAPES = {"dense": "Dense", "windows": "Conv and Local"}
RECIPE = {"learning_rate": "rate", "weight_decay": "decay"}

Scores = Mapping[Cell, Score]


def races(cells: Sequence[Cell], store: Store) -> list[Mapping[str, Any]]:
    """For each race that has come to its cells: recipes, cells, and how many LGMs are at or above the best network."""
    means, contents = summaries(cells, store), {name: store.ablation(f"race-{name}") for name in race.DATA}
    made = [_race(name, content["rows"], means) | {"left": content["left"]} for name, content in contents.items()]
    return [one for one in made if one["rows"]]


def _race(race_name: str, rows: Sequence[race.Row], means: Summaries) -> dict[str, Any]:
    finals = race.of_stage(rows, "cell")
    scores = {find_cell(row["cell"]): Score(row["accuracy"], row["std"], row["seeds"]) for row in finals}
    table, counts = [], {"cells": 0, "tuned": 0, "known": 0, "behind": 0}
    for cell in (cell for cell in scores if cell.is_lgm):
        rivals = [other for other in scores if rival(cell, other)]
        if not rivals:
            continue
        first = max(rivals, key=lambda other: scores[other].mean)
        known = _known(cell, means) | {"tuned": scores[first].mean}
        best = max(known, key=lambda name: known[name])
        ahead = lead(scores[cell], scores[first])
        same = race_name == "dense" and cell.row == "SweepLBP"
        weight = len(race.ALIKE) if same else 1
        counts["cells"] += weight
        counts["tuned"] += weight * (ahead.mean >= 0)
        counts["known"] += weight * (scores[cell].mean >= known[best])
        counts["behind"] += weight * (ahead.clear < 0)
        name = f"{cell.table.label}/LBP and TRW/{cell.column} ({weight} cells)" if same else cell.name
        before = next(
            (f"{s['mean']:.4f}" for other, s in means.items() if (other.name, other.way) == (cell.name, cell.way)), "-"
        )
        network = f"NN({first.experiment.activation})" + "+mask" * first.experiment.mask_channel
        row = {"cell": name, "LGM, ours so far": before, "LGM, tuned": _text(scores[cell])}
        row |= {"best network, tuned": f"{network}, {_text(scores[first])}"}
        table.append(row | {"lead": str(ahead), "best network known": f"{known[best]:.4f} ({best})"})
    chosen = [_recipe(rows, learner) for learner in race.LEARNERS if table]
    result = {"shapes": SHAPES[race_name], "data": listed(race.DATA[race_name]), "rows": table, "recipes": chosen}
    result |= {"tried": race.TRIALS[race_name], "finalists": race.FINALISTS, "epochs": race.STAGES, "batch": race.BATCH}
    return result | counts


def _known(cell: Cell, means: Summaries) -> dict[str, float]:
    """The networks of the same shape in both of our columns, and in the paper, whose numbers are rounded."""
    known: dict[str, float] = {}
    for other in (other for other in means if rival(cell, other)):
        for name, accuracy in (
            (COLUMN_NAMES[other.way], means[other]["mean"]),
            ("the paper", (other.paper.accuracy or 0.0) - ROUNDING),
        ):
            known[name] = max(known.get(name, 0.0), accuracy)
    return known


def _recipe(rows: Sequence[race.Row], learner: str) -> Mapping[str, Any]:
    """The one that was chosen, and from how many trials."""
    best = race.best(race.of_stage(rows, "finalist"), learner)[0]
    tried = len(race.best(race.of_stage(rows, "trial"), learner))
    knobs = {
        RECIPE.get(knob, knob): f"{value:g}" if isinstance(value, float) else value
        for knob, value in best.items()
        if knob in race.KNOBS
    }
    return {"learner": learner, "trials": tried, **knobs, race.VALID: f"{best[race.VALID]:.4f}"}


def _text(score: Score) -> str:
    return f"{score.mean:.4f}" + (f" ± {score.std:.4f} ({score.count})" if score.count > 1 else "")
