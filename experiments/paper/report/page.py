"""The page, put together from its parts, and lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from experiments.paper import cards, figures, questions
from experiments.paper.cells import Cell, all_cells
from experiments.paper.report import comparisons, findings, overview
from experiments.paper.report.remarks import remarks
from experiments.paper.report.summary import accuracy_of, summary
from experiments.paper.results import Store
from experiments.paper.tables import COLUMNS, TABLES, Table

__all__ = ["lines_of", "page", "summary"]

PICTURES = "images/paper"  # seen from the page

HEAD = """# The paper, cell by cell

The 106 accuracies of *Probabilistic Discriminative Learning with Layered Graphical Models* (Y. Shen, T. Wu, C. Domokos
and D. Cremers) beside ours, as far as we have them (`-`: not yet; blank: not in that column): test accuracy as mean ±
standard deviation over seeds, their number in brackets. `python -m experiments.paper` makes the JSON files in
`experiments/paper/results`, and `python -m experiments.paper report > docs/reproduction.md` this page from them; see
`experiments/paper/README.md`.

- **As the paper**: its schedules, Adam with 0.001, batches of 20 (of table 5, 4 with 32 colours and 1 with 256), 48,000
  images to train and 12,000 to validate. Where it is silent we chose: the first and the last images, a stop after 5
  epochs without a lower validation loss, the best weights tested. Energies start at N(0, 1), which its numbers amount
  to but for inputs with many colours (see table 5). For the same reason TRW does not divide energies by rho in its
  messages ([more](scale.md#what-published-trw-amounts-to), also on how some of it was trained in an equal form): it
  then comes out 0.001 to 0.010 below the paper in tables 4 and 6, and 0.007 to 0.028 where pixels are missing.
- **Ours**: our default scale ([why](scale.md)), Adam with 0.01 that falls to 0 along a half cosine over 12 epochs (20
  where pixels are missing), the weights of the lowest validation loss tested. Networks all start at 0.001; for LGMs
  other rates were tried where they fell short. What else differs is said at the table.

*epochs* and accuracies are means over the trainings that count. One that ended at a cap on its epochs, which the cell's
file names, counts only if no other seed of the cell ended by itself; such cells have a !. *s* is the mean time of a
training in seconds on a GPU, while others ran beside it and in one step with the other seeds; c marks cells of which no
training had a GPU, with the time on a core of a CPU. The *minutes* of a machine are the shares that trainings had of
it: they sum up to what all took together. A seed *at chance* has learnt nothing although the paper's training did; it
counts in the mean.

[What came out](#what-came-out), [what the tables say](#what-the-tables-say), [what the paper leaves
open](#what-the-paper-leaves-open), the tables, [figures](#figures), [kept models](#kept-models)."""


def page(store: Store) -> str:
    cells = list(all_cells())
    parts = [HEAD, overview.section(cells, store), findings.section(cells, store)]
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
    return f"{cell.name:{width}}  {cell.way:6}  {published:>9}  {accuracy_of(s)}"


def _section(number: int, table: Table, cells: Iterable[Cell], store: Store) -> str:
    own = [cell for cell in cells if cell.table is table]
    lines = [f"## Table {number}: {table.label}", "", f"{table.title}.", *_ours(table)]
    for note in (table.notes, *remarks(table, store)):
        lines += ["", note] if note else []
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
        return [accuracy_of(s), "", "", ""]
    difference = f"{s['difference']:+.3f}" if "difference" in s else ""
    epochs, seconds = f"{s['epochs']:.0f}", f"{s['seconds']:.0f}"
    return [accuracy_of(s), difference, epochs + "!" * s["cut_short"], seconds + "c" * (s["timed_on"] == "CPU")]
