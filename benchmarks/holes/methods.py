"""The classifiers: LGMClassifier, and what one would use instead, each as it comes and taught with holes.

Each takes rows with NaN, their classes as numbers and a seed, and gives a function from rows to class probabilities.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, MissingIndicator, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import StandardScaler

from holes import boosters
from torchlgm import LGMClassifier

Predict = Callable[[pd.DataFrame], np.ndarray]
Method = Callable[[pd.DataFrame, np.ndarray, int], Predict]
COPIES, ENOUGH_ROWS = 4, 5_000
MOST_HIDDEN = 0.8  # of a row, as in LGMClassifier


def ours(X: pd.DataFrame, y: np.ndarray, seed: int) -> Predict:
    return LGMClassifier(random_state=seed).fit(X, y).predict_proba


def rows_with_holes(X: pd.DataFrame, y: np.ndarray, rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray]:
    """Every row as it is, and up to four times with a random share of its entries hidden."""
    copies = int(np.clip(ENOUGH_ROWS // len(X), 1, COPIES))
    hidden = [X.mask(rng.random(X.shape) < rng.uniform(0, MOST_HIDDEN, (len(X), 1))) for _ in range(copies)]
    return pd.concat([X, *hidden], ignore_index=True), np.tile(y, copies + 1)


def boosted(booster: boosters.Booster, hiding: bool) -> Method:
    def fit(X: pd.DataFrame, y: np.ndarray, seed: int) -> Predict:
        if not hiding:
            return boosters.fit(booster, X, y, seed)
        rng = np.random.default_rng(seed)
        return boosters.fit(booster, X, y, seed, lambda rows, classes: rows_with_holes(rows, classes, rng))

    return fit


def forest(hiding: bool) -> Method:
    """A random forest and one more tree that always answers with the shares of the classes, lest any gets 0."""

    def fit(X: pd.DataFrame, y: np.ndarray, seed: int) -> Predict:
        shares = np.bincount(y) / len(y)
        rows, classes = rows_with_holes(X, y, np.random.default_rng(seed)) if hiding else (X, y)
        model = RandomForestClassifier(random_state=seed).fit(boosters.codes(rows), classes)
        trees = len(model.estimators_)
        return lambda Z: (trees * model.predict_proba(boosters.codes(Z)) + shares) / (trees + 1)

    return fit


class Numbers:
    """Columns as numbers: names as zeros and ones, numbers standardised, NaN where an entry is missing."""

    def __init__(self, X: pd.DataFrame) -> None:
        self.names = {c: X[c].cat.categories for c in X if isinstance(X[c].dtype, pd.CategoricalDtype)}
        self.scaler = StandardScaler().fit(self._spread(X))

    def __call__(self, X: pd.DataFrame) -> np.ndarray:
        return self.scaler.transform(self._spread(X))

    def _spread(self, X: pd.DataFrame) -> np.ndarray:
        parts = []
        for column in X:
            values = X[column].to_numpy()[:, None]
            if column in self.names:
                same = (values == np.asarray(self.names[column])).astype(float)
                parts.append(np.where(pd.isna(values), np.nan, same))
            else:
                parts.append(values.astype(float))
        return np.concatenate(parts, 1)


def imputed(imputer: Callable[[int], Any], classifier: Callable[[int], Any]) -> Method:
    def fit(X: pd.DataFrame, y: np.ndarray, seed: int) -> Predict:
        numbers = Numbers(X)
        model = make_pipeline(imputer(seed), classifier(seed)).fit(numbers(X), y)
        return lambda Z: model.predict_proba(numbers(Z))

    return fit


def told(classifier: Callable[[int], Any]) -> Method:
    """Means where an entry is missing, inputs that say so, and training with hiding."""

    def fit(X: pd.DataFrame, y: np.ndarray, seed: int) -> Predict:
        numbers = Numbers(X)
        rows, classes = rows_with_holes(X, y, np.random.default_rng(seed))
        inputs = make_union(mean(seed), MissingIndicator(features="all"))
        model = make_pipeline(inputs, classifier(seed)).fit(numbers(rows), classes)
        return lambda Z: model.predict_proba(numbers(Z))

    return fit


def mean(_: int) -> SimpleImputer:
    return SimpleImputer(keep_empty_features=True)


def knn(_: int) -> KNNImputer:
    return KNNImputer(keep_empty_features=True)


def iterative(seed: int) -> IterativeImputer:
    """With `tol=0`, since on complete rows it would stop at once and later fill in by a single round."""
    return IterativeImputer(max_iter=5, tol=0, n_nearest_features=15, random_state=seed, keep_empty_features=True)


def logistic(_: int) -> LogisticRegression:
    return LogisticRegression(max_iter=2000)


def perceptron(seed: int) -> MLPClassifier:
    return MLPClassifier(random_state=seed)


def stopped_perceptron(seed: int) -> MLPClassifier:
    """It would learn five times the rows by heart; on few rows without holes stopping early makes it worse."""
    return MLPClassifier(early_stopping=True, random_state=seed)


OURS = "LGMClassifier"
METHODS: dict[str, Method] = {
    OURS: ours,
    **{name: boosted(booster, hiding=False) for name, booster in boosters.BOOSTERS.items()},
    "random forest": forest(hiding=False),
    **{f"{name}, hiding": boosted(booster, hiding=True) for name, booster in boosters.BOOSTERS.items()},
    "random forest, hiding": forest(hiding=True),
    "mean + logistic": imputed(mean, logistic),
    "mean + MLP": imputed(mean, perceptron),
    "KNN + logistic": imputed(knn, logistic),
    "KNN + MLP": imputed(knn, perceptron),
    "iterative + logistic": imputed(iterative, logistic),
    "iterative + MLP": imputed(iterative, perceptron),
    "mask + logistic": told(logistic),
    "mask + MLP": told(stopped_perceptron),
}
FAMILIES: dict[str, tuple[str, ...]] = {
    "trees": (*boosters.BOOSTERS, "random forest"),
    "trees, hiding": tuple(f"{name}, hiding" for name in (*boosters.BOOSTERS, "random forest")),
    "imputation": tuple(name for name in METHODS if " + " in name and not name.startswith("mask")),
    "mask inputs": ("mask + logistic", "mask + MLP"),
}
