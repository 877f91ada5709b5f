"""How long LGMClassifier trains and answers a row, beside scikit-learn's MLPClassifier, in one run.

    PYTHONPATH=src python benchmarks/fitting.py [FOLDER] --json benchmarks/results/fitting-cpu.json

Tables are those of FOLDER (CSV files with a column `target`), or scikit-learn's own, and a made-up one of 40,000 rows
with 6 numbers and 8 categories. Both have their defaults and one thread; the MLP gets one-hot categories, standardised
numbers and mean imputation. Seconds are those of the process on a CPU, three quarters of the rows being trained on; a
row is answered warm, as a frame, the least of 200 times.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from common import machine, milliseconds, save, table
from holes.tables import Table, names_in, read
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.metrics import log_loss
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from torchlgm import LGMClassifier

LABELS = (8, 7, 14, 6, 5, 2, 40, 16)  # of the made-up categories


def made_up(rows: int = 40_000) -> Table:
    """Numbers, some of them skewed, and categories, which share four causes with two classes; some entries missing."""
    rng = np.random.default_rng(0)
    causes = rng.normal(size=(rows, 4))
    columns: dict[str, Any] = {
        f"number{j}": np.exp(j / 3 * (causes[:, j % 4] + rng.normal(size=rows))).round(3) for j in range(6)
    }
    odds = causes[:, 0] * causes[:, 1] + 1.5 * causes[:, 2] - 1
    for j, labels in enumerate(LABELS):
        scores = causes @ rng.normal(size=(4, labels)) - np.log(np.arange(1, labels + 1))
        name = (scores + rng.gumbel(size=scores.shape)).argmax(1)
        odds = odds + rng.normal(0, 0.7, labels)[name]
        columns[f"name{j}"] = pd.Categorical(name.astype(str))
    frame = pd.DataFrame(columns)
    return Table(
        "made up", frame.mask(rng.random(frame.shape) < 0.02), (rng.random(rows) < 1 / (1 + np.exp(-odds))) * 1
    )


def mlp(seed: int) -> Any:
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    names = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
    encoder = make_column_transformer(
        (names, make_column_selector(dtype_include="category")), remainder=numbers, sparse_threshold=0
    )
    return make_pipeline(encoder, MLPClassifier(random_state=seed))


def measured(given: Table, seed: int) -> dict[str, float]:
    train, test = given.split(seed)
    figures = {}
    for name, model in (("LGMClassifier", LGMClassifier(random_state=seed, n_jobs=1)), ("MLP", mlp(seed))):
        start = time.process_time()
        model.fit(train.X, train.y)
        figures[f"{name}, s"] = time.process_time() - start
        figures[f"{name}, nll"] = float(log_loss(test.y, model.predict_proba(test.X)))
        row = test.X.iloc[:1]
        figures[f"{name}, ms a row"] = milliseconds(lambda model=model, row=row: model.predict_proba(row), 200)[0]
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--json", type=Path, help="add the result to this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    names = names_in(arguments.folder)
    measured(read(arguments.folder, names[0]), 0)  # imports and compiles what is needed later
    rows = []
    for given in [*(read(arguments.folder, name) for name in names), made_up()]:
        figures = pd.DataFrame([measured(given, seed) for seed in range(arguments.seeds)]).mean().to_dict()
        ratio = figures["LGMClassifier, s"] / figures["MLP, s"]
        rows.append({"table": given.name, "rows": len(given.y), **figures, "s, ratio": ratio})
        rows[-1] = {key: round(value, 3) if isinstance(value, float) else value for key, value in rows[-1].items()}
        print(rows[-1], flush=True)
    print(table(rows))
    about = {"machine": machine("torch", "numpy", "scikit-learn"), "threads": 1, "seeds": arguments.seeds}
    save(arguments.json, "fitting", {**about, "rows": rows})


if __name__ == "__main__":
    main()
