"""Endurance: mixed models, methods, fits and answers, in one process and from threads, and what grows meanwhile.

python -m benchmarks.soak --minutes 10 --out soak.json
"""

from __future__ import annotations

import argparse
import json
import os
import random
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

import torchlgm as lgm
from torchlgm import learn
from torchlgm.inference import engine, lowering, run
from torchlgm.model import parameters
from torchlgm.networks import Network
from torchlgm.networks.solvers import junction
from torchlgm.ops import csr
from torchlgm.sklearn import base

MOST_MINUTES = 30
EVERY = 2.0  # seconds between looks
METHODS = (lgm.lbp, lgm.trw, lgm.mean_field)
BOUNDED = {  # what is kept for later calls
    "plans": run.plan_of,
    "wirings": engine._wiring,
    "programs": lowering.lower,
    "trees": junction.junction_tree,
}
WEAK = {"versions": parameters._finite, "layouts": csr._known, "tables": base._ANSWERS}


def work(seed: int) -> None:
    """Something of some shape: a model asked by some method or trained, a network, a table."""
    draw = random.Random(seed)
    kinds = {infer: 80, sample: 4, train: 8, network: 4, classifier: 2, imputer: 2}
    draw.choices(list(kinds), list(kinds.values()))[0](draw, torch.Generator().manual_seed(seed))


def infer(draw: random.Random, generator: torch.Generator) -> None:
    model, x = some_model(draw, generator), draw.randint(1, 100)
    method = draw.choice(METHODS)(draw.randint(1, 6), draw.choice(("sweep", "sequential", "parallel")))
    beliefs = lgm.infer(model, {model.graph.layers[0].name: some_rows(model, x, generator)}, method)
    assert bool(beliefs[model.graph.layers[-1].name].probs.isfinite().all())


def sample(draw: random.Random, generator: torch.Generator) -> None:
    model = some_model(draw, generator)
    x = some_rows(model, 5, generator)
    lgm.sample(model, {model.graph.layers[0].name: x}, sweeps=3, generator=generator)


def some_model(draw: random.Random, generator: torch.Generator) -> lgm.LGM:
    """Of dense, convolutional or local edges, or of a grid joined with itself."""
    side, hidden, classes = draw.randint(4, 7), draw.randint(2, 30), draw.randint(2, 6)
    graph = draw.choice(
        (
            lambda: lgm.zoo.dense(side * side, (hidden,), classes),
            lambda: lgm.zoo.windows("conv", (1, side, side), (2, 3), (3, 2), (1, 1), 0, hidden, classes),
            lambda: lgm.zoo.windows("local", (1, side, side), (2, 3), (3, 2), (1, 1), 0, hidden, classes),
            lambda: lgm.zoo.grid_crf(side, side + draw.randint(0, 3), classes),
        )
    )()
    return lgm.LGM(graph, lgm.Init(0.3), generator=generator)


def some_rows(model: lgm.LGM, rows: int, generator: torch.Generator) -> torch.Tensor:
    x = torch.rand(rows, *model.graph.layers[0].shape, generator=generator)
    x[torch.rand(x.shape, generator=generator) < 0.3] = torch.nan
    return x


def train(draw: random.Random, generator: torch.Generator) -> None:
    inputs, classes = draw.randint(4, 60), draw.randint(2, 6)
    model = lgm.LGM(lgm.zoo.dense(inputs, (draw.randint(2, 40),), classes), lgm.Init(0.3), generator=generator)
    y = torch.randint(0, classes, (draw.randint(20, 200),), generator=generator)
    data = torch.rand(len(y), inputs, generator=generator), y
    settings = learn.Settings(epochs=2, batch_size=32)
    learn.fit(lgm.Posterior(model, lgm.lbp(1)), data, data, learn.JointLikelihood(), settings, reporters=[])


def network(draw: random.Random, generator: torch.Generator) -> None:
    rng = np.random.default_rng(generator.initial_seed())
    labels = [draw.randint(2, 4) for _ in range(draw.randint(3, 20))]
    factors = []
    for v, states in enumerate(labels):
        parents = sorted(draw.sample(range(v), min(v, draw.randint(0, 3))))
        factors.append(((*parents, v), -np.log(rng.dirichlet(np.ones(states), [labels[p] for p in parents]))))
    made = Network({v: range(k) for v, k in enumerate(labels)}, factors, range(len(labels)))
    evidence = np.stack([rng.integers(-1, k, 50) for k in labels], 1)
    answers = made.posteriors(evidence, method=draw.choice((None, None, lgm.lbp(3))))
    assert bool(answers[0].isfinite().all())
    made.fit(evidence, iterations=2)


def classifier(draw: random.Random, generator: torch.Generator) -> None:
    X = np.random.default_rng(generator.initial_seed()).normal(size=(80, draw.randint(2, 6)))
    model = lgm.LGMClassifier(hidden=5, epochs=2, n_members=2, random_state=0).fit(X, X[:, 0] > 0)
    assert np.isfinite(model.predict_proba(X)).all()


def imputer(draw: random.Random, generator: torch.Generator) -> None:
    rng = np.random.default_rng(generator.initial_seed())
    X = rng.normal(size=(80, draw.randint(2, 6)))
    holes = np.where(rng.random(X.shape) < 0.2, np.nan, X)
    assert np.isfinite(lgm.LGMImputer(hidden=5, epochs=2, n_members=2, random_state=0).fit_transform(holes)).all()


def look(began: float, done: int) -> dict[str, float]:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "seconds": round(time.monotonic() - began, 1),
        "work": done,
        "megabytes": round(int(status["VmRSS"].split()[0]) / 1024, 1),
        "files": len(os.listdir("/proc/self/fd")),
        "threads": int(status["Threads"]),
        **{name: function.cache_info().currsize for name, function in BOUNDED.items()},
        **{name: len(kept) for name, kept in WEAK.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path("soak.json"))
    given = parser.parse_args()
    minutes = min(given.minutes, MOST_MINUTES)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    began, begun, lock, rows = time.monotonic(), 0, threading.Lock(), []
    end = began + 60 * minutes

    def go_on() -> None:
        nonlocal begun
        while time.monotonic() < end:
            with lock:
                seed, begun = begun, begun + 1
            work(seed)

    with ThreadPoolExecutor(given.threads) as pool:
        running = [pool.submit(go_on) for _ in range(given.threads)]
        while time.monotonic() < end:
            time.sleep(EVERY)
            rows.append(look(began, begun))
        for one in running:
            one.result()
    rows.append(look(began, begun))
    later = [row for row in rows if row["seconds"] > 30 * minutes]  # after half of the time
    third = len(later) // 3
    growth = {}
    for name in rows[0].keys() - {"seconds", "work"}:
        first, last = (float(np.median([row[name] for row in part])) for part in (later[:third], later[-third:]))
        growth[name] = last - first
    summary = {"minutes": minutes, "threads": given.threads, "works": rows[-1]["work"], "growth": growth}
    given.out.write_text(json.dumps({**summary, "rows": rows}, indent=1))
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
