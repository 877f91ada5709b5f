"""The page of results, put together from its parts, and lines for a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from experiments.paper import figures, model_cards
from experiments.paper.ablations import ABLATIONS
from experiments.paper.ablations.cases import over_seeds
from experiments.paper.ablations.full_size import choices_epochs
from experiments.paper.cells import Cell, all_cells
from experiments.paper.report.comparisons import compare, over_fitting
from experiments.paper.report.cost import Cost
from experiments.paper.report.findings import findings
from experiments.paper.report.summary import (
    COLUMN_NAMES,
    NEAR,
    ROUNDING,
    Summary,
    accuracy_of,
    summaries,
    summary,
)
from experiments.paper.report.templates import bounds, listed, render
from experiments.paper.significance import CLEAR, LEAST, SINGLE
from experiments.paper.store import Store
from experiments.paper.tables import COLUMNS, TABLE1, TABLE3, TABLE4, TABLE5, TABLE6, TABLE7, TABLE8, TABLES, Table
from torchlgm.errors import DataError

TRIALS = Path(__file__).parents[3] / "benchmarks" / "results" / "analytic-cpu.json"
PARTS = {"": "accuracy", "diff.": "difference", "epochs": "epochs", "s": "seconds"}  # of a column, in this order


def page(store: Store) -> str:
    cells = list(all_cells())
    cost = Cost(cells, store)
    rows, changes = over_fitting(store)
    return render(
        "reproduction.md",
        trw_below={"complete": _trw_below(store, TABLE4, TABLE6), "missing": _trw_below(store, TABLE7, TABLE8)},
        cost=cost,
        findings=findings(cells, store),
        comparisons=compare(store),
        colours={"rows": rows, "changes": changes},
        ablations=_ablations(store),
        tables={table.number: _table(table, cells, store) for table in TABLES},
        analytic=_analytic(store),
        quantised=_quantised(store),
        caps=[f"{COLUMN_NAMES[way]}, {caps}" for way in COLUMNS if (caps := _caps(way, store))],
        figures=figures.captions(store),
        models=model_cards.overview(store),
        clear=CLEAR,
        least=LEAST,
        single=SINGLE,
        rounding=ROUNDING,
        over_seeds=over_seeds,
        choices_epochs=choices_epochs,
    )


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
    own = {(cell.row, cell.column, cell.way): cell for cell in cells if cell.table is table}
    heads = {"cell": "cell", "paper": "paper"}
    heads |= {f"{way} {part}".strip(): part or COLUMN_NAMES[way] for way in COLUMNS for part in PARTS}
    heads["paper"], heads["published"] = COLUMN_NAMES["paper"], "paper"
    rows = []
    for row, column, number in table.cells():
        published = "" if number.accuracy is None else f"{number.accuracy:.3f}" + " (fails)" * number.failed
        values = {"cell": f"{row}, {column}", "published": published}
        for way in COLUMNS:
            if cell := own.get((row, column, way)):
                values |= {f"{way} {part}".strip(): value for part, value in _parts(summary(cell, store)).items()}
        rows.append(values)
    order = ["cell", "published", *(key for key in heads if key not in ("cell", "published"))]
    ours = ", ".join(f"{key} {value}" for key, value in table.ours.items())
    return {"table": table, "rows": rows, "heads": {key: heads[key] for key in order}, "ours": ours}


def _parts(s: Summary) -> Mapping[str, str]:
    parts = {"": accuracy_of(s)}
    if "difference" in s:
        parts["diff."] = f"{s['difference']:+.3f}"
    if "mean" in s:
        parts["epochs"] = f"{s['epochs']:.0f}" + "!" * s["cut_short"]
        parts["s"] = f"{s['seconds']:.0f}" + "c" * (s["timed_on"] == "CPU")
    return parts


def _ablations(store: Store) -> Mapping[str, Mapping[str, Any] | None]:
    """The rows, table and summary of each ablation by name; None for those without rows."""
    result: dict[str, Mapping[str, Any] | None] = {}
    for name, ablation in ABLATIONS.items():
        content = store.ablation(name)
        rows, left = content["rows"], content["left"]
        try:
            result[name.replace("-", "_")] = (
                {"rows": rows, "left": left, "shown": ablation.shown(rows), "summary": left or ablation.summary(rows)}
                if rows
                else None
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            path = store.ablation_file(name)
            raise DataError(f"{path}: figures are missing ({error!r}); delete it and run it again") from error
    return result


def _trw_below(store: Store, *tables: Table) -> str:
    """How far TRW as the paper is below it."""
    means = summaries(all_cells(tables, ["paper"]), store)
    gaps = [-s["difference"] for c, s in means.items() if c.experiment.method == "published trw" and c.is_lgm]
    return bounds(gaps, 3) if gaps else ""


def _analytic(store: Store) -> Mapping[str, object] | None:
    """Where the analytic gradient does not fail as in the paper, and trials of what could make it fail."""
    means = {
        c.experiment.iterations: s
        for c, s in summaries(all_cells([TABLE3], ["paper"]), store).items()
        if c.experiment.hidden
    }
    late = [t for t in means if t > 2]
    backprop = [
        s for c, s in summaries(all_cells([TABLE1], ["paper"]), store).items() if c.name == "seqstruct/T=5/1 hidden"
    ]
    if not late or not backprop or min(means[t]["difference"] for t in late) < NEAR:
        return None
    rows = json.loads(TRIALS.read_text(encoding="utf-8"))["analytic"]["rows"]
    trials = {row["mistake"]: {"mistake": row["mistake"]} for row in rows}
    for row in rows:
        trials[row["mistake"]][f"T={row['T']}"] = f"{row['accuracy']:.3f}"
    published = {f"T={t}": f"{means[t]['paper']:.3f}" for t in means if t in (2, 5)}
    return {
        "iterations": listed(late),
        "published": bounds([means[t]["paper"] for t in late], 3),
        "ours": bounds([means[t]["mean"] for t in late], 4),
        "backprop": f"{backprop[0]['mean']:.4f}",
        "trials": [{"mistake": "the paper", **published}, *trials.values()],
    }


def _quantised(store: Store) -> Mapping[str, object] | None:
    """How many cells of table 5 are below the paper when trained as the paper."""
    means = summaries(all_cells([TABLE5], ["paper"]), store)
    known = [s["difference"] for s in means.values() if "difference" in s and not s["cut_short"]]
    below = [-gap for gap in known if gap < -NEAR]
    return {"below": len(below), "of": len(known), "by": bounds(below, 3)} if below else None


def _caps(way: str, store: Store) -> str:
    """The epochs that cells with 256 colours were allowed."""
    cells = [cell for cell in all_cells([TABLE5], [way]) if cell.is_lgm and cell.column == "256"]
    caps = [(run["cap"], cell.row) for cell in cells for run in store.runs(cell).values() if "cap" in run]
    groups = groupby(caps, key=lambda pair: pair[0])
    return ", ".join(f"{cap} ({', '.join(row for _, row in some)})" for cap, some in groups)
