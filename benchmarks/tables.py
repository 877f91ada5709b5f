"""Classifying the tables of a folder with holes at test time: LGMClassifier beside boosting and an MLP.

    python benchmarks/tables.py FOLDER --json benchmarks/results/tables-cpu.json

The folder holds CSV files with a column `target`, and `kinds.json`, which says of each table which columns hold real
numbers ("float"), whole numbers ("int") or categories ("cat"). Splits are 75 / 25, stratified. Entries of the test rows
are missing at random. Rivals have their defaults; the MLP gets one-hot categories, standardised numbers and mean
imputation.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from common import machine, save, table
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from torchlgm import LGMClassifier
from torchlgm.metrics import evaluate

SHARES = (0.0, 0.4, 0.8)


def read(folder: Path, name: str) -> tuple[pd.DataFrame, np.ndarray]:
    kinds = json.loads((folder / "kinds.json").read_text())[name]
    frame = pd.read_csv(folder / f"{name}.csv", dtype={c: "category" for c, kind in kinds.items() if kind == "cat"})
    y = pd.factorize(frame.pop("target"), sort=True)[0]
    return frame.astype({c: "Int64" for c, kind in kinds.items() if kind == "int"}), y


def mlp(seed: int) -> Any:
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    names = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
    encoder = make_column_transformer(
        (names, make_column_selector(dtype_include="category")), remainder=numbers, sparse_threshold=0
    )
    return make_pipeline(encoder, MLPClassifier(random_state=seed))


METHODS: dict[str, Callable[[int], Any]] = {
    "LGMClassifier": lambda seed: LGMClassifier(random_state=seed),
    "boosting": lambda seed: HistGradientBoostingClassifier(random_state=seed, categorical_features="from_dtype"),
    "MLP": mlp,
}


def measured(folder: Path, name: str, seed: int, method: str) -> list[dict[str, Any]]:
    """One training and its figures at every share missing."""
    X, y = read(folder, name)
    if method != "LGMClassifier":  # scikit-learn wants plain floats, and boosting no column without a value
        X = X.dropna(axis=1, how="all").astype({c: float for c in X.columns if X[c].dtype == "Int64"})
    train, test, y_train, y_test = train_test_split(X, y, test_size=0.25, stratify=y, random_state=seed)
    start = time.process_time()
    model = METHODS[method](seed).fit(train, y_train)
    seconds = time.process_time() - start
    rng = np.random.default_rng(seed)
    rows = []
    for share in SHARES:
        given = test.mask(rng.random(test.shape) < share)
        probs = np.clip(model.predict_proba(given), 1e-12, 1)
        figures = evaluate(torch.as_tensor(probs, dtype=torch.float64), torch.as_tensor(y_test))
        rows.append({"data": name, "missing": share, "method": method, **figures, "fit CPU seconds": seconds})
    return rows


def means(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    keys = ["data", "missing", "method"]
    return pd.DataFrame(rows).groupby(keys, sort=False).mean().round(4).reset_index().to_dict("records")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", nargs="*", help="some of the tables")
    parser.add_argument("--methods", nargs="*", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="add the result to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    about = {"machine": machine("torch", "numpy", "scikit-learn"), "threads": 1, "seeds": arguments.seeds}
    for name in arguments.data or sorted(path.stem for path in arguments.folder.glob("*.csv")):
        rows = [
            row
            for method in arguments.methods
            for seed in range(arguments.seeds)
            for row in measured(arguments.folder, name, seed, method)
        ]
        print(table(means(rows)), flush=True)
        save(arguments.json, f"{name}, {', '.join(arguments.methods)}", {**about, "rows": means(rows)})


if __name__ == "__main__":
    main()
