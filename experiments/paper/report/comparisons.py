"""What the tables say: claims about pairs of cells, judged by one rule in the paper and in both of our columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean, median
from typing import NamedTuple

from experiments.paper.cells import Cell, all_cells
from experiments.paper.judging import CHANCE, CLEAR, LEAST, SINGLE, Lead, lead
from experiments.paper.report.summary import COLUMN_NAMES
from experiments.paper.results import Store, counted, cut_short
from experiments.paper.tables import COLUMNS, TABLE5
from torchlgm.learn import spread

HEAD = f"""## What the tables say

Differences of test accuracies, ± the standard error that follows from the standard deviations of the two cells over
seeds (taken as at least {LEAST}, and as {SINGLE} where there is one training, as in the paper). Differences of more
than {CLEAR:g} standard errors are **clear**. A claim *holds* if it is clearly true of all pairs, holds *in most cases*
if it is of more than half of them, is *turned round* if the contrary is clear for more than half, and is else *not
borne out*. Only cells with results take part; † marks pairs with a training that stayed at chance, ‡ cells, and pairs
with one, of which no training ended by itself, but at a cap on its epochs: these do not count."""


Leads = Mapping[str, "Lead"]  # of a pair, by column


@dataclass(frozen=True)
class Comparison:
    """A claim, and pairs of cells by name of which the first is better than the second if the claim is true."""

    title: str
    how: str
    claim: str
    pairs: Mapping[str, tuple[str, str]]
    close: Callable[[Sequence[Leads]], str] = lambda _: ""  # one more sentence


def section(store: Store) -> str:
    """All comparisons that have results."""
    cells = {(cell.name, cell.way): cell for cell in all_cells()}
    parts = [_compared(comparison, cells, store) for comparison in COMPARISONS] + [_over_fitting(store)]
    found = [part for part in parts if part]
    return "\n\n".join([HEAD, *found]) if found else ""


def _compared(comparison: Comparison, cells: Mapping[tuple[str, str], Cell], store: Store) -> str:
    leads = {
        name: {column: lead for column in COLUMN_NAMES if (lead := _lead(pair, column, cells, store))}
        for name, pair in comparison.pairs.items()
    }
    leads = {name: found for name, found in leads.items() if found.keys() & set(COLUMNS)}
    if not leads:
        return ""
    shown = [column for column in COLUMN_NAMES if any(column in found for found in leads.values())]
    lines = [f"### {comparison.title}", "", comparison.how, ""]
    lines += ["| lead | " + " | ".join(COLUMN_NAMES[c] for c in shown) + " |", "|---" * (len(shown) + 1) + "|"]
    lines += [f"| {name} | " + " | ".join(str(found.get(c, "")) for c in shown) + " |" for name, found in leads.items()]
    rows = list(leads.values())
    verdicts = [f"{verdict([row[c] for row in rows if c in row])} in *{COLUMN_NAMES[c]}*" for c in shown]
    said = f"That {comparison.claim} {'; it '.join(verdicts)}. {comparison.close(rows)}"
    return "\n".join([*lines, "", said.strip()])


def verdict(leads: Sequence[Lead]) -> str:
    """What becomes of a claim that is true where a lead is positive."""
    leads = [lead for lead in leads if not lead.cut_short]
    if not leads:
        return "is open, since trainings ended at a cap,"
    ahead, behind = (sum(lead.clear == sign for lead in leads) for sign in (1, -1))
    count = len(leads)
    if ahead == count:
        word = "holds"
    elif ahead > count / 2:
        word = "holds in most cases"
    elif behind > count / 2:
        word = "is turned round"
    else:
        word = "is not borne out"
    return f"{word} ({ahead} of {count} clearly for it, {behind} against it, median {_middle(leads):+z.4f})"


def _middle(leads: Sequence[Lead]) -> float:
    return median(lead.mean for lead in leads)


def _left(rows: Sequence[Leads]) -> str:
    """How much of a lead in the paper is left in our column."""
    both = [row for row in rows if row.keys() >= {"said", "ours"} and not row["ours"].cut_short]
    if not both:
        return ""
    share = max(0.0, _middle([row["ours"] for row in both])) / _middle([row["said"] for row in both])
    return f"Of the median lead in the paper, {share:.0%} is left in our column."


def _lead(pair: tuple[str, str], column: str, cells: Mapping[tuple[str, str], Cell], store: Store) -> Lead | None:
    if column == "said":
        first, second = (next(c.number.accuracy for (found, _), c in cells.items() if found == name) for name in pair)
        return None if first is None or second is None else lead(spread([first]), spread([second]))
    both = [cells[name, column] for name in pair if (name, column) in cells]
    runs = [counted(store.runs(cell).values(), cell) for cell in both]
    if len(both) < 2 or not all(runs):
        return None
    first, second = (spread(run["accuracy"] for run in side) for side in runs)
    stuck = any(run["accuracy"] < CHANCE for side in runs for run in side)
    cut = any(cut_short(run, cell) for side, cell in zip(runs, both, strict=True) for run in side)
    return lead(first, second, stuck, cut)


# Whether many colours over-fit


class _Colours(NamedTuple):
    """Training and test accuracy of a cell, and the epoch that had the weights."""

    number: str
    start: str
    train: float
    test: float
    epoch: float
    cut_short: bool


def _over_fitting(store: Store) -> str:
    rows, verdicts = [], []
    for way, row in product(COLUMNS, ("F", "N", "L")):
        found = list(_by_colours(way, row, store))
        rows += [
            f"| {row}, {cell.number}{' ‡' * cell.cut_short} | {COLUMN_NAMES[way]} | {cell.train:.4f} | {cell.test:.4f} "
            f"| {cell.train - cell.test:+.4f} | {cell.epoch:.1f} |"
            for cell in found
        ]
        whole = [cell for cell in found if not cell.cut_short and cell.start == found[-1].start]
        if len(whole) > 1:
            few, many = whole[0], whole[-1]
            change = fits(many.train - few.train, many.test - few.test)
            verdicts.append(f"{row}, {COLUMN_NAMES[way]}, {few.number} to {many.number} colours: {change}")
    if not rows:
        return ""
    how = (
        "Over-fitting would raise the accuracy on training data while that on test data falls; if both fall, finer "
        "inputs are harder to learn instead. Accuracy on 10,000 training images and on the test images, mean over "
        "the seeds of the cell, with the weights of the lowest validation loss, and the epoch that had these. Below, "
        "the fewest and the most colours that start alike are compared."
    )
    lines = ["### Does finer quantisation over-fit?", "", how, ""]
    lines += ["| cell | column | training | test | gap | epoch |", "|---|---|---|---|---|---|", *rows]
    return "\n".join([*lines, "", *(f"- {said}" for said in verdicts)]).rstrip()


def _by_colours(way: str, row: str, store: Store) -> Iterator[_Colours]:
    """Soft inputs, which have no colours, are left out."""
    for cell in all_cells([TABLE5], [way]):
        runs = [run for run in counted(store.runs(cell).values(), cell) if "train_accuracy" in run]
        if cell.row == row and cell.column != "Soft" and runs:
            train, test, epoch = (
                fmean(run[key] for run in runs) for key in ("train_accuracy", "accuracy", "best_epoch")
            )
            cut = any(cut_short(run, cell) for run in runs)
            yield _Colours(cell.column, cell.experiment.start, train, test, epoch, cut)


def fits(train: float, test: float) -> str:
    """What it means that the accuracies on training and test data change so."""
    said = f"training {train:+.4f}, test {test:+.4f}"
    if test >= -SINGLE:
        return f"{said}: more colours do no harm"
    return f"{said}: over-fits" if train >= -SINGLE else f"{said}: both fall, so it is not over-fitting alone"


# The claims

_SHAPES = ("Dense", "Conv", "Local")
_PLACES = ("Conv (0.3)", "Local (0.3)", "Conv (0.7)", "Local (0.7)")
_PARTIAL = {"MNIST": "exp_partial_input_m", "FashionMNIST": "exp_partial_input_fm"}

COMPARISONS = (
    Comparison(
        "How much of TRW's lead is scale?",
        "Table 4. Our column starts all methods at one balanced scale and trains them alike (TRW on Local with a "
        "higher learning rate), but otherwise than the paper. On Dense, LBP and TRW compute the same function (the "
        "graph is a star, rho is 1), so a lead there has no other reason than chance, scale and training. On Conv and "
        "Local, TRW as the paper does not divide energies by rho: between hidden nodes they then count for 1/16 to "
        "1/144 of what LBP makes of them, which is scale as well. TRW of our column divides, as in the formulas.",
        "TRW is better than LBP and MF",
        {
            f"TRW over {other}, {words}, {shape}": (
                f"mpcompare/{order}TRW/{shape}",
                f"mpcompare/{order}{other}/{shape}",
            )
            for other, (order, words), shape in product(
                ("LBP", "MF"), (("Par", "parallel"), ("Seq", "sequential")), _SHAPES
            )
        },
        _left,
    ),
    Comparison(
        "Is the sequential schedule better than the parallel one?",
        "Table 4; both have 5 iterations.",
        "it is better",
        {
            f"sequential over parallel, {method}, {shape}": (
                f"mpcompare/Seq{method}/{shape}",
                f"mpcompare/Par{method}/{shape}",
            )
            for method, shape in product(("MF", "LBP", "TRW"), _SHAPES)
        },
    ),
    Comparison(
        "Is one sweep better than the sequential schedule?",
        "Table 4. Sweeps, which are ours, run once; the sequential schedule has 5 iterations.",
        "it is better",
        {
            f"sweep over sequential, {method}, {shape}": (
                f"mpcompare/Sweep{method}/{shape}",
                f"mpcompare/Seq{method}/{shape}",
            )
            for method, shape in product(("MF", "LBP"), _SHAPES)
        },
    ),
    Comparison(
        "What does the analytic gradient cost?",
        "Table 3 against table 1. With one hidden layer LBP is exact about the output, which is all that "
        "backpropagation needs, from T=2, so T=5 stands for any more. Our column has sweeps, which are exact from T=1. "
        "See below for where the analytic gradient, which needs all beliefs, is right.",
        "backpropagation is better than the analytic gradient",
        {
            f"backpropagation over analytic, {column}": (f"seqstruct/{other}", f"cjinf/LGM/{column}")
            for column, other in (
                ("Exact", "T=5/0 hidden"),
                ("Dense(2)", "T=2/1 hidden"),
                ("Dense(5)", "T=5/1 hidden"),
                ("Dense(8)", "T=5/1 hidden"),
                ("Dense(20)", "T=5/1 hidden"),
            )
        },
    ),
    Comparison(
        "Does soft clamping still win when inputs with many labels start at a sane scale?",
        "Tables 2, 5 and 6. In our column, soft and quantised inputs have the same balanced scale; tables of inputs "
        "with 4 colours and more start weaker.",
        "soft clamping is better than hard labels",
        {"MNIST, Dense, over a threshold": ("softclamp/LGM/Soft clamp", "softclamp/LGM/Binary threshold")}
        | {
            f"FashionMNIST, Dense, over {row}, {column} colours": (
                "fashionmnist/F/Soft",
                f"fashionmnist/{row}/{column}",
            )
            for row, column, _ in TABLE5.cells()
            if row in "FNL" and column != "Soft"
        }
        | {
            f"FashionMNIST, {row}, over 4 colours": (
                f"fashionmnist_nncomp/{row}/Soft",
                f"fashionmnist_nncomp/{row}/Requant.",
            )
            for row in ("Conv", "Local")
        },
    ),
    Comparison(
        "Does label smoothing help every method?",
        "Tables 7 and 8, Local with 30 % of the pixels visible: smoothing 0.1 over none. The paper says that it "
        "improved all methods, without numbers.",
        "smoothing helps",
        {
            f"{name}, {column}": (f"{table}/Local (0.3)/{column}", f"{table}/Local (0.3), no smoothing/{column}")
            for (name, table), column in product(_PARTIAL.items(), ("LGM", "NN(sigmoid)", "NN(relu)"))
        },
    ),
    Comparison(
        "Are LGMs better than networks when pixels are missing?",
        "Tables 7 and 8: each LGM over the relu network that the paper compares it with, then our best LGM, which also "
        "learns to fill in, over the relu network that also sees which pixels are missing. Many networks of our column "
        "stay below the paper's numbers, so what came out, above, also counts those.",
        "LGMs are better",
        {
            f"{name}, {place}, {lgm} over {network}": (f"{table}/{place}/{lgm}", f"{table}/{place}/{network}")
            for (lgm, network), (name, table), place in product(
                (("LGM", "NN(relu)"), ("LGM+fill", "NN(relu)+mask")), _PARTIAL.items(), _PLACES
            )
        },
    ),
)
