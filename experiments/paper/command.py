"""`python -m experiments.paper`: words become runs of tables, pictures, answers and the report."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import Any

from experiments.paper import cards, figures, questions
from experiments.paper.cells import OTHER, Cell, all_cells, find_table
from experiments.paper.jobs import Options, plan
from experiments.paper.report.page import lines_of, page, summary
from experiments.paper.results import Store
from experiments.paper.run import Runner
from experiments.paper.tables import COLUMNS, TABLES, Table
from experiments.paper.words import number_of
from torchlgm.errors import DataError

RESULTS = Path("experiments") / "paper" / "results"
TRAINING = ("cells", "seeds", "epochs", "minutes", "workers")
TAKES = {"tables": ("column", *TRAINING, "json"), "questions": TRAINING, "figures": (), "report": ()}
UNSAID = {"column": "both", "cells": "*", "json": False}  # of other options None


def reproduce(
    what: Sequence[str], column: str, pattern: str, out: Path | None, json: bool = False, **words: Any
) -> None:
    """Do all that is asked for and print what came out; `words` are those of `Options`."""
    asked = list(what) or ["all"]
    named = {table.label: table for table in map(find_table, [name for name in asked if name not in OTHER])}
    tables = list(TABLES) if "all" in asked else list(named.values())
    ways = tuple(COLUMNS) if column == "both" else (column,)
    cells = list(all_cells(tables, ways, pattern))
    asks = "questions" in asked and bool(questions.named(pattern))
    if not cells and not asks and (tables or "questions" in asked):
        raise DataError(_nothing_fits(tables, ways, pattern, "questions" in asked))
    wanted = {"tables": cells, "questions": asks, "figures": "figures" in asked, "report": "report" in asked}
    todo = [word for word in TAKES if wanted[word]]
    _require_use({**words, "column": column, "cells": pattern, "json": json, "out": out}, todo)
    quick, undrawn = bool(words.get("quick")), 0
    with ExitStack() as stack:
        if out is None:
            out = Path(stack.enter_context(tempfile.TemporaryDirectory())) if quick else RESULTS
        options = Options(out, **words)
        if quick:
            options = replace(options, seeds=options.seeds or 1)
        if todo != ["report"]:
            Store(out).require_writable()
        if "tables" in todo:
            runner = _run_cells(cells, options)
            if "report" not in todo:
                _print_cells(cells, runner, json)
        if "figures" in todo:
            undrawn = len(figures.DRAWINGS) - len(figures.draw(out, options, _tell))
        if "questions" in todo:
            try:
                questions.answer(out, options, _tell, pattern)
            except KeyboardInterrupt as error:
                raise KeyboardInterrupt(f"stopped; parts are left; {options.goes_on}") from error
        if "report" in todo:
            store = Store(out)
            if not any(store.runs(cell) for cell in all_cells()) and not any((out / "questions").glob("*.json")):
                raise DataError(f"{out}: there are no results yet; train some tables, or say where they lie by --out.")
            print(page(store), end="")
    if undrawn:
        raise DataError(f"{number_of(undrawn, 'figure')} could not be drawn; each line above says what one needs.")


def _require_use(options: Mapping[str, Any], todo: Sequence[str]) -> None:
    """Refuse options that would change nothing about what is to be done."""
    if options.get("quick") and options["out"] is not None:
        raise DataError("--quick keeps nothing, since its results mean nothing; leave out --out.")
    if options.get("quick") and {"figures", "report"} & {*todo}:
        raise DataError("--quick keeps no results to draw or to report on; leave it out.")
    said = [name for name in TAKES["tables"] if options.get(name) not in (None, UNSAID.get(name))]
    idle = [f"--{name}" for name in said if not any(name in TAKES[word] for word in todo)]
    if idle:
        them = "it" if len(idle) == 1 else "them"
        raise DataError(f"{' and '.join(idle)}: of no use to {' and '.join(todo)}; leave {them} out.")
    if options["json"] and "report" in todo:
        raise DataError("the report is a page in Markdown, not JSON; leave out --json, or report.")


def _nothing_fits(tables: Sequence[Table], ways: Sequence[str], pattern: str, asks: bool) -> str:
    if any(all_cells(tables, pattern=pattern)):
        return f"{pattern!r} fits no cell of the column {ways[0]}, only of the other; leave out --column."
    reasons = []
    if tables:
        reasons.append(
            f"no cell of {', '.join(table.label for table in tables)} has {pattern!r} in its name; names are "
            "table/row/column, such as mpcompare/SeqTRW/Local"
        )
    if asks:
        known = ", ".join(question.name for question in questions.QUESTIONS)
        reasons.append(f"no question is called {pattern!r}; there are {known}")
    return f"{'; and '.join(reasons)}."


def _run_cells(cells: list[Cell], options: Options) -> Runner:
    most = sorted({cell.seeds for cell in cells if cell.seeds < (options.seeds or 0)})
    if most:
        *less, last = most
        own = " or ".join([*map(str, less), number_of(last, "seed")])
        _tell(f"--seeds {options.seeds}: cells with at most {own} get no more")
    runner = Runner(options, _tell)
    try:
        runner.run(plan(cells, options))
    finally:
        cards.write(runner.store)
    return runner


def _print_cells(cells: list[Cell], runner: Runner, json: bool) -> None:
    if json:
        found = {"left": runner.missing, "cells": [summary(cell, runner.store) for cell in cells]}
        print(dumps(found, indent=2, ensure_ascii=False))
    else:
        print("\n".join(lines_of(cells, runner.store)))
        if runner.options.quick:
            print("Measured quickly, with a few steps on a few images: this says nothing about the paper's tables.")


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
