"""What came out: counts that the tables bear out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from experiments.paper.cells import Cell
from experiments.paper.judging import CHANCE
from experiments.paper.report.summary import COLUMN_NAMES, NEAR, ROUNDING, Summaries, summary
from experiments.paper.results import Store, counted
from experiments.paper.tables import TABLE4, TABLE5, TABLE6, TABLE7, TABLE8, TABLES
from experiments.paper.words import number_of

LARGER = "LGMs that have more hidden nodes or labels (N and L of table 5, Requant. of table 6)"
GROUPS = {TABLE5: "table 5", TABLE6: "table 6", TABLE7: "partial MNIST", TABLE8: "partial FashionMNIST"}
HEAD = (
    "Cells that compute the same function, such as LBP and TRW on Dense, count each. The paper's numbers have three "
    f"digits, so {ROUNDING} less still counts as at least as good."
)


def section(cells: Sequence[Cell], store: Store) -> str:
    """Only cells with results take part, and none that were cut short."""
    means = {cell: s for cell in cells if "mean" in (s := summary(cell, store))}
    whole = {cell: s for cell, s in means.items() if not s["cut_short"]}
    lines = [*_compared(whole), *_missing_inputs(whole), *_against_networks(whole)]
    lines += [*_left_out(means), *_at_chance(means, store)]
    return "\n".join(["## What came out", "", HEAD, "", *lines]) if lines else ""


def _compared(means: Summaries) -> Iterator[str]:
    def count(
        text: str, chosen: Callable[[Cell], bool], holds: Callable[[Cell], bool], by_table: bool = False
    ) -> Iterator[str]:
        these = [cell for cell in means if chosen(cell)]
        lost = [cell for cell in these if not holds(cell)]
        if these:
            where = f"; not in {_by_table(lost, gap)}" if by_table and lost else ""
            yield f"- {text}: {len(these) - len(lost)} of {len(these)} cells{where}."

    known = {cell: cell.number.accuracy is not None for cell in means}
    gap = {cell: means[cell].get("difference", 0.0) for cell in means}
    yield from count(
        f"As the paper, cells that fail there are at chance (below {CHANCE})",
        lambda c: c.way == "paper" and c.number.failed,
        lambda c: means[c]["mean"] < CHANCE,
    )
    yield from count(
        f"As the paper, networks within {NEAR} of its number",
        lambda c: c.way == "paper" and c.is_network and known[c],
        lambda c: abs(gap[c]) <= NEAR,
    )
    yield from count(
        f"As the paper, LGMs that do not fail there within {NEAR} of its number",
        lambda c: c.way == "paper" and c.is_lgm and known[c] and not c.number.failed,
        lambda c: abs(gap[c]) <= NEAR,
        by_table=True,
    )
    yield from count(
        f"As the paper, models trained by contrastive divergence within {NEAR} of its number",
        lambda c: c.way == "paper" and c.experiment.learner == "cd" and known[c],
        lambda c: abs(gap[c]) <= NEAR,
    )
    yield from count(
        "Ours, LGMs at least as good as the paper's number",
        lambda c: c.way == "ours" and c.is_lgm and known[c],
        lambda c: gap[c] >= -ROUNDING,
    )
    yield from count(
        "Ours, networks at least as good as the paper's number",
        lambda c: c.way == "ours" and c.is_network and known[c],
        lambda c: gap[c] >= -ROUNDING,
    )


def _by_table(cells: Sequence[Cell], gap: Mapping[Cell, float]) -> str:
    said = []
    for number, table in enumerate(TABLES, 1):
        gaps = [gap[cell] for cell in cells if cell.table is table]
        if gaps:
            side = "above it" if min(gaps) > 0 else "below it" if max(gaps) < 0 else "on both sides"
            said.append(f"table {number} ({len(gaps)}, {side})")
    return ", ".join(said)


def _missing_inputs(means: Summaries) -> Iterator[str]:
    """Our LGMs against the paper's numbers for networks that see grey where pixels are missing."""
    for column in ("LGM", "LGM+fill"):
        ours = [c for c in means if c.table in (TABLE7, TABLE8) and (c.way, c.column) == ("ours", column)]
        bars = {cell: max(theirs) for cell in ours if (theirs := _networks_of_the_paper(cell))}
        below = [
            f"{GROUPS[cell.table]}, {cell.row} ({means[cell]['mean']:.4f} against {bar:.3f})"
            for cell, bar in bars.items()
            if means[cell]["mean"] < bar - ROUNDING
        ]
        if bars:
            yield (
                f"- Ours, {column} with pixels missing at or above the better of the paper's two networks, which fill "
                f"them with 0.5: {len(bars) - len(below)} of {len(bars)} cells"
                + (f"; not {', '.join(below)}." if below else ".")
            )


