"""What came out: counts that the tables bear out."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from experiments.paper.cells import Cell
from experiments.paper.report.summary import COLUMN_NAMES, NEAR, ROUNDING, Summaries, summaries
from experiments.paper.significance import CHANCE
from experiments.paper.store import Store, counted, plural
from experiments.paper.tables import TABLE2, TABLE4, TABLE5, TABLE6, TABLE7, TABLE8, TABLES

LARGER = "LGMs that have more hidden nodes or labels (N and L of table 5, Requant. of table 6)"
GROUPS = {TABLE5: "table 5", TABLE6: "table 6", TABLE7: "partial MNIST", TABLE8: "partial FashionMNIST"}
COMPLETE = (TABLE2, TABLE4, TABLE6, TABLE7, TABLE8)  # of which the paper says all but how trainings stop


def findings(cells: Sequence[Cell], store: Store) -> list[str]:
    """Only cells with results take part, and none that were cut short."""
    means = summaries(cells, store)
    ended = {cell: s for cell, s in means.items() if not s["cut_short"]}
    lines = [*_beside_the_paper(ended), *_missing_inputs(ended), *_against_networks(ended)]
    return [*lines, *_left_out(means), *_at_chance(means, store)]


def _beside_the_paper(means: Summaries) -> Iterator[str]:
    gaps = {cell: s["difference"] for cell, s in means.items() if "difference" in s}
    paper, ours = ({cell: gap for cell, gap in gaps.items() if cell.way == way} for way in ("paper", "ours"))
    failing = {cell: means[cell]["mean"] < CHANCE for cell in paper if cell.paper.failed}
    networks = {cell: abs(gap) <= NEAR for cell, gap in paper.items() if cell.is_network}
    lgms = {cell: gap for cell, gap in paper.items() if cell.is_lgm and not cell.paper.failed}
    near = {cell: abs(gap) <= NEAR for cell, gap in lgms.items()}
    complete = [gap for cell, gap in lgms.items() if cell.table in COMPLETE]
    contrastive = {cell: abs(gap) <= NEAR for cell, gap in paper.items() if cell.experiment.learner == "cd"}
    yield from _count(f"As the paper, cells that fail there are at chance (below {CHANCE})", failing)
    yield from _count(f"As the paper, networks within {NEAR} of its number", networks)
    yield from _count(f"As the paper, LGMs that do not fail there within {NEAR} of its number", near, lgms)
    if complete:
        numbers, below = ", ".join(str(table.number) for table in COMPLETE), sum(gap < 0 for gap in complete)
        counts = f"{below} of {len(complete)} cells, mean difference {fmean(complete):+.4f}"
        yield f"As the paper, LGMs of tables {numbers} below its number: {counts}."
    yield from _count(
        f"As the paper, models trained by contrastive divergence within {NEAR} of its number", contrastive
    )
    lgms = {cell: gap >= -ROUNDING for cell, gap in ours.items() if cell.is_lgm}
    networks = {cell: gap >= -ROUNDING for cell, gap in ours.items() if cell.is_network}
    yield from _count("Ours, LGMs at least as good as the paper's number", lgms)
    lgms = {cell: good for cell, good in lgms.items() if not cell.paper.failed}
    yield from _count("Ours, LGMs at least as good as the paper's number, where it does not fail", lgms)
    yield from _count("Ours, networks at least as good as the paper's number", networks)


def _count(text: str, holds: Mapping[Cell, bool], gaps: Mapping[Cell, float] | None = None) -> Iterator[str]:
    """Of how many cells something is true, if there are any; with `gaps`, which tables have others."""
    where = []
    for table in TABLES:
        lost = [gap for cell, gap in (gaps or {}).items() if cell.table is table and not holds[cell]]
        if lost:
            side = "above it" if min(lost) > 0 else "below it" if max(lost) < 0 else "on both sides"
            where.append(f"table {table.number} ({len(lost)}, {side})")
    if holds:
        lost = f"; not in {', '.join(where)}" if where else ""
        yield f"{text}: {sum(holds.values())} of {len(holds)} cells{lost}."


def _missing_inputs(means: Summaries) -> Iterator[str]:
    """Our LGMs against the paper's numbers for networks that see grey where pixels are missing."""
    for column in ("LGM", "LGM+fill"):
        ours = [c for c in means if c.table in (TABLE7, TABLE8) and (c.way, c.column) == ("ours", column)]
        bars = {cell: max(published) for cell in ours if (published := _published_networks(cell))}
        below = [
            f"{GROUPS[cell.table]}, {cell.row} ({means[cell]['mean']:.4f} against {bar:.3f})"
            for cell, bar in bars.items()
            if means[cell]["mean"] < bar - ROUNDING
        ]
        if bars:
            yield (
                f"Ours, {column} with pixels missing at or above the better of the paper's two networks, which fill "
                f"them with 0.5: {len(bars) - len(below)} of {len(bars)} cells"
                + (f"; not {', '.join(below)}." if below else ".")
            )


