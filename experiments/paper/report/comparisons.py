"""Claims about pairs of cells, judged by one rule in the paper and in both of our columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean, median

from experiments.paper.cells import Cell, all_cells
from experiments.paper.report.summary import COLUMN_NAMES
from experiments.paper.significance import CHANCE, SINGLE, Lead, Score, lead
from experiments.paper.store import Store, counted, cut_short
from experiments.paper.tables import COLUMNS, TABLE5

Cells = Mapping[tuple[str, str], Cell]  # by name and column
Leads = Mapping[str, Lead]  # of a pair, by column


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
        both = [leads for leads in both if not leads["ours"].cut_short]
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
        leads = {name: by_column for name, by_column in leads.items() if by_column.keys() & set(COLUMNS)}
        result[key] = Comparison(leads) if leads else None
    return result


def _leads(pair: tuple[str, str], cells: Cells, store: Store) -> Iterator[tuple[str, Lead]]:
    published = [next(cell.paper.accuracy for (name, _), cell in cells.items() if name == one) for one in pair]
    if None not in published:
        first, second = (Score(accuracy or 0.0) for accuracy in published)
        yield "published", lead(first, second)
    for way in COLUMNS:
        both = [cells[name, way] for name in pair if (name, way) in cells]
        runs = [counted(store.runs(cell).values(), cell) for cell in both]
        if len(both) == 2 and all(runs):
            first, second = (Score.of(run["accuracy"] for run in side) for side in runs)
            stuck = any(run["accuracy"] < CHANCE for side in runs for run in side)
            cut = any(cut_short(run, cell) for side, cell in zip(runs, both, strict=True) for run in side)
            yield way, lead(first, second, stuck, cut)


def verdict(leads: Sequence[Lead]) -> str:
    """What becomes of a claim that is true where a lead is positive."""
    leads = [lead for lead in leads if not lead.cut_short]
    if not leads:
        return "open, since trainings hit their epoch limits"
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
    middle = median(lead.mean for lead in leads)
    return f"{word} (clearly true of {ahead} of {count} pairs, clearly false of {behind}, median lead {middle:+z.4f})"


@dataclass(frozen=True)
class Colours:
    """Training and test accuracy of a cell of table 5, and the epoch that had the weights."""

    cell: Cell
    train: float
    test: float
    epoch: float
    cut_short: bool

    @property
    def row(self) -> Mapping[str, str]:
        return {
            "cell": f"{self.cell.row}, {self.cell.column}{' ‡' * self.cut_short}",
            "column": COLUMN_NAMES[self.cell.way],
            "training": f"{self.train:.4f}",
            "test": f"{self.test:.4f}",
            "gap": f"{self.train - self.test:+.4f}",
            "epoch": f"{self.epoch:.1f}",
        }


def over_fitting(store: Store) -> tuple[list[Mapping[str, str]], list[str]]:
    """The rows of table 5 by colours, and what changes from the fewest to the most that start alike."""
    rows, changes = [], []
    for way, row in product(COLUMNS, ("F", "N", "L")):
        cells = list(_by_colours(way, row, store))
        rows += [cell.row for cell in cells]
        ended = [c for c in cells if not c.cut_short and c.cell.experiment.start == cells[-1].cell.experiment.start]
        if len(ended) > 1:
            few, many = ended[0], ended[-1]
            change = over_fits(many.train - few.train, many.test - few.test)
            colours = f"{few.cell.column} to {many.cell.column} colours"
            changes.append(f"{row}, {COLUMN_NAMES[way]}, {colours}: {change}")
    return rows, changes


def _by_colours(way: str, row: str, store: Store) -> Iterator[Colours]:
    """Soft inputs, which have no colours, are left out."""
    for cell in all_cells([TABLE5], [way]):
        runs = [run for run in counted(store.runs(cell).values(), cell) if "train_accuracy" in run]
        if cell.row == row and cell.column != "Soft" and runs:
            means = [fmean(run[key] for run in runs) for key in ("train_accuracy", "accuracy", "best_epoch")]
            yield Colours(cell, *means, any(cut_short(run, cell) for run in runs))


def over_fits(train: float, test: float) -> str:
    """What it means that the accuracies on training and test data change so."""
    change = f"training {train:+.4f}, test {test:+.4f}"
    if test >= -SINGLE:
        return f"{change}: more colours do no harm"
    return f"{change}: over-fits" if train >= -SINGLE else f"{change}: both fall, so it is not over-fitting alone"


# Pairs of cells, of which the first is better than the second if the claim is true

_SHAPES = ("Dense", "Conv", "Local")
_PLACES = ("Conv (0.3)", "Local (0.3)", "Conv (0.7)", "Local (0.7)")
_PARTIAL = {"MNIST": "exp_partial_input_m", "FashionMNIST": "exp_partial_input_fm"}
_ORDERS = (("Par", "parallel"), ("Seq", "sequential"))
_ANALYTIC = {
    "Exact": "T=5/0 hidden",
    "Dense(2)": "T=2/1 hidden",
    "Dense(5)": "T=5/1 hidden",
    "Dense(8)": "T=5/1 hidden",
    "Dense(20)": "T=5/1 hidden",
}
_QUANTISED = [(row, column) for row, column, _ in TABLE5.cells() if row in "FNL" and column != "Soft"]

PAIRS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "trw": {
        f"TRW over {other}, {words}, {shape}": (f"mpcompare/{order}TRW/{shape}", f"mpcompare/{order}{other}/{shape}")
        for other, (order, words), shape in product(("LBP", "MF"), _ORDERS, _SHAPES)
    },
    "sequential": {
        f"sequential over parallel, {rule}, {shape}": (f"mpcompare/Seq{rule}/{shape}", f"mpcompare/Par{rule}/{shape}")
        for rule, shape in product(("MF", "LBP", "TRW"), _SHAPES)
    },
    "sweep": {
        f"sweep over sequential, {rule}, {shape}": (f"mpcompare/Sweep{rule}/{shape}", f"mpcompare/Seq{rule}/{shape}")
        for rule, shape in product(("MF", "LBP"), _SHAPES)
    },
    "analytic": {
        f"backpropagation over analytic, {column}": (f"seqstruct/{backprop}", f"cjinf/LGM/{column}")
        for column, backprop in _ANALYTIC.items()
    },
    "soft": {"MNIST, Dense, over a threshold": ("softclamp/LGM/Soft clamp", "softclamp/LGM/Binary threshold")}
    | {
        f"FashionMNIST, Dense, over {row}, {column} colours": ("fashionmnist/F/Soft", f"fashionmnist/{row}/{column}")
        for row, column in _QUANTISED
    }
    | {
        f"FashionMNIST, {row}, over 4 colours": (
            f"fashionmnist_nncomp/{row}/Soft",
            f"fashionmnist_nncomp/{row}/Requant.",
        )
        for row in ("Conv", "Local")
    },
    "smoothing": {
        f"{name}, {column}": (f"{table}/Local (0.3)/{column}", f"{table}/Local (0.3), no smoothing/{column}")
        for (name, table), column in product(_PARTIAL.items(), ("LGM", "NN(sigmoid)", "NN(relu)"))
    },
    "missing": {
        f"{name}, {place}, {lgm} over {network}": (f"{table}/{place}/{lgm}", f"{table}/{place}/{network}")
        for (lgm, network), (name, table), place in product(
            (("LGM", "NN(relu)"), ("LGM+fill", "NN(relu)+mask")), _PARTIAL.items(), _PLACES
        )
    },
}
