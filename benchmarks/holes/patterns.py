"""Which entries are missing: a share of them, in one of several patterns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

Pattern = Callable[[pd.DataFrame, float, np.random.Generator], np.ndarray]


def at_random(X: pd.DataFrame, share: float, rng: np.random.Generator) -> np.ndarray:
    return rng.random(X.shape) < share


def in_blocks(X: pd.DataFrame, share: float, rng: np.random.Generator) -> np.ndarray:
    """Neighbouring columns, from another one on in each row; after the last column comes the first."""
    return _runs(X, share, rng.integers(0, X.shape[1], (len(X), 1)))


def one_group(X: pd.DataFrame, share: float, rng: np.random.Generator) -> np.ndarray:
    """The same neighbouring columns in all rows, as if an instrument were broken."""
    return np.broadcast_to(_runs(X, share, rng.integers(0, X.shape[1], (1, 1))), X.shape)


def by_value(X: pd.DataFrame, share: float, rng: np.random.Generator) -> np.ndarray:
    """The larger a value, the more often it is missing; names are in an order drawn at random."""
    ranks = pd.DataFrame({column: _ranks(X[column], rng) for column in X}, index=X.index).to_numpy()
    often = 2 * share * ranks if share <= 0.5 else 1 - 2 * (1 - share) * (1 - ranks)
    return rng.random(X.shape) < often


PATTERNS: dict[str, Pattern] = {
    "random": at_random,
    "blocks": in_blocks,
    "group": one_group,
    "by value": by_value,
}


def with_holes(X: pd.DataFrame, pattern: str, share: float, rng: np.random.Generator) -> pd.DataFrame:
    """X without the entries that the pattern takes away, beside those that it lacks anyway."""
    return X.mask(PATTERNS[pattern](X, share, rng)) if share else X


def _runs(X: pd.DataFrame, share: float, first: np.ndarray) -> np.ndarray:
    columns = X.shape[1]
    return (np.arange(columns) - first) % columns < round(share * columns)


def _ranks(column: pd.Series, rng: np.random.Generator) -> np.ndarray:
    """Ranks from 0 to 1, 0.5 on average; equal values share theirs, and what is missing has 0.5."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        order = rng.permutation(len(column.cat.categories))
        column = column.cat.codes.map(lambda code: order[code] if code >= 0 else np.nan).astype(float)
    ranks = (column.rank() - 0.5) / column.count()
    return ranks.fillna(0.5).to_numpy()
