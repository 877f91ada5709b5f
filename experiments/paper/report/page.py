"""The pages of results, put together from their parts, and lines for a terminal."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.paper import figures, model_cards
from experiments.paper.ablations import ABLATIONS, rows_of
from experiments.paper.ablations.cases import over_seeds
from experiments.paper.cells import Cell, all_cells, find_cell
from experiments.paper.report.claims import claims
from experiments.paper.report.comparisons import compare, over_fitting
from experiments.paper.report.effects import effects
from experiments.paper.report.findings import findings
from experiments.paper.report.grids import as_csv, grids
from experiments.paper.report.races import races
from experiments.paper.report.stopping import stopping
from experiments.paper.report.summary import COLUMN_NAMES, NEAR, ROUNDING, Summary, accuracy_of, summaries, summary
from experiments.paper.report.templates import bounds, listed, render
from experiments.paper.significance import CLEAR, LEAST, SINGLE
from experiments.paper.store import Store
from experiments.paper.tables import TABLE3, TABLE5, TABLES, WAYS, Table
from torchlgm._utils.atomic import atomic_write
from torchlgm.errors import DataError

TRIALS = Path(__file__).parents[3] / "benchmarks" / "results" / "analytic-cpu.json"
HEADS = ("cell", "paper", *(head for way in WAYS for head in (COLUMN_NAMES[way], "diff.", "epochs", "s")))


PAGES = {  # by where they stand in the documentation
    "reproduction.md": "pages/reproduction.md",
    "reproduction/claims.md": "pages/claims.md",
    "reproduction/open-questions.md": "pages/open-questions.md",
    "reproduction/cells.md": "pages/cells.md",
    "reproduction/figures.md": "pages/figures.md",
}
CSV = "reproduction/cells.csv"


def write(store: Store, folder: Path) -> list[Path]:
    """Write all pages and the CSV file below `folder`."""
    written = []
    for name, text in report(store).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, text.encode())
        written.append(path)
    return written


def report(store: Store) -> dict[str, str]:
    """The text of every page, and all cells as CSV, by file name."""
    cells, (rows, changes) = list(all_cells()), over_fitting(store)
    ablations, comparisons = _ablations(store), compare(store)
    made = {name: ablation["rows"] for name, ablation in ablations.items()} | {"patience": rows_of(store, "patience")}
    values = {"findings": findings(cells, store), "effects": effects(made, store)}
    values |= {"comparisons": comparisons, "colours": {"rows": rows, "changes": changes}}
    values |= {"claims": claims(comparisons, changes, made, store), "grids": grids(cells, store)}
    values |= {"ablations": ablations, "over_seeds": over_seeds}
    values |= {"tables": {table.number: _table(table, cells, store) for table in TABLES}, "heads": HEADS}
    values |= {"analytic": _analytic(store), "quantised": _quantised(store)}
    values |= {"races": races(cells, store), "stopping": stopping(made["patience"])}
    values |= {"figures": figures.shown(store), "models": model_cards.overview(store)}
    values |= {"clear": CLEAR, "least": LEAST, "single": SINGLE, "rounding": ROUNDING, "near": NEAR}
    return {name: render(template, **values) for name, template in PAGES.items()} | {CSV: as_csv(cells, store)}


def lines_of(cells: Sequence[Cell], store: Store) -> list[str]:
    """For a terminal: a line for each cell."""
    width = max(len(cell.name) for cell in cells)
    lines = [f"{'cell':{width}}  column  published  measured"]
    for cell in cells:
        published = "-" if cell.paper.accuracy is None else f"{cell.paper.accuracy:.3f}"
        lines.append(f"{cell.name:{width}}  {cell.way:6}  {published:>9}  {accuracy_of(summary(cell, store))}")
    return lines


def _table(table: Table, cells: Sequence[Cell], store: Store) -> Mapping[str, Any]:
    """Its title, what our column sets, and a row for each of its cells."""
    own = {(cell.row, cell.column, cell.way): summary(cell, store) for cell in cells if cell.table is table}
    rows = []
    for row, column, number in table.cells():
        published = "" if number.accuracy is None else f"{number.accuracy:.3f}" + " (fails)" * number.failed
        rows.append([f"{row}, {column}", published])
        for way in WAYS:
            rows[-1] += _parts(own.get((row, column, way)))
    ours = ", ".join(f"{key} {value}" for key, value in table.ours.items())
    return {"table": table, "rows": rows, "ours": ours}


def _parts(s: Summary | None) -> list[str]:
    """Accuracy, difference to the paper, epochs and seconds."""
    if s is None or "mean" not in s:
        return ["" if s is None else accuracy_of(s), "", "", ""]
    difference = f"{s['difference']:+.3f}" if "difference" in s else ""
    return [accuracy_of(s), difference, f"{s['epochs']:.0f}", f"{s['seconds']:.0f}" + "c" * (s["timed_on"] == "CPU")]


def _ablations(store: Store) -> Mapping[str, Mapping[str, Any]]:
    """The rows, table and summary of each ablation that has rows, by name."""
    result = {}
    for name, ablation in ABLATIONS.items():
        content = store.ablation(name)
        rows, left = content["rows"], content["left"]
        try:
            if rows:
                summary = "" if left else ablation.summary(rows)
                shown = ablation.shown(rows)
                result[name.replace("-", "_")] = {"rows": rows, "left": left, "shown": shown, "summary": summary}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            path = store.ablation_file(name)
            raise DataError(f"{path}: figures are missing ({error!r}); delete it and run it again") from error
    return result


def _analytic(store: Store) -> Mapping[str, object] | None:
    """Where the analytic gradient does not fail as in the paper, and trials of what could make it fail."""
    means = summaries(all_cells([TABLE3], ["paper"], "Dense*"), store)
    by_iterations = {cell.experiment.iterations: s for cell, s in means.items()}
    late = {t: s for t, s in by_iterations.items() if t > 2}
    backprop = summary(find_cell("seqstruct/T=5/1 hidden", "paper"), store)
    if not late or "mean" not in backprop or min(s["difference"] for s in late.values()) < NEAR:
        return None
    trials = {"the paper": {f"T={t}": f"{s['paper']:.3f}" for t, s in by_iterations.items() if t in (2, 5)}}
    for row in json.loads(TRIALS.read_text(encoding="utf-8"))["analytic"]["rows"]:
        trials.setdefault(row["mistake"], {})[f"T={row['T']}"] = f"{row['accuracy']:.3f}"
    return {
        "iterations": listed(list(late)),
        "published": bounds([s["paper"] for s in late.values()], 3),
        "ours": bounds([s["mean"] for s in late.values()], 4),
        "backprop": f"{backprop['mean']:.4f}",
        "two": accuracy_of(by_iterations[2]) if 2 in by_iterations else "-",
        "trials": [{"mistake": mistake, **accuracies} for mistake, accuracies in trials.items()],
    }


def _quantised(store: Store) -> Mapping[str, object] | None:
    """How many cells of table 5 are below the paper when trained as the paper."""
    means = summaries(all_cells([TABLE5], ["paper"]), store)
    known = [s["difference"] for s in means.values() if "difference" in s]
    below = [-gap for gap in known if gap < -NEAR]
    return {"below": len(below), "of": len(known), "by": bounds(below, 3)} if below else None
