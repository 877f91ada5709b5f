"""What came out: counts that the tables bear out."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from experiments.paper.ablations import race
from experiments.paper.cells import Cell
from experiments.paper.report.summary import NEAR, ROUNDING, Summaries, summaries
from experiments.paper.report.templates import listed
from experiments.paper.significance import CHANCE
from experiments.paper.store import Store, counted
from experiments.paper.tables import TABLE2, TABLE4, TABLE5, TABLE6, TABLE7, TABLE8

GROUPS = {TABLE5: "table 5", TABLE6: "table 6", TABLE7: "table 7", TABLE8: "table 8"}
COMPLETE = (TABLE2, TABLE4, TABLE6, TABLE7, TABLE8)  # of which the paper says all but how trainings stop


def findings(cells: Sequence[Cell], store: Store) -> Mapping[str, Any]:
    """What the summary page says of all cells; only those with results take part."""
    means = summaries(cells, store)
    judged = {cell: s for cell, s in means.items() if "difference" in s and not cell.paper.failed}
    paper, ours = (_of(judged, way, "LGMs") for way in ("paper", "ours"))
    far = Counter(cell.table.number for cell, s in paper.items() if abs(s["difference"]) > NEAR)
    result = {
        "near": share(abs(s["difference"]) <= NEAR for s in paper.values()),
        "far": listed([f"{far[number]} in table {number}" for number in sorted(far)]),
        "good": share(_good(ours).values()),
    }
    result |= {"counts": _counts(judged), "distinct": _distinct(ours, store), "ours": len(ours)}
    result |= {"missing": _missing_inputs(means), "at_chance": _at_chance(means, store)}
    result |= {"failing": _failing(means, "paper", False), "learning": _failing(means, "ours", True)}
    result |= {"networks": _against_networks(means, store), "larger": _larger(means)}
    return result | {"recipe": _recipe(ours), "bias": _bias(paper)}


def _of(means: Summaries, way: str, kind: str) -> Summaries:
    return {cell: s for cell, s in means.items() if cell.way == way and kind == _kind(cell)}


def _kind(cell: Cell) -> str:
    return "LGMs" if cell.is_lgm else "networks" if cell.is_network else "contrastive divergence"


def _good(means: Summaries) -> Mapping[Cell, bool]:
    return {cell: s["difference"] >= -ROUNDING for cell, s in means.items()}


def share(holds: Iterable[bool]) -> str:
    values = list(holds)
    return f"{sum(values)} of {len(values)}" if values else "-"


def _counts(means: Summaries) -> list[list[str]]:
    """For each kind of model, in each column: how many cells are near the paper or as good, and the mean gap."""
    rows = []
    for kind in ("LGMs", "networks", "contrastive divergence"):
        rows.append([kind])
        for way in ("paper", "ours"):
            gaps = [s["difference"] for s in _of(means, way, kind).values()]
            near, good = (abs(gap) <= NEAR for gap in gaps), (gap >= -ROUNDING for gap in gaps)
            rows[-1] += [share(near), share(good), f"{fmean(gaps):+.4f}" if gaps else "-"]
    return rows


def _failing(means: Summaries, way: str, learnt: bool) -> str:
    """Of the cells that fail in the paper, how many learnt or did not."""
    return share((s["mean"] >= CHANCE) == learnt for c, s in means.items() if c.paper.failed and c.way == way)


def _distinct(means: Summaries, store: Store) -> int:
    """Cells that compute one function, such as LBP and TRW on Dense, have the same accuracies to the last digit."""
    return len({tuple(run["accuracy"] for run in counted(store.runs(cell).values())) for cell in means})


def _recipe(means: Summaries) -> Mapping[str, Any] | None:
    """How many cells reach the paper with the settings of their column, and how many have settings of their own."""
    own = {cell for cell in means if f"{cell.row}/{cell.column}" in cell.table.exceptions or cell.column == "Requant."}
    common = share(good for cell, good in _good(means).items() if cell not in own)
    return {"common": common, "own": len(own)} if means else None


def _bias(means: Summaries) -> Mapping[str, str] | None:
    """Of the tables whose settings are all but told: how many cells are below the paper."""
    gaps = [s["difference"] for cell, s in means.items() if cell.table in COMPLETE]
    return {"below": share(gap < 0 for gap in gaps), "mean": f"{fmean(gaps):+.4f}"} if gaps else None


def _missing_inputs(means: Summaries) -> Mapping[str, str]:
    """How often our LGMs reach the paper's numbers for networks that see grey where pixels are missing."""
    shares = {}
    for column in ("LGM", "LGM+fill"):
        ours = [c for c in means if c.table in (TABLE7, TABLE8) and (c.way, c.column) == ("ours", column)]
        bars = {cell: max(published) for cell in ours if (published := _published_networks(cell))}
        shares[column] = share(means[cell]["mean"] >= bar - ROUNDING for cell, bar in bars.items())
    return shares


