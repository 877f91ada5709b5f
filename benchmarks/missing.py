"""Classifying rows with holes: LGMClassifier beside what a user of scikit-learn would do instead.

Three real tables, three patterns of holes, several seeds; accuracy, negative log-likelihood and calibration error.

- "test only": training rows are complete, entries of test rows are missing at random
- "random": entries of all rows are missing at random
- "blocks": neighbouring columns of all rows are missing together (rectangles of the images)
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import machine, save, table
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

from torchlgm import LGMClassifier, learn
from torchlgm.baselines import network
from torchlgm.data import hide
from torchlgm.metrics import evaluate

DATA = {"breast cancer": load_breast_cancer, "wine": load_wine, "digits": load_digits}
SIDES = {"digits": 8}  # of images
MOST_ROWS = 500  # to train on
TEST_ONLY, OTHERS = (0.0, 0.2, 0.4, 0.6, 0.8), (0.4, 0.8)
ROWS_ASKED = 100  # about their uncertainty
Predict = Callable[[np.ndarray], np.ndarray]


def holes(X: np.ndarray, share: float, pattern: str, name: str, rng: np.random.Generator) -> np.ndarray:
    """X with a share of its entries replaced by NaN."""
    if share == 0:
        return X
    if pattern != "blocks":
        return np.where(rng.random(X.shape) < share, np.nan, X)
    side = SIDES.get(name)
    if side is not None:
        generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
        images = torch.as_tensor(X).reshape(len(X), 1, side, side)
        return hide(images, 1 - share, generator, like="block").reshape(X.shape).numpy()
    columns = X.shape[1]
    length = round(share * columns)
    first = rng.integers(0, columns, len(X))  # the run goes on at the first column
    place = (np.arange(columns)[None] - first[:, None]) % columns
    return np.where(place < length, np.nan, X)


def ours(X: np.ndarray, y: np.ndarray, seed: int) -> Predict:
    return LGMClassifier(random_state=seed).fit(X, y).predict_proba


def boosting(X: np.ndarray, y: np.ndarray, seed: int) -> Predict:
    seen = ~np.isnan(X).all(0)  # it fails on columns without any value
    model = HistGradientBoostingClassifier(random_state=seed).fit(X[:, seen], y)
    return lambda Z: model.predict_proba(Z[:, seen])


def boosting_with_hiding(X: np.ndarray, y: np.ndarray, seed: int) -> Predict:
    """Every row twice, once with entries hidden as LGMClassifier does."""
    rng = np.random.default_rng(seed)
    shown = rng.random(X.shape) < rng.uniform(0.2, 1, (len(X), 1))
    return boosting(np.concatenate([X, np.where(shown, X, np.nan)]), np.tile(y, 2), seed)


def imputed(imputer: Any, classifier: Any) -> Callable[[np.ndarray, np.ndarray, int], Predict]:
    def make(X: np.ndarray, y: np.ndarray, seed: int) -> Predict:
        scaler, filler = StandardScaler().fit(X), imputer(seed)
        model = classifier(seed).fit(filler.fit_transform(scaler.transform(X)), y)
        return lambda Z: model.predict_proba(filler.transform(scaler.transform(Z)))

    return make


def neural(mask_channel: bool) -> Callable[[np.ndarray, np.ndarray, int], Predict]:
    """A network whose missing inputs are 0.5, with or without an input that says so; trained with hiding."""

    def make(X: np.ndarray, y: np.ndarray, seed: int) -> Predict:
        low, high = np.nanmin(X, 0), np.nanmax(X, 0)

        def scaled(Z: np.ndarray) -> torch.Tensor:
            return torch.as_tensor(np.clip((Z - low) / np.where(high > low, high - low, 1), 0, 1)).float()

        torch.manual_seed(seed)
        columns, classes = X.shape[1], int(y.max()) + 1
        model = network("dense", (columns,), classes, 64, activation="relu", mask_channel=mask_channel)
        rows = learn.Samples(scaled(X), torch.as_tensor(y))
        epochs = int(np.clip(1200 * 32 / len(X), 60, 300))
        settings = learn.Settings(epochs, 32, 0.003, patience=None, seed=seed, visible=(0.2, 1.0))
        learn.fit(model, rows, rows, settings=settings, reporters=[])
        return lambda Z: learn.predict_proba(model, scaled(Z)).numpy()

    return make


def knn(_: int) -> KNNImputer:
    return KNNImputer(keep_empty_features=True)


def iterative(seed: int) -> IterativeImputer:
    return IterativeImputer(max_iter=5, n_nearest_features=15, random_state=seed, keep_empty_features=True)


def logistic(_: int) -> LogisticRegression:
    return LogisticRegression(max_iter=2000)


def perceptron(seed: int) -> MLPClassifier:
    return MLPClassifier(random_state=seed)


METHODS: dict[str, Callable[[np.ndarray, np.ndarray, int], Predict]] = {
    "LGMClassifier": ours,
    "boosting": boosting,
    "boosting, hiding": boosting_with_hiding,
    "KNN + logistic": imputed(knn, logistic),
    "KNN + MLP": imputed(knn, perceptron),
    "iterative + logistic": imputed(iterative, logistic),
    "iterative + MLP": imputed(iterative, perceptron),
    "gray fill network": neural(mask_channel=False),
    "mask channel network": neural(mask_channel=True),
}


def split(name: str, seed: int) -> list[np.ndarray]:
    X, y = DATA[name](return_X_y=True)
    train = min(MOST_ROWS, round(0.75 * len(y)))
    return train_test_split(X, y, train_size=train, stratify=y, random_state=seed)


def cells(name: str, seed: int, quick: bool) -> Iterator[tuple[str, np.ndarray, np.ndarray, list[tuple]]]:
    """(pattern, X, y, tests) for each training; tests are (share, X, y)."""
    X, Z, y, z = split(name, seed)
    rng = np.random.default_rng(seed)
    shares = (0.0, 0.6) if quick else TEST_ONLY
    yield "test only", X, y, [(s, holes(Z, s, "test only", name, rng), z) for s in shares]
    for pattern in ("random", "blocks"):
        for share in (0.6,) if quick else OTHERS:
            here, there = (holes(part, share, pattern, name, rng) for part in (X, Z))
            yield pattern, here, y, [(share, there, z)]


def classification(names: Iterable[str], seeds: Iterable[int], quick: bool) -> list[dict[str, Any]]:
    found: dict[tuple, list[dict[str, float]]] = defaultdict(list)
    for name in names:
        for seed in seeds:
            for pattern, X, y, tests in cells(name, seed, quick):
                for method, make in METHODS.items():
                    start = time.process_time()
                    predict = make(X, y, seed)
                    seconds = time.process_time() - start
                    for share, Z, z in tests:
                        probs = torch.as_tensor(predict(Z), dtype=torch.float64)
                        figures = evaluate(probs, torch.as_tensor(z))
                        found[name, pattern, share, method].append({**figures, "fit seconds": seconds})
    rows = []
    for (name, pattern, share, method), runs in found.items():
        means = {key: round(float(np.mean([run[key] for run in runs])), 4) for key in runs[0]}
        spread = {f"{key} std": round(float(np.std([run[key] for run in runs])), 4) for key in ("accuracy", "nll")}
        rows.append({"data": name, "pattern": pattern, "missing": share, "method": method, **means, **spread})
    return rows


def beyond(names: Iterable[str], seeds: Iterable[int]) -> tuple[list[dict], list[dict]]:
    """How well holes are filled in, and whether uncertainty says what the missing entries are worth."""
    filled, asked = defaultdict(list), defaultdict(list)
    for name in names:
        for seed in seeds:
            X, Z, y, _ = split(name, seed)
            model = LGMClassifier(random_state=seed).fit(X, y)
            scaler, rng = StandardScaler().fit(X), np.random.default_rng(seed)
            fillers = {"mean": SimpleImputer(), "KNN": knn(seed), "iterative": iterative(seed)}
            fillers = {key: f.fit(scaler.transform(X)) for key, f in fillers.items()}
            for share in OTHERS:
                given = holes(Z, share, "random", name, rng)
                lost = np.isnan(given)
                guesses = {key: f.transform(scaler.transform(given)) for key, f in fillers.items()}
                guesses["LGMClassifier"] = scaler.transform(model.complete(given))
                for key, guess in guesses.items():
                    error = (guess - scaler.transform(Z))[lost]
                    filled[name, share, key].append(float(np.sqrt((error**2).mean())))
                some = given[:ROWS_ASKED]
                unsure, known = model.uncertainty(some), model.uncertainty(Z[:ROWS_ASKED])
                asked[name, share].append([unsure.entropy.mean(), unsure.from_missing.mean(), known.entropy.mean()])
    fill = [{"data": n, "missing": s, "filled by": k, "error": round(np.mean(v), 3)} for (n, s, k), v in filled.items()]
    uncertainties = []
    for (name, share), runs in asked.items():
        whole, missing, known = np.mean(runs, 0).round(3).tolist()
        uncertainties.append(
            {
                "data": name,
                "missing": share,
                "entropy": whole,
                "from missing": missing,
                "fall when they are shown": round(whole - known, 3),
            }
        )
    return fill, uncertainties


def wide(rows: list[dict[str, Any]], key: str, pattern: str) -> list[dict[str, Any]]:
    """A row for each method, a column for each data set and share."""
    chosen = [row for row in rows if row["pattern"] == pattern]
    return [
        {"method": m}
        | {f"{row['data']} {row['missing']:.0%}": f"{row[key]:.3f}" for row in chosen if row["method"] == m}
        for m in METHODS
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", nargs="*", choices=list(DATA), default=list(DATA))
    parser.add_argument("--quick", action="store_true", help="one seed, wine alone, few shares")
    parser.add_argument("--json", type=Path, help="add the result to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    names, seeds = (["wine"], [0]) if arguments.quick else (arguments.data, range(arguments.seeds))
    about = {"machine": machine("torch", "numpy", "scikit-learn"), "threads": 1, "seeds": len(seeds)}
    rows, fill, uncertainties = [], [], []
    for name in names:
        start = time.process_time()
        found = classification([name], seeds, arguments.quick), *beyond([name], seeds)
        about["CPU seconds"] = round(time.process_time() - start)
        result = dict(zip(("rows", "filled", "uncertainty"), found, strict=True))
        save(arguments.json, f"missing, {name}", {**about, **result})
        for all_of_them, some in zip((rows, fill, uncertainties), found, strict=True):
            all_of_them += some
    for pattern in ("test only", "random", "blocks"):
        for key in ("accuracy", "nll", "calibration_error"):
            print(f"\n{key}, {pattern}\n\n{table(wide(rows, key, pattern))}")
    print(f"\nRoot mean squared error of filled entries, in standard deviations\n\n{table(fill)}")
    print(f"\nUncertainty in nats\n\n{table(uncertainties)}")


if __name__ == "__main__":
    main()
