"""Do sets of `LGMClassifier.predict_set` cover as often as asked whatever is missing, and how large are they?

Beside them the usual way: entries filled in, gradient boosting, and split-conformal sets of MAPIE with each of its two
usual scores, calibrated on rows with holes drawn like those of the test. Entries of complete tables are hidden at
random, or a quarter of the columns together; every test row is asked about with every pattern. `accuracy` is that of
the most probable class, `unsure` the coverage among the third of the rows that a method is least sure of.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from common import machine, rounded, save, table
from mapie.classification import SplitConformalClassifier
from mapie.conformity_scores import APSConformityScore, LACConformityScore
from sklearn.datasets import load_digits
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import KNNImputer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from torchlgm import LGMClassifier
from torchlgm.data import load_table

LEVEL = 0.9
FIGURES = ("coverage", "size", "empty", "unsure", "accuracy")
SHARES, PATTERNS = (0.0, 0.2, 0.4, 0.6, 0.8), 5  # missing, and of each so many patterns
ROWS = {"digits": (700, 400, 697), "letter": (1000, 600, 1000), "vowel": (400, 290, 300)}  # to train, calibrate, test
PIXELS = {"scaling": "minmax", "bins": 5, "learning_rate": 0.03, "epochs": 600}  # of one scale, and much alike
Ask = Callable[[np.ndarray], np.ndarray]  # rows -> a number for each class


class Method(NamedTuple):
    predict_proba: Ask
    predict_set: Ask


def read(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    if name == "digits":
        return load_digits(return_X_y=True)
    rows = load_table(folder / f"{name}.csv", target="target")
    return rows.X.to_numpy(float), np.unique(rows.y, return_inverse=True)[1]


def patterns(columns: int, draw: np.random.Generator) -> list[tuple[str, np.ndarray]]:
    """What is missing, and its name."""
    made = [("0% missing", np.zeros(columns, bool))]
    for share in SHARES[1:]:
        hidden = round(share * columns)
        made += [(f"{share:.0%} missing", draw.permutation(columns) < hidden) for _ in range(PATTERNS)]
    quarters = np.arange(columns) * 4 // columns
    return made + [(f"quarter {i + 1} of the columns", quarters == i) for i in range(4)]


def ours(name: str, X: np.ndarray, y: np.ndarray, C: np.ndarray, c: np.ndarray, seed: int) -> dict[str, Method]:
    options = {"LGMClassifier": {}} | ({"LGMClassifier, pixels": PIXELS} if name == "digits" else {})
    models = {what: LGMClassifier(random_state=seed, **given) for what, given in options.items()}
    fitted = {what: model.fit(X, y).calibrate(C, c) for what, model in models.items()}
    return {what: Method(model.predict_proba, model.predict_set) for what, model in fitted.items()}


def rivals(X: np.ndarray, y: np.ndarray, C: np.ndarray, c: np.ndarray, seed: int, holes: list) -> dict[str, Method]:
    """Boosting on filled rows, each once complete and once with holes."""
    draw = np.random.default_rng(seed)

    def hidden(Z: np.ndarray) -> np.ndarray:
        drawn = np.stack([holes[i][1] for i in draw.integers(len(holes), size=len(Z))])
        return np.where(drawn, np.nan, Z)

    imputer = KNNImputer(keep_empty_features=True).fit(X)
    filled = imputer.transform(np.concatenate([X, hidden(X)]))
    boosting = HistGradientBoostingClassifier(random_state=seed).fit(filled, np.tile(y, 2))
    pipeline, C = make_pipeline(imputer, boosting), hidden(C)

    def conformal(score: LACConformityScore, options: dict) -> Method:
        model = SplitConformalClassifier(pipeline, LEVEL, score, prefit=True, random_state=seed)
        model.conformalize(C, c, predict_params=None)
        sets = partial(model.predict_set, conformity_score_params=options)
        return Method(pipeline.predict_proba, lambda Z: sets(Z)[1][:, :, 0])

    return {
        "MAPIE, least ambiguous": conformal(LACConformityScore(), {}),
        "MAPIE, adaptive": conformal(APSConformityScore(), {"include_last_label": "randomized"}),
    }


def measure(name: str, seed: int, folder: Path) -> list[dict[str, object]]:
    X, y = read(name, folder)
    train, calibration, test = ROWS[name]
    X, Z, y, z = train_test_split(X, y, train_size=train + calibration, test_size=test, random_state=seed)
    X, C, y, c = X[:train], X[train:], y[:train], y[train:]
    holes = patterns(X.shape[1], np.random.default_rng(seed))
    began = time.perf_counter()
    rows: list[dict[str, object]] = []
    for method, answers in {**ours(name, X, y, C, c, seed), **rivals(X, y, C, c, seed, holes)}.items():
        for number, (bucket, hidden) in enumerate(holes):
            asked = np.where(hidden, np.nan, Z)
            about = {"table": name, "seed": seed, "method": method, "bucket": bucket, "pattern": number}
            rows.append(about | figures(answers.predict_proba(asked), answers.predict_set(asked), z))
    print(f"{name}, seed {seed}: {time.perf_counter() - began:.0f} s", flush=True)
    return rows


def figures(probs: np.ndarray, sets: np.ndarray, z: np.ndarray) -> dict[str, float]:
    covered = sets[np.arange(len(z)), z]
    unsure = probs.max(1).argsort()[: len(z) // 3]
    each = {"coverage": covered, "size": sets.sum(1), "empty": ~sets.any(1), "unsure": covered[unsure]}
    return {name: float(np.mean(x)) for name, x in (each | {"accuracy": probs.argmax(1) == z}).items()}


def means(rows: list[dict[str, str]]) -> list[dict[str, object]]:
    """Of each table, pattern and method, over seeds."""
    keys = dict.fromkeys((r["table"], r["bucket"], r["method"]) for r in rows)
    lines = []
    for key in keys:
        same = [r for r in rows if (r["table"], r["bucket"], r["method"]) == key]
        figures = {name: float(np.mean([float(r[name]) for r in same])) for name in FIGURES}
        lines.append(dict(zip(("table", "missing", "method"), key, strict=True)) | figures)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path("tables"), help="where letter.csv and vowel.csv are")
    parser.add_argument("--csv", type=Path, default=Path("sets.csv"), help="results; what is in it is not redone")
    parser.add_argument("--json", type=Path, help="add the means to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = list(csv.DictReader(arguments.csv.open())) if arguments.csv.exists() else []
    for name in arguments.tables:
        for seed in range(arguments.seeds):
            if any((r["table"], r["seed"]) == (name, str(seed)) for r in rows):
                continue
            rows += [{k: str(v) for k, v in rounded(r).items()} for r in measure(name, seed, arguments.folder)]
            with arguments.csv.open("w", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
    about = {"machine": machine("torch", "scikit-learn", "mapie"), "seeds": arguments.seeds}
    save(arguments.json, "sets", {**about, "rows": means(rows)})
    print(table(means(rows)))


if __name__ == "__main__":
    main()
