"""What the figures say: means over splits, ranks, and where LGMClassifier is not the best."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pandas as pd

from holes.methods import FAMILIES, OURS
from holes.patterns import PATTERNS
from holes.record import Record
from holes.trainings import FIGURES

CELL = ["where", "pattern", "share"]


def measured(record: Record) -> pd.DataFrame:
    """Every figure: table, method, where, pattern, share, seed and FIGURES.

    Of a table only those splits that most methods were tested on, and only those methods that were tested on all of
    them, so that all figures of a table are of the same rows.
    """
    rows, everywhere = [], _with_holes(record)
    for training, line in record.trainings.items():
        for name, values in line["tests"].items():
            figures = dict(zip(FIGURES, values, strict=True))
            pattern, _, share = name.rpartition(" ")
            where = "both" if training.holes else "test"
            # without holes all patterns are the same, and whether training rows would have had some
            for place, kind in [(where, pattern)] if pattern else everywhere[training.table]:
                known = {"table": training.table, "method": training.method, "seed": training.seed}
                rows.append({**known, "where": place, "pattern": kind, "share": int(share), **figures})
    if not rows:
        raise SystemExit(f"{record.file}: nothing has been measured")
    return _same_splits(pd.DataFrame(rows))


def _with_holes(record: Record) -> dict[str, set[tuple[str, str]]]:
    """Of each table where there were holes, and in which patterns."""
    found = defaultdict(set)
    for training, line in record.trainings.items():
        patterns = {name.rpartition(" ")[0] for name in line["tests"]} - {""}
        found[training.table] |= {("both" if training.holes else "test", pattern) for pattern in patterns}
    return {table: found[table] or {("test", next(iter(PATTERNS)))} for table in found}


def _same_splits(rows: pd.DataFrame) -> pd.DataFrame:
    kept = []
    for _, cell in rows.groupby(["table", *CELL], sort=False):
        methods = cell.groupby("seed")["method"].nunique()
        seeds = methods.index[methods == methods.max()]
        cell = cell[cell["seed"].isin(seeds)]
        tested = cell.groupby("method")["seed"].nunique() == len(seeds)
        kept.append(cell[cell["method"].map(tested)])
    return pd.concat(kept, ignore_index=True)


def means(rows: pd.DataFrame) -> pd.DataFrame:
    """Over the splits of a table."""
    return rows.groupby(["table", *CELL, "method"], sort=False)[list(FIGURES)].mean().reset_index()


def with_entropy(cells: pd.DataFrame, record: Record) -> pd.DataFrame:
    """`left` is the negative log-likelihood over that of knowing only how frequent the classes are."""
    entropy = cells["table"].map({name: facts["entropy"] for name, facts in record.tables.items()})
    return cells.assign(left=cells["nll"] / entropy)


def families(cells: pd.DataFrame) -> pd.DataFrame:
    """LGMClassifier, and of each family of rivals the best member in every cell and figure: more than one can pick."""
    of = {method: family for family, members in FAMILIES.items() for method in members}
    named = cells.assign(family=cells["method"].map(of).fillna(cells["method"]))
    best = {key: "max" if key in ("auc", "accuracy") else "min" for key in (*FIGURES, "left")}
    return named.groupby(["table", *CELL, "family"], sort=False).agg(best).reset_index()


def complete(cells: pd.DataFrame) -> pd.DataFrame:
    """Cells of methods that were tested on every table."""
    tables = cells["table"].nunique()
    count = cells.groupby([*CELL, "method"])["table"].transform("nunique")
    return cells[count == tables]


def ranks(cells: pd.DataFrame, where: str, figure: str = "nll") -> pd.DataFrame:
    """Mean rank of each method over tables and patterns, a column for each share; 1 is the best."""
    cells = complete(cells[cells["where"] == where])
    down = figure in ("nll", "calibration error")
    placed = cells.assign(rank=cells.groupby(["table", *CELL])[figure].rank(ascending=down))
    wide = placed.pivot_table("rank", "method", "share", aggfunc="mean")
    return wide.loc[wide.mean(axis=1).sort_values().index]


def losses(cells: pd.DataFrame) -> pd.DataFrame:
    """Cells in which another method has a lower negative log-likelihood, with the lowest."""
    keys = ["table", *CELL]
    best = cells.loc[cells.groupby(keys)["nll"].idxmin(), [*keys, "method", "nll"]]
    mine = cells.loc[cells["method"] == OURS, [*keys, "nll"]]
    both = mine.merge(best, on=keys, suffixes=(" of ours", " of the best"))
    both = both[(both["share"] > 0) | ~both.duplicated(["table", "share"])]  # without holes there is one cell
    both["behind"] = both["nll of ours"] / both["nll of the best"] - 1
    return both


def behind_by_share(against: pd.DataFrame, worse: pd.DataFrame) -> pd.DataFrame:
    """Of each share: cells, in how many LGMClassifier is behind, by whom most often, and the mean ratio."""
    ratios = np.log1p(against["behind"]).groupby(against["share"]).mean()
    return pd.DataFrame(
        {
            "cells": against.groupby("share").size(),
            "behind": worse.groupby("share").size().reindex(ratios.index, fill_value=0),
            "by": worse.groupby("share")["method"].agg(_most_often).reindex(ratios.index, fill_value=""),
            "ratio": np.exp(ratios),
        }
    )


def _most_often(methods: pd.Series) -> str:
    return "; ".join(f"{name} ({count})" for name, count in methods.value_counts().head(3).items())


def in_order(patterns: pd.Series) -> list[str]:
    return [pattern for pattern in PATTERNS if pattern in set(patterns)]
