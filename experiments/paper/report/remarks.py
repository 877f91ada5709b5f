"""What has to be said of single tables, from their results."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

from experiments.paper.cells import all_cells
from experiments.paper.questions import QUESTIONS, Question, rows_of
from experiments.paper.report.summary import COLUMN_NAMES, NEAR, Summaries, summary
from experiments.paper.results import Store
from experiments.paper.tables import COLUMNS, TABLE1, TABLE3, TABLE5, Table

QUANTISED = next(question for question in QUESTIONS if question.name == "quantised")


def remarks(table: Table, store: Store) -> Iterator[str]:
    yield from REMARKS.get(table, lambda _: iter(()))(store)


def _known(table: Table, way: str, store: Store) -> Summaries:
    return {cell: s for cell in all_cells([table], [way]) if "mean" in (s := summary(cell, store))}


def _range(values: Sequence[float], digits: int) -> str:
    least, most = (f"{pick(values):.{digits}f}" for pick in (min, max))
    return least if least == most else f"{least} to {most}"


def _listed(values: Sequence[int]) -> str:
    *first, last = map(str, values)
    return f"{', '.join(first)} and {last}" if first else last


def _analytic(store: Store) -> Iterator[str]:
    """From T=3 on the analytic gradient is right."""
    cells = _known(TABLE3, "paper", store)
    found = {cell.experiment.iterations: s for cell, s in cells.items() if cell.experiment.hidden}
    late = [t for t in found if t > 2]
    backward = [s for cell, s in _known(TABLE1, "paper", store).items() if cell.name == "seqstruct/T=5/1 hidden"]
    if not late or not backward or min(found[t]["difference"] for t in late) < NEAR:
        return
    theirs, ours = _range([found[t]["paper"] for t in late], 3), _range([found[t]["mean"] for t in late], 4)
    yield (
        f"At T={_listed(late)} the paper has {theirs} where we, trained as the paper, have {ours}, as with "
        f"backpropagation (table 1, T=5: {backward[0]['mean']:.4f}). The paper's failure there is not reproduced. It "
        "does not follow from LBP, which is exact there, nor from too few iterations, since more change nothing. We "
        "do not know its cause. Of four [mistakes](../benchmarks/results/analytic-cpu.json) that code for it could "
        "contain (one seed each) none gives both of the paper's numbers, for T=2 and from T=5 on. Nearest come 0.870, "
        "if hidden nodes know of the output only what it said before it had heard of the inputs, as ours do at T=2; "
        "and 0.773, if they do not know then either when it is clamped."
    )


def _quantised(store: Store) -> Iterator[str]:
    found = _known(TABLE5, "paper", store).items()
    known = {cell: s for cell, s in found if "difference" in s and not s["cut_short"]}
    below = {cell: s for cell, s in known.items() if s["difference"] < -NEAR}
    if below:
        yield (
            f"As the paper, {len(below)} of {len(known)} cells come out "
            f"{_range([-s['difference'] for s in below.values()], 3)} below it, although all are plain LBP"
            + (f" ([why]({_anchor(QUANTISED)}))." if rows_of(store.folder, QUANTISED) else ".")
        )
    caps = [f"{COLUMN_NAMES[way]}, {_caps(TABLE5, way, store)}" for way in COLUMNS if _caps(TABLE5, way, store)]
    if caps:
        yield f"Epochs that the cells with 256 colours were allowed: {'; '.join(caps)}."


def _anchor(question: Question) -> str:
    """Where it is answered, on the same page."""
    return "#" + "-".join(re.findall(r"[a-z0-9]+", question.title.lower()))


def _caps(table: Table, way: str, store: Store) -> str:
    cells = [cell for cell in all_cells([table], [way]) if cell.is_lgm and cell.column == "256"]
    caps = [(run["cap"], cell.row) for cell in cells for run in store.runs(cell).values() if "cap" in run]
    groups = groupby(caps, key=lambda pair: pair[0])
    return ", ".join(f"{cap} ({', '.join(row for _, row in some)})" for cap, some in groups)


REMARKS: Mapping[Table, Callable[[Store], Iterator[str]]] = {TABLE3: _analytic, TABLE5: _quantised}
