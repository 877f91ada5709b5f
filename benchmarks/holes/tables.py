"""Tables to classify: those of a folder, or those that come with scikit-learn."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.model_selection import train_test_split

OWN: dict[str, Callable] = {"wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}
TARGET, KINDS = "target", "kinds.json"


@dataclass(frozen=True)
class Table:
    """Columns, categories being of pandas' categorical type and numbers floats, and the numbers of the classes."""

    name: str
    X: pd.DataFrame
    y: np.ndarray

    def split(self, seed: int) -> tuple[Table, Table]:
        """Three quarters of the rows to train on, the rest to test with, both with the classes in the same shares."""
        X, Z, y, z = train_test_split(self.X, self.y, test_size=0.25, stratify=self.y, random_state=seed)
        return Table(self.name, X, y), Table(self.name, Z, z)

    def at_most(self, rows: int | None) -> Table:
        """The table, or as many of its rows, drawn with the classes in the same shares."""
        if rows is None or len(self.y) <= rows:
            return self
        X, _, y, _ = train_test_split(self.X, self.y, train_size=rows, stratify=self.y, random_state=0)
        return Table(self.name, X, y)


def names_in(folder: Path | None) -> list[str]:
    """The tables there are, small files first."""
    if folder is None:
        return list(OWN)
    files = sorted(folder.glob("*.csv"), key=lambda file: (file.stat().st_size, file.name))
    if not files:
        raise SystemExit(f"{folder}: expected CSV files with a column {TARGET!r}, found none")
    return [file.stem for file in files]


@cache
def read(folder: Path | None, name: str) -> Table:
    """One of the tables of `folder`, or of scikit-learn's own if there is no folder."""
    if folder is None:
        X, y = OWN[name](return_X_y=True)
        return Table(name, pd.DataFrame(X, dtype=float).rename(columns=str), np.asarray(y))
    file = folder / f"{name}.csv"
    frame = pd.read_csv(file, dtype=dict.fromkeys(_categories(folder, name), "category"))
    if TARGET not in frame:
        raise SystemExit(f"{file}: expected a column {TARGET!r}, got {', '.join(frame.columns)}")
    frame = frame.dropna(subset=[TARGET])
    y = pd.factorize(frame.pop(TARGET), sort=True)[0]
    text = [column for column in frame if not isinstance(frame[column].dtype, pd.CategoricalDtype)]
    text = [column for column in text if not pd.api.types.is_numeric_dtype(frame[column])]
    frame = frame.astype(dict.fromkeys(text, "category"))
    numbers = frame.select_dtypes(exclude="category").columns
    frame = frame.astype(dict.fromkeys(numbers, float)).dropna(axis=1, how="all")  # boosters fail on empty columns
    return Table(name, frame.reset_index(drop=True), y)


def _categories(folder: Path, name: str) -> list[str]:
    """Columns that `kinds.json` calls "cat"; without the file, or the table in it, only text is a category."""
    file = folder / KINDS
    kinds = json.loads(file.read_text()).get(name, {}) if file.exists() else {}
    return [column for column, kind in kinds.items() if kind == "cat" and column != TARGET]
