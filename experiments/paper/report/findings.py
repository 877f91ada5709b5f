"""What came out: counts that the tables bear out."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import correlation, fmean
from typing import Any

from experiments.paper.ablations import race
from experiments.paper.cells import Cell, all_cells
from experiments.paper.report.summary import NEAR, ROUNDING, Summaries, summaries
from experiments.paper.report.templates import listed
from experiments.paper.significance import CHANCE
from experiments.paper.store import Store, counted
from experiments.paper.tables import TABLE2, TABLE4, TABLE5, TABLE6, TABLE7, TABLE8

LARGER = "LGMs that have more hidden nodes or labels (N and L of table 5, Requant. of table 6)"
GROUPS = {TABLE5: "table 5", TABLE6: "table 6", TABLE7: "partial MNIST", TABLE8: "partial FashionMNIST"}
COMPLETE = (TABLE2, TABLE4, TABLE6, TABLE7, TABLE8)  # of which the paper says all but how trainings stop


def findings(cells: Sequence[Cell], store: Store) -> Mapping[str, Any]:
    """What the summary page says of all cells; only those with results take part."""
    means = summaries(cells, store)
    judged = {cell: s for cell, s in means.items() if "difference" in s and not cell.paper.failed}
    paper, ours = (_of(judged, way, "LGMs") for way in ("paper", "ours"))
    remarks = [*_missing_inputs(means), *_against_networks(means), *_tuned(means, store), *_at_chance(means, store)]
    far = Counter(cell.table.number for cell, s in paper.items() if abs(s["difference"]) > NEAR)
    result = {
        "near": _share(abs(s["difference"]) <= NEAR for s in paper.values()),
        "far": listed([f"{far[number]} in table {number}" for number in sorted(far)]),
        "good": _share(_good(ours).values()),
    }
    result |= {"counts": _counts(judged), "remarks": remarks, "distinct": _distinct(ours, store), "ours": len(ours)}
    result |= {"failing": _failing(means, "paper", False), "learning": _failing(means, "ours", True)}
    return result | {"recipe": _recipe(ours), "bias": _bias(paper, store)}


def _of(means: Summaries, way: str, kind: str) -> Summaries:
    return {cell: s for cell, s in means.items() if cell.way == way and kind == _kind(cell)}


def _kind(cell: Cell) -> str:
    return "LGMs" if cell.is_lgm else "networks" if cell.is_network else "contrastive divergence"


def _good(means: Summaries) -> Mapping[Cell, bool]:
    return {cell: s["difference"] >= -ROUNDING for cell, s in means.items()}


def _share(holds: Iterable[bool]) -> str:
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
            rows[-1] += [_share(near), _share(good), f"{fmean(gaps):+.4f}" if gaps else "-"]
    return rows


def _failing(means: Summaries, way: str, learnt: bool) -> str:
    """Of the cells that fail in the paper, how many learnt or did not."""
    return _share((s["mean"] >= CHANCE) == learnt for c, s in means.items() if c.paper.failed and c.way == way)


def _distinct(means: Summaries, store: Store) -> int:
    """Cells that compute one function, such as LBP and TRW on Dense, have the same accuracies to the last digit."""
    return len({tuple(run["accuracy"] for run in counted(store.runs(cell).values())) for cell in means})


def _recipe(means: Summaries) -> Mapping[str, Any] | None:
    """How many cells reach the paper with the settings of their column, and how many have settings of their own."""
    own = {cell for cell in means if f"{cell.row}/{cell.column}" in cell.table.exceptions or cell.column == "Requant."}
    common = _share(good for cell, good in _good(means).items() if cell not in own)
    return {"common": common, "own": len(own)} if means else None


def _bias(means: Summaries, store: Store) -> Mapping[str, Any] | None:
    """Of the tables whose settings are all but told: how many cells are below the paper, and if patience matters."""
    complete = {cell: s["difference"] for cell, s in means.items() if cell.table in COMPLETE}
    if not complete:
        return None
    pairs = [pair for cell in complete for pair in _centred(cell, store)]
    r = f"{correlation(*zip(*pairs, strict=True)):+.2f}" if len(pairs) > 2 else ""
    below = _share(gap < 0 for gap in complete.values())
    return {"below": below, "mean": f"{fmean(complete.values()):+.4f}", "correlation": r, "trainings": len(pairs)}


def _centred(cell: Cell, store: Store) -> list[tuple[float, float]]:
    """Epochs and accuracies of the seeds of a cell, less their means."""
    runs = counted(store.runs(cell).values())
    if len(runs) < 2:
        return []
    epochs, accuracy = fmean(run["epochs"] for run in runs), fmean(run["accuracy"] for run in runs)
    return [(run["epochs"] - epochs, run["accuracy"] - accuracy) for run in runs]


def _missing_inputs(means: Summaries) -> Iterator[str]:
    """Our LGMs against the paper's numbers for networks that see grey where pixels are missing."""
    shares = []
    for column in ("LGM", "LGM+fill"):
        ours = [c for c in means if c.table in (TABLE7, TABLE8) and (c.way, c.column) == ("ours", column)]
        bars = {cell: max(published) for cell in ours if (published := _published_networks(cell))}
        good = [means[cell]["mean"] >= bar - ROUNDING for cell, bar in bars.items()]
        shares += [f"{column} in {_share(good)} cells"] if good else []
    if shares:
        yield f"With pixels missing, at or above the better of the paper's two networks: {', '.join(shares)}."


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
            "At or above the better network of the same shape, which was not tuned, of our column: "
            f"{ours} of {len(every)} LGM cells ({', '.join(f'{name} {ahead[name]}' for name in leads)}); "
            "also of those that we trained as the paper: "
            f"{both}; and of the paper's own: {published}."
        )
    if LARGER in ahead:
        yield f"The same for {LARGER}: {ahead[LARGER]}."


