"""What choices that the paper leaves open change, where it was measured: numbers for the summary page."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.paper.ablations.cases import Row
from experiments.paper.ablations.full_size import STARTS_TRIED, WEIGHTS
from experiments.paper.ablations.history import from_text
from experiments.paper.ablations.orders import PUBLISHED, orders_shown
from experiments.paper.ablations.star import INPUTS_FIRST
from experiments.paper.ablations.stopping import NONE
from experiments.paper.cells import all_cells
from experiments.paper.report.findings import share
from experiments.paper.report.summary import NEAR, summaries
from experiments.paper.store import Store

SETTLED = 5  # iterations, which stand for more with the inputs first
EXACT = "seqstruct/T=1/0 hidden"
DENSE = "mpcompare/SeqTRW/Dense"
RELEASED = Path(__file__).parents[3] / "benchmarks" / "results" / "scale-rho-everywhere.json"  # E = rho theta

Rows = Sequence[Row]


def effects(rows: Mapping[str, Rows], store: Store) -> Mapping[str, Any]:
    """By name, for those that have results."""
    made: dict[str, Any] = {"trw": _trw(store)}
    makers = {"quantised": _quantised, "orders": _orders, "patience": _exact_early}
    made |= {name: make(rows[name]) for name, make in makers.items() if rows.get(name)}
    return {name: effect for name, effect in made.items() if effect}


def _quantised(rows: Rows) -> Mapping[str, str]:
    """Mean distances to the paper of cells with more than two labels: as in our tables, and as they fit best."""
    one, weaker = STARTS_TRIED.values()
    several = {row["cell"] for row in rows if row["start"] == weaker}
    rules = {"ours": (one, WEIGHTS[0]), "fitted": (weaker, WEIGHTS[1])}
    return {
        name: f"{fmean(abs(r[which] - r['paper']) for r in rows if r['cell'] in several and r['start'] == start):.3f}"
        for name, (start, which) in rules.items()
    }


def _orders(rows: Rows) -> Mapping[str, Any]:
    """The analytic gradient, by order and T, and how many of its numbers our own order gives after two epochs."""
    lines = [line for line in orders_shown(rows) if line["gradient"] == "analytic"]
    table = [{key: value for key, value in line.items() if key != "gradient"} for line in lines]
    own = {row["T"]: row["epoch 2"] for row in rows if row["order"] == INPUTS_FIRST and row["last belief"]}
    published = PUBLISHED["analytic"].items()
    early = [abs(own[min(t, SETTLED)] - accuracy) <= NEAR for t, accuracy in published if min(t, SETTLED) in own]
    return {"table": table, "early": share(early)}


def _exact_early(rows: Rows) -> str:
    """What the models without hidden nodes have after two epochs."""
    own = [row["history"] for row in rows if (row["cell"], row["change"]) == (EXACT, NONE)]
    return f"{fmean(from_text(text)[1].accuracy for text in own):.3f}" if own else ""


def _trw(store: Store) -> Mapping[str, Any] | None:
    """How far two forms of TRW are from the paper on Conv and Local, without division by rho and as released, and what
    they come to on Dense."""
    released = json.loads(RELEASED.read_text(encoding="utf-8"))["cells"]
    means = {c.name: s["mean"] for c, s in summaries(all_cells(ways=["paper"]), store).items() if c.name in released}
    theirs = {name: fmean(cell["accuracy"].values()) for name, cell in released.items()}
    gaps = [
        [abs(accuracy[name] - released[name]["paper"]) for accuracy in (means, theirs)]
        for name in means
        if "Dense" not in name
    ]
    if not gaps or DENSE not in means:
        return None
    far = [f"{fmean(gap):.3f}" for gap in zip(*gaps, strict=True)]
    dense = [f"{accuracy[DENSE]:.3f}" for accuracy in (means, theirs)]
    return {
        "nearer": share(one < other for one, other in gaps),
        "ours": (far[0], dense[0]),
        "released": (far[1], dense[1]),
    }