def _published_networks(cell: Cell) -> list[float]:
    """The paper's numbers for networks in the row of a cell."""
    networks = [n for row, column, n in cell.table.cells() if row == cell.row and column.startswith("NN(")]
    return [number.accuracy for number in networks if number.accuracy is not None]


def _against_networks(means: Summaries) -> Iterator[str]:
    leads: dict[str, list[list[bool]]] = defaultdict(list)  # over networks of ours, of both columns, and of the paper
    for cell in means:
        rivals = [other for other in means if _rivals(cell, other)]
        alike = [other for other in rivals if other.way == cell.way]
        if cell.way == "ours" and cell.is_lgm and alike:
            bars = [max(means[other]["mean"] for other in some) for some in (alike, rivals)]
            bars.append(max(bars[1], max((other.paper.accuracy or 0.0) - ROUNDING for other in rivals)))
            leads[_group(cell)].append([means[cell]["mean"] >= bar for bar in bars])
    ahead = {name: f"{sum(lead[0] for lead in group)} of {len(group)}" for name, group in leads.items()}
    leads.pop(LARGER, None)
    if every := [lead for group in leads.values() for lead in group]:
        ours, both, published = (sum(above) for above in zip(*every, strict=True))
        yield (
            f"Ours, LGMs at or above the better of the two networks of the same shape (of our column, missing pixels "
            f"filled with 0.5): {ours} of {len(every)} cells; also at or above those that we trained as the paper: "
            f"{both}; and at or above the paper's numbers for them: {published}. Of our column, by group: "
            f"{', '.join(f'{name} {ahead[name]}' for name in leads)}."
        )
    if LARGER in ahead:
        yield f"The same for {LARGER} than the network: {ahead[LARGER]}."


def _rivals(cell: Cell, other: Cell) -> bool:
    """Whether `other` is a network of the same table, shape and visible share."""
    a, b = cell.experiment, other.experiment
    alike = (a.model, a.visible, a.smoothing) == (b.model, b.visible, b.smoothing)
    return other.is_network and not b.mask_channel and cell.table == other.table and alike


def _group(cell: Cell) -> str:
    e = cell.experiment
    if e.grow or e.first_labels > 2:
        return LARGER
    return f"{e.model.capitalize()} of table 4" if cell.table is TABLE4 else GROUPS[cell.table]


def _left_out(means: Summaries) -> Iterator[str]:
    for way, name in COLUMN_NAMES.items():
        count = sum(cell.way == way and s["cut_short"] for cell, s in means.items())
        if count:
            cells = plural(count, "cell")
            yield f"Left out of these counts, {name}, since every training hit its epoch limit: {cells}."


def _at_chance(means: Summaries, store: Store) -> Iterator[str]:
    lost = [
        f"{cell.name} ({cell.way}, seed {seed}, {run['accuracy']:.3f})"
        for cell, s in means.items()
        if s["at_chance"]
        for seed, run in store.runs(cell).items()
        if run in counted(store.runs(cell).values(), cell) and run["accuracy"] < CHANCE
    ]
    if lost:
        yield f"Trainings that stayed at chance (below {CHANCE}) although the paper's did not: {', '.join(lost)}."
