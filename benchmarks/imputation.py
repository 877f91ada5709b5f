"""Filling in the holes of tables: LGMImputer beside KNN, chained regressions, MissForest, and mean or most frequent.

A folder holds tables as CSV, and `kinds.json` with the kind of each column: float, int or cat. A share of all entries
is hidden at random; every method is fitted to the table with its holes and fills it in, without the class. Figures are
means over columns, on hidden entries:

- rmse: root mean square error of numbers, in standard deviations of the column
- wrong: the share of categories that are wrong
- nll: minus the log-likelihood of the truth. Numbers are divided at the knots of LGMImputer, a value between two
  counting with both. A method that gives a value alone gets the probabilities that it has earned on entries that are
  seen: another share of them is hidden, and how often each label was true where it gave this one is counted, plus one
  tenth for each label.

Chained regressions are `IterativeImputer` with ridge regression for numbers and logistic regression for categories,
other columns one-hot; MissForest is the same with random forests of 50 trees, 3 rounds.
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
from common import machine, save, table
from scipy.stats import rankdata
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.impute import KNNImputer
from sklearn.linear_model import BayesianRidge, LogisticRegression

from torchlgm import LGMImputer
from torchlgm.sklearn import Categories, Numbers

SHARES = (0.2, 0.5)
TRUST = 0.1  # what is added to counts
FIGURES = ("rmse", "wrong", "nll")
Fill = Callable[[pd.DataFrame, int], pd.DataFrame]


class Encoded:
    """Numbers standardised, categories one-hot; holes at the mean."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame
        self.holes = frame.isna().to_numpy()
        self.blocks: list[np.ndarray] = []
        self.scales: list[Any] = []
        for name in frame:
            column, missing = frame[name], frame[name].isna().to_numpy()
            if column.dtype.kind in "fi":
                mean, spread = column.mean(), column.std(ddof=0) or 1.0
                self.scales.append((mean, spread))
                self.blocks.append(((column - mean) / spread).fillna(0).to_numpy(float, copy=True)[:, None])
                continue
            names = sorted(column.dropna().unique())
            block = (column.to_numpy(object)[:, None] == np.array(names, dtype=object)).astype(float)
            block[missing] = block[~missing].mean(0)
            self.scales.append(names)
            self.blocks.append(block)

    def decoded(self) -> pd.DataFrame:
        out = {}
        for j, (name, block, scale) in enumerate(zip(self.frame, self.blocks, self.scales, strict=True)):
            numeric = isinstance(scale, tuple)
            values = block[:, 0] * scale[1] + scale[0] if numeric else np.array(scale, dtype=object)[block.argmax(1)]
            out[name] = np.where(self.holes[:, j], values, self.frame[name].to_numpy(float if numeric else object))
        return pd.DataFrame(out)


def simple(frame: pd.DataFrame, seed: int) -> pd.DataFrame:
    return Encoded(frame).decoded()


