"""Claims about pairs of cells, judged by one rule in the paper and in both of our columns."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, median

from experiments.paper.cells import Cell, all_cells
from experiments.paper.report.summary import COLUMN_NAMES
from experiments.paper.significance import CHANCE, SINGLE, Lead, Score, lead
from experiments.paper.store import Store, counted
from experiments.paper.tables import TABLE5, WAYS

Cells = Mapping[tuple[str, str], Cell]  # by name and column
Leads = Mapping[str, Lead]  # of a pair, by column
PAIRS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Comparison:
    """The leads of pairs of cells, by the name of the pair; a claim is true where they are positive."""

    leads: Mapping[str, Leads]

    @property
    def columns(self) -> list[str]:
        return [column for column in COLUMN_NAMES if any(column in leads for leads in self.leads.values())]

    @property
    def table(self) -> list[Mapping[str, str]]:
        return [
            {"lead": name} | {COLUMN_NAMES[column]: str(leads.get(column, "")) for column in self.columns}
            for name, leads in self.leads.items()
        ]

    @property
    def verdicts(self) -> list[str]:
        return [
            f"{COLUMN_NAMES[column]}: {verdict([leads[column] for leads in self.leads.values() if column in leads])}"
            for column in self.columns
        ]

    @property
    def share_left(self) -> float | None:
        """How much of the paper's median lead is left in our column."""
        both = [leads for leads in self.leads.values() if leads.keys() >= {"published", "ours"}]
        if not both:
            return None
        ours, published = (median(leads[column].mean for leads in both) for column in ("ours", "published"))
        return max(0.0, ours) / published


def compare(store: Store) -> dict[str, Comparison | None]:
    """All comparisons; None for those without results."""
    cells = {(cell.name, cell.way): cell for cell in all_cells()}
    result: dict[str, Comparison | None] = {}
    for key, pairs in PAIRS.items():
        leads = {name: dict(_leads(pair, cells, store)) for name, pair in pairs.items()}
        leads = {name: by_column for name, by_column in leads.items() if by_column.keys() & set(WAYS)}
        result[key] = Comparison(leads) if leads else None
    return result


def _leads(pair: tuple[str, str], cells: Cells, store: Store) -> Iterator[tuple[str, Lead]]:
    published = [next(cell.paper.accuracy for (name, _), cell in cells.items() if name == one) for one in pair]
    if None not in published:
        first, second = (Score(accuracy or 0.0) for accuracy in published)
        yield "published", lead(first, second)
    for way in WAYS:
        both = [cells[name, way] for name in pair if (name, way) in cells]
        runs = [counted(store.runs(cell).values()) for cell in both]
        if len(both) == 2 and all(runs):
            first, second = (Score.of(run["accuracy"] for run in side) for side in runs)
            stuck = any(run["accuracy"] < CHANCE for side in runs for run in side)
            yield way, lead(first, second, stuck)


def judge(leads: Sequence[Lead]) -> tuple[str, int, int]:
    """What becomes of a claim that is true where a lead is positive, of how many pairs it is clearly true, and of how
    many that count."""
    ahead, behind = (sum(lead.clear == sign for lead in leads) for sign in (1, -1))
    count = len(leads)
    if ahead == count:
        word = "holds"
    elif ahead > count / 2:
        word = "holds in most pairs"
    elif behind > count / 2:
        word = "the opposite holds in most pairs"
    else:
        word = "not confirmed"
    return word, ahead, count


def verdict(leads: Sequence[Lead]) -> str:
    word, ahead, count = judge(leads)
    behind, middle = sum(lead.clear < 0 for lead in leads), median(lead.mean for lead in leads)
    return f"{word} (clearly true of {ahead} of {count} pairs, clearly false of {behind}, median lead {middle:+z.4f})"


def over_fitting(store: Store) -> tuple[list[Mapping[str, str]], list[str]]:
    """Rows with the training and test accuracy of table 5 by colours, and what changes from the fewest colours to the
    most that start alike."""
    rows, changes = [], []
    for way, name in product(WAYS, ("F", "N", "L")):
        ended: list[tuple[Cell, float, float]] = []
        for cell in all_cells([TABLE5], [way]):
            runs = [run for run in counted(store.runs(cell).values()) if "train_accuracy" in run]
            if cell.row != name or cell.column == "Soft" or not runs:
                continue
            train, test, epoch = (
                fmean(run[key] for run in runs) for key in ("train_accuracy", "accuracy", "best_epoch")
            )
            ended.append((cell, train, test))
            row = {"cell": f"{cell.row}, {cell.column}", "column": COLUMN_NAMES[way]}
            row |= {"training": f"{train:.4f}", "test": f"{test:.4f}", "gap": f"{train - test:+.4f}"}
            rows.append(row | {"epoch": f"{epoch:.1f}"})
        ended = [each for each in ended if each[0].experiment.start == ended[-1][0].experiment.start]
        if len(ended) > 1:
            (few, *before), *_, (many, *after) = ended
            change = over_fits(after[0] - before[0], after[1] - before[1])
            changes.append(f"{name}, {COLUMN_NAMES[way]}, {few.column} to {many.column} colours: {change}")
    return rows, changes


def over_fits(train: float, test: float) -> str:
    """What it means that the accuracies on training and test data change so."""
    change = f"training {train:+.4f}, test {test:+.4f}"
    if test >= -SINGLE:
        return f"{change}: more colours do no harm"
    return f"{change}: over-fits" if train >= -SINGLE else f"{change}: both fall, so it is not over-fitting alone"
