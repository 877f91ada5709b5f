"""Is the uncertainty of LGMClassifier true? What it says the missing entries are worth, and what showing them gains.

A share of the entries of test rows is missing at random. `uncertainty` says how much of the entropy of the class belief
is due to them; then they are shown, and the fall is measured. Means in nats over rows and splits.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import machine, save, table
from holes.patterns import with_holes
from holes.tables import OWN, read

from torchlgm import LGMClassifier

MISSING, ROWS = (0.4, 0.8), 100  # of a table, at most


def told_and_true(name: str, seeds: int) -> list[dict[str, Any]]:
    runs = defaultdict(list)
    for seed in range(seeds):
        train, test = read(None, name).at_most(700).split(seed)
        model = LGMClassifier(fill_weight=0.5, random_state=seed).fit(train.X, train.y)
        whole = test.X[:ROWS]
        known = model.uncertainty(whole).entropy
        for share in MISSING:
            unsure = model.uncertainty(with_holes(whole, "random", share, np.random.default_rng(seed)))
            fall = unsure.entropy - known
            runs[share].append([figure.mean() for figure in (unsure.entropy, unsure.from_missing, fall)])
    words = "entropy", "from missing", "fall when shown"
    return [
        {"table": name, "missing": share, **dict(zip(words, np.mean(found, 0).tolist(), strict=True))}
        for share, found in runs.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tables", nargs="+", choices=list(OWN), default=list(OWN))
    parser.add_argument("--json", type=Path, help="add the result to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [row for name in options.tables for row in told_and_true(name, options.seeds)]
    save(options.json, "uncertainty", {"machine": machine("torch"), "seeds": options.seeds, "rows": rows})
    print(table(rows))


if __name__ == "__main__":
    main()
