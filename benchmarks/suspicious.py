"""Planted wrong cells: rows ranked by `score_samples` beside IsolationForest and ECOD, and cells by `suspicious`.

One row in ten gets two cells of another row. The models are fitted on the table as it is, wrong cells included. A share
of all entries is missing; the rivals get the median there. Areas under the curve, mean over seeds. For cells the rival
is how far a value is from the median of its column, in quartile distances.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from common import machine, save, table
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import IsolationForest
from sklearn.impute import SimpleImputer
from sklearn.metrics import roc_auc_score

from torchlgm import LGMClassifier
from torchlgm.joint import leave_one_out

TABLES = {"wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}
MISSING = (0.0, 0.3, 0.6)


def planted(X: np.ndarray, share: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The table with wrong cells and holes, and where the wrong cells are that can be seen."""
    X, wrong = X.copy(), np.zeros(X.shape, dtype=bool)
    varying = np.flatnonzero(X.std(0) > 0)
    for row in rng.choice(len(X), len(X) // 10, replace=False):
        for column in rng.choice(varying, 2, replace=False):
            others = np.flatnonzero(X[:, column] != X[row, column])
            X[row, column] = X[rng.choice(others), column]
            wrong[row, column] = True
    holes = rng.random(X.shape) < share
    return np.where(holes, np.nan, X), wrong & ~holes


def areas(X: np.ndarray, y: np.ndarray, wrong: np.ndarray, seed: int) -> dict[str, float]:
    model = LGMClassifier(fill_weight=1.0, random_state=seed).fit(X, y)
    left_out = leave_one_out(model, X)
    rows, seen = wrong.any(1), ~np.isnan(X)
    filled = SimpleImputer(strategy="median", keep_empty_features=True).fit_transform(X)
    low, middle, high = np.nanpercentile(X, [25, 50, 75], axis=0)
    distance = np.abs(X - middle) / np.where(high > low, high - low, 1)
    least = -np.nanmin(left_out.log_probs.numpy(), 1, initial=0)
    forest = IsolationForest(random_state=seed).fit(filled)
    found = {
        "rows: score_samples": roc_auc_score(rows, -left_out.of_rows.nan_to_num(0).numpy()),
        "rows: least probable cell": roc_auc_score(rows, least),
        "rows: IsolationForest": roc_auc_score(rows, -forest.score_samples(filled)),
        "cells: leave_one_out": roc_auc_score(wrong[seen], -left_out.log_probs.numpy()[seen]),
        "cells: distance": roc_auc_score(wrong[seen], distance[seen]),
    }
    try:
        from pyod.models.ecod import ECOD
    except ImportError:
        return found
    return found | {"rows: ECOD": roc_auc_score(rows, ECOD().fit(filled).decision_scores_)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name, load in TABLES.items():
        X, y = load(return_X_y=True)
        for share in MISSING:
            each = []
            for seed in range(arguments.seeds):
                holed, wrong = planted(X, share, np.random.default_rng(seed))
                each.append(areas(holed, y, wrong, seed))
            means = {what: round(float(np.mean([one[what] for one in each])), 3) for what in each[0]}
            rows.append({"table": name, "missing": share, **means})
            print(rows[-1], flush=True)
    print(table(rows))
    save(arguments.json, "suspicious", {"machine": machine("torch", "scikit-learn", "pyod"), "areas": rows})


if __name__ == "__main__":
    main()
