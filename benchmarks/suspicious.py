"""Planted wrong cells: rows ranked by `score_samples` beside IsolationForest and ECOD, and cells by `suspicious`.

One row in ten gets two cells of other rows. The models are fitted on the table as it is, wrong cells included. A share
of all entries is missing; the rivals get the median or the most frequent value there, and the better of two codes for
categories: numbers, or columns of zeros and ones. Areas under the curve, mean over seeds. For cells the rival is how
far a number is from the median of its column, in quartile distances, or how rare a category is.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from common import machine, save, table
from holes.tables import OWN, Table, names_in, read
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score

from torchlgm import LGMClassifier
from torchlgm.joint import leave_one_out

MISSING = (0.0, 0.3, 0.6)
MOST_ROWS = 1000


def planted(X: pd.DataFrame, share: float, rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray]:
    """The table with wrong cells and holes, and where the wrong cells are that can be seen."""
    values, seen = X.to_numpy(object).copy(), X.notna().to_numpy()
    wrong = np.zeros(X.shape, dtype=bool)
    varying = np.array([X[name].nunique() > 1 for name in X])
    for row in rng.choice(len(X), len(X) // 10, replace=False):
        for column in rng.choice(np.flatnonzero(varying & seen[row]), 2, replace=False):
            others = np.flatnonzero(seen[:, column] & (values[:, column] != values[row, column]))
            values[row, column] = values[rng.choice(others), column]
            wrong[row, column] = True
    holed = pd.DataFrame(values, X.index, X.columns).astype(X.dtypes.to_dict()).mask(rng.random(X.shape) < share)
    return holed, wrong & holed.notna().to_numpy()


def filled(X: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Without holes, categories as numbers, and as columns of zeros and ones."""
    numbers = X.select_dtypes(float)
    names = X.drop(columns=numbers.columns)
    numbers = numbers.fillna(numbers.median()).fillna(0.0)
    names = names.fillna(names.mode().iloc[0]) if names.shape[1] else names
    codes = names.apply(lambda column: column.cat.codes)
    columns = pd.get_dummies(names) if names.shape[1] else names
    return tuple(np.hstack([numbers, part]).astype(float) for part in (codes, columns))


def distances(X: pd.DataFrame) -> np.ndarray:
    parts = []
    for name in X:
        if isinstance(X[name].dtype, pd.CategoricalDtype):
            parts.append(1 - X[name].map(X[name].value_counts(normalize=True)).astype(float))
        else:
            low, middle, high = X[name].quantile([0.25, 0.5, 0.75])
            parts.append((X[name] - middle).abs() / (high - low if high > low else 1))
    return np.stack(parts, 1)


def outlying(X: pd.DataFrame, seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """Scores of rows by the rivals, the higher the stranger."""
    for coded, values in zip(("numbers", "columns"), filled(X), strict=True):
        yield f"IsolationForest, {coded}", -IsolationForest(random_state=seed).fit(values).score_samples(values)
        try:
            from pyod.models.ecod import ECOD
        except ImportError:
            continue
        yield f"ECOD, {coded}", ECOD().fit(values).decision_scores_


def areas(X: pd.DataFrame, y: np.ndarray, wrong: np.ndarray, seed: int) -> dict[str, float]:
    left_out = leave_one_out(LGMClassifier(fill_weight=1.0, random_state=seed).fit(X, y), X)
    log_probs, seen = left_out.log_probs.numpy(), X.notna().to_numpy()
    rows = {
        "score_samples": -left_out.of_rows.numpy(),
        "mean": -np.nan_to_num(left_out.log_probs.nanmean(1).numpy()),
        "least probable cell": -np.nanmin(log_probs, 1, initial=0),
        **dict(outlying(X, seed)),
    }
    cells = {"leave_one_out": -log_probs, "distance": distances(X)}
    return {f"rows: {name}": roc_auc_score(wrong.any(1), score) for name, score in rows.items()} | {
        f"cells: {name}": roc_auc_score(wrong[seen], score[seen]) for name, score in cells.items()
    }


def measured(of: Table, share: float, seeds: int) -> dict[str, Any]:
    each = []
    for seed in range(seeds):
        holed, wrong = planted(of.X, share, np.random.default_rng(seed))
        each.append(areas(holed, of.y, wrong, seed))
    means = {name: float(np.mean([one[name] for one in each])) for name in each[0]}
    kept = {name: value for name, value in means.items() if not name.endswith((", numbers", ", columns"))}
    for rival in ("IsolationForest", "ECOD"):
        coded = [value for name, value in means.items() if name.startswith(f"rows: {rival},")]
        kept |= {f"rows: {rival}": max(coded)} if coded else {}
    return {"table": of.name, "missing": share, **{name: round(value, 3) for name, value in kept.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="tables as CSV, beside those of scikit-learn")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tables = [read(None, name) for name in OWN]
    if arguments.folder is not None:
        tables += [read(arguments.folder, name) for name in names_in(arguments.folder)]
    rows: list[dict[str, Any]] = []
    for of in tables:
        for share in MISSING:
            rows.append(measured(of.at_most(MOST_ROWS), share, arguments.seeds))
            print(rows[-1], flush=True)
    print(table(rows))
    save(arguments.json, "suspicious", {"machine": machine("torch", "scikit-learn", "pyod"), "areas": rows})


if __name__ == "__main__":
    main()
