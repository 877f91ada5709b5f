"""Gradient boosting by four libraries, with the number of trees that held-out rows choose.

With their default numbers of trees they are far too sure on small tables. So 15 % of the rows are held out, boosting
stops where their likelihood no longer improves, and then all rows are learnt with that number of trees.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import train_test_split

MOST_TREES, PATIENCE, HELD_OUT = 300, 20, 0.15
ONE_HOT = 32  # names in a column that CatBoost splits one by one; its statistics of them take many times as long
Rows = tuple[pd.DataFrame, np.ndarray]
Predict = Callable[[pd.DataFrame], np.ndarray]
Settings = dict[str, Any]


class Booster(Protocol):
    """Learn rows, until held-out rows get worse if there are any: how to predict, and settings for all rows."""

    def __call__(
        self, rows: Rows, held_out: Rows | None, seed: int, settings: Settings
    ) -> tuple[Predict, Settings]: ...


def as_they_are(X: pd.DataFrame, y: np.ndarray) -> Rows:
    return X, y


def fit(
    booster: Booster, X: pd.DataFrame, y: np.ndarray, seed: int, taught: Callable[..., Rows] = as_they_are
) -> Predict:
    """What the booster predicts with once it has learnt; `taught` makes the rows that it learns."""
    names = [f"c{place}" for place in range(X.shape[1])]  # some libraries refuse names with odd characters

    def rows(X: pd.DataFrame, y: np.ndarray) -> Rows:
        X, y = taught(X, y)
        return X.set_axis(names, axis=1), y

    train, apart, y_train, y_apart = train_test_split(X, y, test_size=HELD_OUT, stratify=y, random_state=seed)
    _, chosen = booster(rows(train, y_train), rows(apart, y_apart), seed, {})
    predict, _ = booster(rows(X, y), None, seed, chosen)
    return lambda Z: predict(Z.set_axis(names, axis=1))


def hist(rows: Rows, held_out: Rows | None, seed: int, settings: Settings) -> tuple[Predict, Settings]:
    common = {"categorical_features": "from_dtype", "random_state": seed}
    if held_out is None:
        return HistGradientBoostingClassifier(early_stopping=False, **common, **settings).fit(*rows).predict_proba, {}
    model = HistGradientBoostingClassifier(
        max_iter=MOST_TREES, early_stopping=True, n_iter_no_change=PATIENCE, **common
    ).fit(*rows, X_val=held_out[0], y_val=held_out[1])
    return model.predict_proba, {"max_iter": max(1, int(np.argmax(model.validation_score_)))}


def xgboost(rows: Rows, held_out: Rows | None, seed: int, settings: Settings) -> tuple[Predict, Settings]:
    from xgboost import XGBClassifier

    stop = {} if held_out is None else {"n_estimators": MOST_TREES, "early_stopping_rounds": PATIENCE}
    model = XGBClassifier(enable_categorical=True, n_jobs=1, random_state=seed, **stop, **settings)
    model.fit(*rows, eval_set=held_out and [held_out], verbose=False)
    return model.predict_proba, {"n_estimators": model.best_iteration + 1} if held_out else {}


def lightgbm(rows: Rows, held_out: Rows | None, seed: int, settings: Settings) -> tuple[Predict, Settings]:
    from lightgbm import LGBMClassifier, early_stopping

    stop = {} if held_out is None else {"n_estimators": MOST_TREES}
    model = LGBMClassifier(n_jobs=1, random_state=seed, verbose=-1, **stop, **settings)
    watch = [early_stopping(PATIENCE, verbose=False)] if held_out else None
    model.fit(*rows, eval_set=held_out and [held_out], callbacks=watch)
    return model.predict_proba, {"n_estimators": max(1, model.best_iteration_)} if held_out else {}


def catboost(rows: Rows, held_out: Rows | None, seed: int, settings: Settings) -> tuple[Predict, Settings]:
    from catboost import CatBoostClassifier

    stop = {} if held_out is None else {"iterations": MOST_TREES, "early_stopping_rounds": PATIENCE}
    fixed = {"thread_count": 1, "verbose": False, "allow_writing_files": False, "one_hot_max_size": ONE_HOT}
    model = CatBoostClassifier(cat_features=_names(rows[0]), random_seed=seed, **fixed, **stop, **settings)
    model.fit(_texts(rows[0]), rows[1], eval_set=held_out and (_texts(held_out[0]), held_out[1]))
    chosen = {"iterations": model.tree_count_, "learning_rate": model.learning_rate_}  # which it takes from the rows
    return lambda Z: model.predict_proba(_texts(Z)), chosen


BOOSTERS: dict[str, Booster] = {
    "HistGradientBoosting": hist,
    "XGBoost": xgboost,
    "LightGBM": lightgbm,
    "CatBoost": catboost,
}


def codes(X: pd.DataFrame) -> np.ndarray:
    """Numbers for names, NaN where an entry is missing."""
    return X.assign(**{c: X[c].cat.codes.where(X[c].notna()) for c in _names(X)}).to_numpy(float)


def _names(X: pd.DataFrame) -> list[str]:
    return [column for column in X if isinstance(X[column].dtype, pd.CategoricalDtype)]


def _texts(X: pd.DataFrame) -> pd.DataFrame:
    """CatBoost takes names as text, and no NaN among them."""
    texts = {c: X[c].astype(object).where(X[c].notna(), "missing").astype(str) for c in _names(X)}
    return X.assign(**texts)