def _networks_of_the_paper(cell: Cell) -> list[float]:
    """Their numbers in the row of a cell."""
    row = [
        number.accuracy for row, column, number in cell.table.cells() if row == cell.row and column.startswith("NN(")
    ]
    return [accuracy for accuracy in row if accuracy is not None]


def _against_networks(means: Summaries) -> Iterator[str]:
    leads: dict[str, list[list[bool]]] = defaultdict(list)  # over networks of ours, of both columns, and of the paper
    for cell in means:
        rivals = [other for other in means if _rivals(cell, other)]
        alike = [other for other in rivals if other.way == cell.way]
        if cell.way == "ours" and cell.is_lgm and alike:
            bars = [max(means[other]["mean"] for other in some) for some in (alike, rivals)]
            bars.append(max(bars[1], max((other.number.accuracy or 0.0) - ROUNDING for other in rivals)))
            leads[_group(cell)].append([means[cell]["mean"] >= bar for bar in bars])
    larger = leads.pop(LARGER, [])
    if every := [lead for group in leads.values() for lead in group]:
        ours, both, all_of_them = (sum(above) for above in zip(*every, strict=True))
        yield (
            f"- Ours, LGMs at or above the better of the two networks of the same shape (of our column, missing pixels "
            f"filled with 0.5): {ours} of {len(every)} cells; also at or above those that we trained as the paper: "
            f"{both}; and at or above the paper's numbers for them: {all_of_them}. Of our column, by group: "
            f"{', '.join(f'{name} {_ahead(group)}' for name, group in leads.items())}."
        )
    if larger:
        yield f"- The same for {LARGER} than the network: {_ahead(larger)}."


def _group(cell: Cell) -> str:
    e = cell.experiment
    if e.grow or e.first_labels > 2:
        return LARGER
    return f"{e.model.capitalize()} of table 4" if cell.table is TABLE4 else GROUPS[cell.table]


def _ahead(leads: Sequence[Sequence[bool]]) -> str:
    return f"{sum(lead[0] for lead in leads)} of {len(leads)}"


def _left_out(means: Summaries) -> Iterator[str]:
    for way, name in COLUMN_NAMES.items():
        cells = [cell for cell, s in means.items() if cell.way == way and s["cut_short"]]
        if cells:
            whose = "its" if len(cells) == 1 else "their"
            count = number_of(len(cells), "cell")
            yield f"- Left out here, {name}, since all {whose} trainings ended at a cap on epochs: {count}."


def _at_chance(means: Summaries, store: Store) -> Iterator[str]:
    lost = [
        f"{cell.name} ({cell.way}, seed {seed}, {run['accuracy']:.3f})"
        for cell, s in means.items()
        if s["at_chance"]
        for seed, run in store.runs(cell).items()
        if run in counted(store.runs(cell).values(), cell) and run["accuracy"] < CHANCE
    ]
    if lost:
        yield f"- Trainings that stayed at chance (below {CHANCE}) although the paper's did not: {', '.join(lost)}."


def _rivals(cell: Cell, other: Cell) -> bool:
    """Whether `other` is a network of the same table, shape and visible share."""
    a, b = cell.experiment, other.experiment
    alike = (a.model, a.visible, a.smoothing) == (b.model, b.visible, b.smoothing)
    return other.is_network and not b.mask_channel and cell.table == other.table and alike
