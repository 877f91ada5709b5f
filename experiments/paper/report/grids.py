"""Results in other shapes: compact tables like the paper's, and all cells as CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.paper.cells import Cell
from experiments.paper.report.summary import COLUMN_NAMES, Summary, summary
from experiments.paper.store import Store
from experiments.paper.tables import TABLES, WAYS, Table

NONE = "-"
FIELDS = ("table", "row", "column", "trained", "paper", "accuracy", "std", "seeds", "difference", "epochs")
TIMES = ("seconds", "on")


def grids(cells: Sequence[Cell], store: Store) -> Mapping[int, Mapping[str, Any]]:
    """For each table, by its number: title, heads, and rows whose cells have the paper's number and both of ours."""
    return {table.number: _grid(table, [cell for cell in cells if cell.table is table], store) for table in TABLES}


def _grid(table: Table, cells: Sequence[Cell], store: Store) -> Mapping[str, Any]:
    known = {(cell.row, cell.column, cell.way): summary(cell, store) for cell in cells}
    published = {(row, column): number for row, column, number in table.cells()}
    rows = []
    for row in table.rows:
        line = [row]
        for column in table.columns:
            number = published.get((row, column))
            if number is None:
                line.append("")
                continue
            paper = NONE if number.accuracy is None else f"{number.accuracy:.3f}"
            text = " / ".join([paper, *(_short(known.get((row, column, way))) for way in WAYS)])
            line.append(f"*{text}*" if number.failed else text)
        rows.append(line)
    return {"title": table.title, "heads": ["", *table.columns], "rows": rows}


def _short(s: Summary | None) -> str:
    if s is None or "mean" not in s:
        return NONE
    marks = "¹" * (s["counted"] == 1) + "†" * bool(s["at_chance"])
    return f"{s['mean']:.3f}{marks}"


def as_csv(cells: Sequence[Cell], store: Store) -> str:
    """A line for each cell and column."""
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS + TIMES, lineterminator="\n")
    writer.writeheader()
    for cell in cells:
        s = summary(cell, store)
        line: dict[str, Any] = {"table": cell.table.label, "row": cell.row, "column": cell.column}
        line |= {"trained": COLUMN_NAMES[cell.way], "paper": cell.paper.accuracy, "seeds": s["counted"]}
        if "mean" in s:
            line |= {"accuracy": f"{s['mean']:.5f}", "std": f"{s['std']:.5f}", "epochs": f"{s['epochs']:.1f}"}
            line |= {"seconds": f"{s['seconds']:.1f}", "on": s["timed_on"]}
            line |= {"difference": f"{s['difference']:+.5f}" if "difference" in s else ""}
        writer.writerow(line)
    return text.getvalue()