def knn(frame: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Ten neighbours, nearer ones count more; categories one-hot, the largest mean is filled in."""
    encoded = Encoded(frame)
    blocks = [np.where(h[:, None], np.nan, b) for h, b in zip(encoded.holes.T, encoded.blocks, strict=True)]
    filled = KNNImputer(n_neighbors=10, weights="distance").fit_transform(np.hstack(blocks))
    edges = np.cumsum([b.shape[1] for b in blocks])[:-1]
    encoded.blocks = np.split(filled, edges, axis=1)
    return encoded.decoded()


def chained(regressor: Callable[[int], Any], classifier: Callable[[int], Any], rounds: int) -> Fill:
    """Each column in turn is predicted from all others, beginning with the one with the fewest holes."""

    def fill(frame: pd.DataFrame, seed: int) -> pd.DataFrame:
        encoded = Encoded(frame)
        blocks, holes = encoded.blocks, encoded.holes
        for _ in range(rounds):
            for j in holes.sum(0).argsort(kind="stable"):
                lost = holes[:, j]
                if not lost.any():
                    continue
                others = np.hstack([block for i, block in enumerate(blocks) if i != j])
                if isinstance(encoded.scales[j], tuple):
                    model = regressor(seed).fit(others[~lost], blocks[j][~lost, 0])
                    blocks[j][lost, 0] = model.predict(others[lost])
                    continue
                number = blocks[j][~lost].argmax(1)
                if len(np.unique(number)) > 1:
                    model = classifier(seed).fit(others[~lost], number)
                    probs = np.zeros((lost.sum(), blocks[j].shape[1]))
                    probs[:, model.classes_] = model.predict_proba(others[lost])
                    blocks[j][lost] = probs
        return encoded.decoded()

    return fill


def forest(kind: Any) -> Callable[[int], Any]:
    return lambda seed: kind(50, max_features=1 / 3 if kind is RandomForestRegressor else "sqrt", random_state=seed)


RIVALS: dict[str, Fill] = {
    "mean, most frequent": simple,
    "KNN": knn,
    "chained regressions": chained(lambda _: BayesianRidge(), lambda _: LogisticRegression(C=0.3, max_iter=300), 4),
    "MissForest": chained(forest(RandomForestRegressor), forest(RandomForestClassifier), 3),
}


def read(path: Path, kinds: dict[str, str], rows: int) -> pd.DataFrame:
    frame = pd.read_csv(path).drop(columns="target")
    if len(frame) > rows:
        frame = frame.sample(rows, random_state=0).reset_index(drop=True)
    for name in frame:
        if kinds[name] == "cat":
            frame[name] = [None if pd.isna(value) else str(value) for value in frame[name]]
            frame[name] = frame[name].astype(object)
        elif frame[name].dtype.kind != "f":
            frame[name] = frame[name].astype("float64" if kinds[name] == "float" else frame[name].dtype)
    return frame.loc[:, frame.nunique() > 1]


def hidden(frame: pd.DataFrame, share: float, seed: int) -> pd.DataFrame:
    return frame.mask(np.random.default_rng(seed).random(frame.shape) < share)


def errors(truth: pd.DataFrame, given: pd.DataFrame, filled: pd.DataFrame) -> dict[str, float]:
    rmse, wrong = [], []
    for name in truth:
        lost = (given[name].isna() & truth[name].notna()).to_numpy()
        if not lost.any():
            continue
        if truth[name].dtype.kind in "fi":
            off = filled[name].to_numpy(float)[lost] - truth[name].to_numpy(float)[lost]
            rmse.append(float(np.sqrt(np.mean(off**2))) / truth[name].std(ddof=0))
        else:
            wrong.append(float(np.mean(filled[name].to_numpy(object)[lost] != truth[name].to_numpy(object)[lost])))
    return {name: float(np.mean(each)) for name, each in (("rmse", rmse), ("wrong", wrong)) if each}


def shares_of(column: Numbers | Categories, values: pd.Series) -> np.ndarray:
    """The share that each label has of values, `(N, labels)`."""
    numeric = isinstance(column, Numbers)
    at = column.scale(values.to_numpy(float if numeric else object)) * (column.labels - 1)
    return (1 - np.abs(at[:, None] - np.arange(column.labels))).clip(0)


def earned(fill: Fill, given: pd.DataFrame, filled: pd.DataFrame, columns: Any, seed: int) -> list[np.ndarray]:
    """The probabilities `(N, labels)` that the values of a method have earned."""
    harder = hidden(given, float(given.isna().to_numpy().mean()), seed + 1000)
    again = fill(harder, seed)
    probs = []
    for name, column in zip(given, columns, strict=True):
        asked = (harder[name].isna() & given[name].notna()).to_numpy()
        counts = shares_of(column, again[name])[asked].T @ shares_of(column, given[name])[asked]
        counts += TRUST * shares_of(column, given[name].dropna()).mean(0) * column.labels + 1e-6
        probs.append(shares_of(column, filled[name]) @ (counts / counts.sum(1, keepdims=True)))
    return probs


def nll(truth: pd.DataFrame, given: pd.DataFrame, probs: list[np.ndarray], columns: Any) -> float:
    each = []
    for name, column, p in zip(truth, columns, probs, strict=True):
        lost = (given[name].isna() & truth[name].notna()).to_numpy()
        if lost.any():
            likelihood = (shares_of(column, truth[name])[lost] * np.log(p[lost].clip(1e-6))).sum(1)
            each.append(-np.nanmean(likelihood))  # NaN: a name that is only among the hidden ones
    return float(np.mean(each))


def race(frame: pd.DataFrame, share: float, seed: int) -> dict[str, dict[str, float]]:
    given = hidden(frame, share, seed)
    start = time.process_time()
    imputer = LGMImputer(random_state=seed).set_output(transform="pandas").fit(given)
    filled, probs = imputer.transform(given, return_proba=True)
    seconds, columns = time.process_time() - start, imputer.columns_
    found = {"LGMImputer": errors(frame, given, filled) | {"nll": nll(frame, given, probs, columns), "s": seconds}}
    for name, fill in RIVALS.items():
        start = time.process_time()
        filled = fill(given, seed)
        seconds = time.process_time() - start
        probs = earned(fill, given, filled, columns, seed)
        found[name] = errors(frame, given, filled) | {"nll": nll(frame, given, probs, columns), "s": seconds}
    return found


def mean_ranks(cells: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The mean rank of each method, 1 = best: of all figures, and of each."""
    names = ["LGMImputer", *RIVALS]
    ranks = {
        figure: [rankdata([cell[n][figure] for n in names]) for cell in cells.values() if figure in cell[names[0]]]
        for figure in FIGURES
    }
    ranks = {"all": [r for each in ranks.values() for r in each], **ranks}
    return {
        name: {what: round(float(np.mean([r[i] for r in each])), 2) for what, each in ranks.items() if each}
        for i, name in enumerate(names)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tables", nargs="*", help="names of some tables")
    parser.add_argument("--rows", type=int, default=1000, help="most rows of a table")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--json", type=Path, help="results; those that are there are kept, and not measured again")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    kinds = json.loads((arguments.folder / "kinds.json").read_text())
    known = json.loads(arguments.json.read_text()) if arguments.json and arguments.json.exists() else {}
    cells: dict[str, Any] = known.get("imputation", {}).get("cells", {})
    for name in arguments.tables or sorted(kinds):
        frame = read(arguments.folder / f"{name}.csv", kinds[name], arguments.rows)
        for share in SHARES:
            for seed in range(arguments.seeds):
                key = f"{name}, {share:.0%} missing, seed {seed}"
                if key in cells:
                    continue
                found = race(frame, share, seed)
                cells[key] = {n: {what: round(x, 3) for what, x in f.items()} for n, f in found.items()}
                print(key, cells[key], flush=True)
                about = {"machine": machine("torch", "scikit-learn"), "rows": arguments.rows}
                save(arguments.json, "imputation", {**about, "ranks": mean_ranks(cells), "cells": cells})
    print(table([{"method": name, **ranks} for name, ranks in mean_ranks(cells).items()]))


if __name__ == "__main__":
    main()
