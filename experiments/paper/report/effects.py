"""What choices that the paper leaves open change, where an ablation has measured it: numbers for the summary page."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from experiments.paper.ablations.full_size import STARTS_TRIED, WEIGHTS
from experiments.paper.ablations.orders import PUBLISHED
from experiments.paper.report.templates import bounds, listed

Rows = Sequence[Mapping[str, Any]]


def effects(rows: Mapping[str, Rows]) -> Mapping[str, Any]:
    """By the name of the ablation, for those that have rows."""
    makers = {"quantised": _quantised, "orders": _orders}
    return {name: make(rows[name]) for name, make in makers.items() if rows.get(name)}


def _quantised(rows: Rows) -> Mapping[str, str]:
    """Mean distances to the paper of cells with more than two labels: as in our tables, and as they fit best."""
    one, weaker = STARTS_TRIED.values()
    several = {row["cell"] for row in rows if row["start"] == weaker}
    rules = {"ours": (one, WEIGHTS[0]), "fitted": (weaker, WEIGHTS[1])}
    return {
        name: f"{fmean(abs(r[which] - r['paper']) for r in rows if r['cell'] in several and r['start'] == start):.3f}"
        for name, (start, which) in rules.items()
    }


def _orders(rows: Rows) -> Mapping[str, str]:
    """Accuracies of the analytic gradient with the output first: the least to the most, and by T."""
    own = [row for row in rows if row["gradient"] == "analytic"]
    by_t = listed([f"{row['best weights']:.3f} at T={row['T']}" for row in own])
    published = listed([f"{PUBLISHED['analytic'][row['T']]:.3f}" for row in own])
    return {"all": bounds([row["best weights"] for row in own], 3), "by_t": by_t, "published": published}
