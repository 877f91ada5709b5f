"""From results to words: the page of the documentation, and lines for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import fmean
from typing import Any

from torchlgm.learn import spread
from torchlgm.paper import cards, comparisons, figures, questions
from torchlgm.paper.cells import Cell, all_cells
from torchlgm.paper.comparisons import CHANCE
from torchlgm.paper.results import Store, counted, cut_short
from torchlgm.paper.tables import COLUMNS, TABLES, Table

PICTURES = "images/paper"  # seen from the page
NEAR = 0.01  # a network of ours and of the paper
ROUNDING = 0.0005  # the paper has three digits

HEAD = """# The paper, cell by cell

The paper's 106 accuracies beside ours, as far as we have them (`-`: not yet; blank: not in that column): test accuracy
as mean ± standard deviation over seeds, their number in brackets. This page is generated from the JSON files in
`results/paper` by `torchlgm reproduce report > docs/reproduction.md`; `torchlgm reproduce` makes the results, see [the
command line](cli.md#torchlgm-reproduce).

- **As the paper**: its schedules, energies that start at N(0, 1), Adam with 0.001, batches of 20, the first 48,000
  images to train, the last 12,000 to validate, stopped after 5 epochs without a lower validation loss, the best weights
  tested. TRW does not divide energies by rho in its messages, which is what the paper's numbers amount to
  ([why](scale.md#what-published-trw-amounts-to)): tables 4 and 6 then come out 0.001 to 0.014 below the paper. Tables 7
  and 8 still have the TRW of the formulas with energies stored as rho times theta, which weakens those of observed
  pixels too: 0.03 to 0.09 below (some of Conv with 0.3 of the pixels visible stay at chance).
- **Ours**: our default scale ([why](scale.md)), Adam with 0.01 that falls to 0 along a half cosine over 12 epochs (20
  where pixels are missing), the weights of the lowest validation loss tested. Networks start at 0.001. What else
  differs is said at the table.

*epochs* is the mean number of epochs, ! where trainings ended at a cap on them, which the cell's file names, and none
went to its end; beside one that did they do not count. *s* is the mean time of a training in seconds while others ran
beside it, on a GPU in one step with the other seeds. The *minutes* of a machine are the shares that trainings had of
it: they sum up to what all took together. A seed *at chance* has learnt nothing although the paper's training did; it
counts in the mean.

[What came out](#what-came-out), [what the tables say](#what-the-tables-say), [what the paper leaves
open](#what-the-paper-leaves-open), the tables, [figures](#figures), [kept models](#kept-models)."""


def page(store: Store) -> str:
    cells = list(all_cells())
    parts = [HEAD, _overview(cells, store), _findings(cells, store)]
    parts += [comparisons.section(store), questions.section(store.folder)]
    parts += [_section(number, table, cells, store) for number, table in enumerate(TABLES, 1)]
    parts += [figures.section(store, PICTURES), cards.section(store)]
    return "\n\n".join(part for part in parts if part) + "\n"


def lines_of(cells: Sequence[Cell], store: Store) -> list[str]:
    """For a terminal: a line for each cell."""
    width = max(len(cell.name) for cell in cells)
    head = f"{'cell':{width}}  column  published  measured"
    return [head, *[_line(cell, summary(cell, store), width) for cell in cells]]


def _line(cell: Cell, s: dict[str, Any], width: int) -> str:
    published = "-" if cell.number.accuracy is None else f"{cell.number.accuracy:.3f}"
    return f"{cell.name:{width}}  {cell.way:6}  {published:>9}  {_accuracy(s)}"


def summary(cell: Cell, store: Store) -> dict[str, Any]:
    """What is known of a cell: accuracy over seeds, difference to the paper, epochs and seconds."""
    runs = list(store.runs(cell).values())
    good = counted(runs, cell)
    found: dict[str, Any] = {"cell": cell.name, "column": cell.way, "paper": cell.number.accuracy, "seeds": len(runs)}
    found |= {"counted": len(good), "failed": sum("accuracy" not in run for run in runs)}
    found["machine_seconds"] = sum(run["own_seconds"] for run in runs)
    if not good:
        return found
    accuracy = spread(run["accuracy"] for run in good)
    found["at_chance"] = 0 if cell.number.failed else sum(run["accuracy"] < CHANCE for run in good)
    found |= {"mean": accuracy.mean, "std": accuracy.std, "epochs": fmean(run["epochs"] for run in good)}
    found |= {"cut_short": any(cut_short(run, cell) for run in good), "seconds": fmean(run["seconds"] for run in good)}
    if cell.number.accuracy is not None:
        found["difference"] = accuracy.mean - cell.number.accuracy
    return found


def _accuracy(s: dict[str, Any]) -> str:
    if "mean" not in s:
        return "diverged" if s["failed"] else "-"
    n = s["counted"]
    lost = f", {s['failed']} diverged" if s["failed"] else ""
    lost += f", {s['at_chance']} at chance" if s["at_chance"] else ""
    return f"{s['mean']:.4f} ± {s['std']:.4f} ({n}{lost})" if n > 1 else f"{s['mean']:.4f} (1{lost})"


def _section(number: int, table: Table, cells: Iterable[Cell], store: Store) -> str:
    own = [cell for cell in cells if cell.table is table]
    lines = [f"## Table {number}: {table.label}", "", f"{table.title}.", *_ours(table)]
    lines += ["", table.notes] if table.notes else []
    lines += ["", "| cell | paper | as the paper | diff. | epochs | s | ours | diff. | epochs | s |"]
    lines += ["|---|---|---|---|---|---|---|---|---|---|"]
    for row, column, paper in table.cells():
        said = "" if paper.accuracy is None else f"{paper.accuracy:.3f}" + (" (fails)" if paper.failed else "")
        fields = [f"{row}, {column}", said]
        for way in COLUMNS:
            cell = next((c for c in own if (c.row, c.column, c.way) == (row, column, way)), None)
            fields += [""] * 4 if cell is None else _fields(summary(cell, store))
        lines.append("| " + " | ".join(fields) + " |")
    return "\n".join(lines)


def _ours(table: Table) -> Iterator[str]:
    if table.ours:
        words = [f"{key} {value}" for key, value in table.ours.items()]
        yield f"The LGMs of our column have {', '.join(words)}."


def _fields(s: dict[str, Any]) -> list[str]:
    if "mean" not in s:
        return [_accuracy(s), "", "", ""]
    difference = f"{s['difference']:+.3f}" if "difference" in s else ""
    return [_accuracy(s), difference, f"{s['epochs']:.0f}{'!' if s['cut_short'] else ''}", f"{s['seconds']:.0f}"]


def _overview(cells: Sequence[Cell], store: Store) -> str:
    """A table of the tables: their numbers, how many of them we have in either column, and what that took."""
    heads = ("table", "numbers of the paper", "as the paper", "ours", "trainings", "GPU minutes", "CPU minutes")
    lines = ["## What was run", "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    total = [0.0] * (len(heads) - 1)
    for number, table in enumerate(TABLES, 1):
        found = {cell: summary(cell, store) for cell in cells if cell.table is table}
        theirs = sum(paper.accuracy is not None for _, _, paper in table.cells())
        known = [
            sum(cell.way == way and cell.number.accuracy is not None and s["seeds"] > 0 for cell, s in found.items())
            for way in COLUMNS
        ]
        spent = {"GPU": 0.0, "CPU": 0.0}
        for run in (run for cell in found for run in store.runs(cell).values()):
            spent["CPU" if "CPU" in run["machine"] else "GPU"] += run["own_seconds"] / 60
        row = [theirs, *known, sum(s["seeds"] for s in found.values()), *spent.values()]
        total = [a + b for a, b in zip(total, row, strict=True)]
        lines.append(_counts(f"{number}: {table.label}", row))
    lines.append(_counts("all", total))
    machines = sorted({run["machine"] for cell in cells for run in store.runs(cell).values()})
    return "\n".join([*lines, "", f"Machines: {'; '.join(machines) or 'none yet'}."])


def _counts(name: str, row: Sequence[float]) -> str:
    *counts, gpu, cpu = row
    return f"| {' | '.join([name, *[f'{n:.0f}' for n in counts]])} | {gpu:.1f} | {cpu:.1f} |"


def _findings(cells: Sequence[Cell], store: Store) -> str:
    """Counts that the tables below bear out; only cells with results take part, and none that were cut short."""
    means = {cell: s for cell in cells if "mean" in (s := summary(cell, store))}
    whole = {cell: s for cell, s in means.items() if not s["cut_short"]}
    lines = [*_compared(whole), *_against_networks(whole), *_left_out(means), *_at_chance(means, store)]
    return "\n".join(["## What came out", "", *lines]) if lines else ""


def _compared(means: dict[Cell, dict[str, Any]]) -> Iterator[str]:
    def count(text: str, chosen: Callable[[Cell], bool], holds: Callable[[Cell], bool]) -> Iterator[str]:
        these = [cell for cell in means if chosen(cell)]
        if these:
            yield f"- {text}: {sum(map(holds, these))} of {len(these)} cells."

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
        lambda c: c.way == "paper" and _is_lgm(c) and known[c] and not c.number.failed,
        lambda c: abs(gap[c]) <= NEAR,
    )
    yield from count(
        "Ours, LGMs at least as good as the paper's number",
        lambda c: c.way == "ours" and _is_lgm(c) and known[c],
        lambda c: gap[c] >= -ROUNDING,
    )
    yield from count(
        "Ours, networks at least as good as the paper's number",
        lambda c: c.way == "ours" and c.is_network and known[c],
        lambda c: gap[c] >= -ROUNDING,
    )


def _against_networks(means: dict[Cell, dict[str, Any]]) -> Iterator[str]:
    leads = []  # over the networks of our column, those of both, and the paper's numbers too
    for cell in means:
        rivals = [other for other in means if _rivals(cell, other)]
        alike = [other for other in rivals if other.way == cell.way]
        if cell.way == "ours" and _is_lgm(cell) and alike:
            bars = [max(means[other]["mean"] for other in some) for some in (alike, rivals)]
            bars.append(max(bars[1], max((other.number.accuracy or 0.0) - ROUNDING for other in rivals)))
            leads.append([means[cell]["mean"] >= bar for bar in bars])
    if leads:
        ours, both, all_of_them = (sum(above) for above in zip(*leads, strict=True))
        yield (
            f"- Ours, LGMs at or above the better of the two networks of the same shape (of our column, missing pixels "
            f"filled with 0.5): {ours} of {len(leads)} cells; also at or above those that we trained as the paper: "
            f"{both}; and at or above the paper's numbers for them: {all_of_them}."
        )


def _left_out(means: dict[Cell, dict[str, Any]]) -> Iterator[str]:
    for way, name in comparisons.COLUMN_NAMES.items():
        cells = [cell for cell, s in means.items() if cell.way == way and s["cut_short"]]
        if cells:
            yield f"- Left out here, {name}, since no training went beyond a cap on its epochs: {len(cells)} cells."


def _at_chance(means: dict[Cell, dict[str, Any]], store: Store) -> Iterator[str]:
    lost = [
        f"{cell.name} ({cell.way}, seed {seed}, {run['accuracy']:.3f})"
        for cell, s in means.items()
        if s["at_chance"]
        for seed, run in store.runs(cell).items()
        if run in counted(store.runs(cell).values(), cell) and run["accuracy"] < CHANCE
    ]
    if lost:
        yield f"- Trainings that stayed at chance (below {CHANCE}) although the paper's did not: {', '.join(lost)}."


def _is_lgm(cell: Cell) -> bool:
    return cell.experiment.learner == "lgm"


def _rivals(cell: Cell, other: Cell) -> bool:
    """Whether `other` is a network of the same table, shape and visible share."""
    a, b = cell.experiment, other.experiment
    alike = (a.model, a.visible, a.smoothing) == (b.model, b.visible, b.smoothing)
    return other.is_network and not b.mask_channel and cell.table == other.table and alike