def _tuned(means: Summaries, store: Store) -> Iterator[str]:
    """Our LGMs and networks, each at its best known, tuned ones included."""
    tuned = tuned_accuracies(store)
    if not tuned:
        return
    leads: dict[str, list[bool]] = defaultdict(list)
    networks = [cell for cell in all_cells() if cell.is_network]
    for cell in (cell for cell in means if cell.way == "ours" and cell.is_lgm):
        rivals = {(c.name, c.way): c for c in networks if c.table == cell.table and alike(cell, c)}
        known = [s["mean"] for c, s in means.items() if (c.name, c.way) in rivals]
        known += [x for c in rivals.values() for x in (c.paper.accuracy, tuned.get(c.name)) if x]
        if known and _group(cell) != LARGER:
            leads[_group(cell)].append(max(means[cell]["mean"], tuned.get(cell.name, 0.0)) >= max(known) - ROUNDING)
    if not leads:
        return
    yield (
        "Each side at its best known, recipes of a [race](reproduction/open-questions.md"
        "#do-networks-stay-ahead-when-both-sides-are-tuned-conv-and-local) and networks with a mask included: "
        f"{_share(ahead for group in leads.values() for ahead in group)} LGM cells at or above "
        f"({', '.join(f'{name} {_share(group)}' for name, group in leads.items())})."
    )


def tuned_accuracies(store: Store) -> dict[str, float]:
    """By the names of cells that a race has trained, and of those that compute the same function."""
    rows = [row for name in race.DATA for row in race.of_stage(store.ablation(f"race-{name}")["rows"], "cell")]
    found = {row["cell"]: row["accuracy"] for row in rows}
    same = found.get("mpcompare/SweepLBP/Dense")
    return found | ({f"mpcompare/{row}/Dense": same for row in race.ALIKE} if same else {})


def _rivals(cell: Cell, other: Cell) -> bool:
    """Whether `other` is a network of the same table, shape and visible share, which sees nothing that it does not."""
    return other.is_network and not other.experiment.mask_channel and cell.table == other.table and alike(cell, other)


def alike(cell: Cell, other: Cell) -> bool:
    a, b = cell.experiment, other.experiment
    return (a.model, a.visible, a.smoothing) == (b.model, b.visible, b.smoothing)


def _group(cell: Cell) -> str:
    e = cell.experiment
    if e.grow or e.first_labels > 2:
        return LARGER
    return f"{e.model.capitalize()} of table 4" if cell.table is TABLE4 else GROUPS[cell.table]


def _at_chance(means: Summaries, store: Store) -> Iterator[str]:
    lost = [
        f"{cell.name} ({cell.way}, seed {seed}, {run['accuracy']:.3f})"
        for cell, s in means.items()
        if s["at_chance"]
        for seed, run in store.runs(cell).items()
        if run in counted(store.runs(cell).values()) and run["accuracy"] < CHANCE
    ]
    if lost:
        yield f"Trainings that stayed at chance (below {CHANCE}) although the paper's did not: {', '.join(lost)}."