def _published_networks(cell: Cell) -> list[float]:
    """The paper's numbers for networks in the row of a cell."""
    networks = [n for row, column, n in cell.table.cells() if row == cell.row and column.startswith("NN(")]
    return [number.accuracy for number in networks if number.accuracy is not None]


def _against_networks(means: Summaries, store: Store) -> list[Mapping[str, str]]:
    """How many of our LGMs are at or above the better network of their shape: ours, any of this report, and with both
    sides tuned."""
    tuned, groups = tuned_accuracies(store), defaultdict[str, list[dict[str, bool]]](list)
    for cell in _our_lgms(means, larger=False):
        rivals = [other for other in means if rival(cell, other)]
        plain = [other for other in rivals if not other.experiment.mask_channel]
        ours = [means[other]["mean"] for other in plain if other.way == "ours"]
        if not ours:
            continue
        every = [x for other in plain for x in (means[other]["mean"], (other.paper.accuracy or 0.0) - ROUNDING)]
        known = [x for o in rivals for x in (means[o]["mean"], o.paper.accuracy or 0.0, tuned.get(o.name, 0.0))]
        mean = means[cell]["mean"]
        ahead = {"networks of our column": mean >= max(ours)}
        ahead["also those trained as the paper, and the paper's own"] = mean >= max(every)
        ahead["both sides at their best known"] = max(mean, tuned.get(cell.name, 0.0)) >= max(known) - ROUNDING
        groups[_group(cell)].append(ahead)
    if groups:
        groups["all"] = [ahead for group in groups.values() for ahead in group]
    return [
        {"LGMs of": name} | {bar: share(ahead[bar] for ahead in group) for bar in group[0]}
        for name, group in groups.items()
    ]


def _our_lgms(means: Summaries, larger: bool) -> list[Cell]:
    """LGMs of our column; larger ones have more hidden nodes or labels than the networks of their table."""
    return [
        cell
        for cell in means
        if cell.way == "ours"
        and cell.is_lgm
        and larger == bool(cell.experiment.grow or cell.experiment.first_labels > 2)
    ]


def _larger(means: Summaries) -> str:
    """How many of those are at or above the better network of our column."""
    bars = {
        cell: [s["mean"] for o, s in means.items() if o.way == "ours" and rival(cell, o)]
        for cell in _our_lgms(means, larger=True)
    }
    return share(means[cell]["mean"] >= max(bar) for cell, bar in bars.items() if bar)


def rival(cell: Cell, other: Cell) -> bool:
    """Whether the other is a network of the same table, shape and visible share."""
    a, b = cell.experiment, other.experiment
    same = (a.model, a.visible, a.smoothing) == (b.model, b.visible, b.smoothing)
    return other.is_network and cell.table is other.table and same


def tuned_accuracies(store: Store) -> dict[str, float]:
    """By the names of cells that a race has trained, and of those that compute the same function."""
    rows = [row for name in race.DATA for row in race.of_stage(store.ablation(f"race-{name}")["rows"], "cell")]
    found = {row["cell"]: row["accuracy"] for row in rows}
    same = found.get("mpcompare/SweepLBP/Dense")
    return found | ({f"mpcompare/{row}/Dense": same for row in race.ALIKE} if same else {})


def _group(cell: Cell) -> str:
    return f"table 4, {cell.experiment.model.capitalize()}" if cell.table is TABLE4 else GROUPS[cell.table]


def _at_chance(means: Summaries, store: Store) -> list[str]:
    """Trainings that stayed at chance although the paper's did not."""
    return [
        f"{cell.name} ({cell.way}, seed {seed}, {run['accuracy']:.3f})"
        for cell, s in means.items()
        if s["at_chance"]
        for seed, run in store.runs(cell).items()
        if run in counted(store.runs(cell).values()) and run["accuracy"] < CHANCE
    ]
