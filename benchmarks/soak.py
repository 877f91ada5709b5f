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
from torchlgm.inference.run import plan_of

MOST_MINUTES = 30
EVERY = 2.0  # seconds between looks
METHODS = (lgm.lbp, lgm.trw, lgm.mean_field)


def work(seed: int) -> None:
    """A model of some shape, asked by some method, and now and then trained."""
    draw = random.Random(seed)
    inputs, hidden, classes = draw.randint(4, 60), draw.randint(2, 40), draw.randint(2, 6)
    generator = torch.Generator().manual_seed(seed)
    model = lgm.LGM(lgm.zoo.dense(inputs, (hidden,), classes), lgm.Init(0.3), generator=generator)
    method = draw.choice(METHODS)(draw.randint(1, 6), draw.choice(("sweep", "sequential", "parallel")))
    x = torch.rand(draw.randint(1, 200), inputs, generator=generator)
    x[torch.rand(x.shape, generator=generator) < 0.3] = torch.nan
    beliefs = lgm.infer(model, {"inputs": x}, method)
    assert bool(beliefs["classes"].probs.isfinite().all())
    kind = draw.random()
    if kind < 0.1:
        y = torch.randint(0, classes, (len(x) + 20,), generator=generator)
        data = torch.rand(len(y), inputs, generator=generator), y
        settings = learn.Settings(epochs=2, batch_size=32)
        learn.fit(lgm.Posterior(model, lgm.lbp(1)), data, data, learn.JointLikelihood(), settings, reporters=[])
    elif kind < 0.13:
        X = np.random.default_rng(seed).normal(size=(80, draw.randint(2, 6)))
        lgm.LGMClassifier(hidden=5, epochs=2, n_members=2, random_state=0).fit(X, X[:, 0] > 0).predict_proba(X)


def look(began: float, done: int) -> dict[str, float]:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "seconds": time.monotonic() - began,
        "work": done,
        "megabytes": int(status["VmRSS"].split()[0]) / 1024,
        "files": len(os.listdir("/proc/self/fd")),
        "threads": int(status["Threads"]),
        "plans": plan_of.cache_info().currsize,
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
    began, counter, lock, rows = time.monotonic(), iter(range(10**9)), threading.Lock(), []
    end = began + 60 * minutes

    def go_on() -> None:
        while time.monotonic() < end:
            with lock:
                seed = next(counter)
            work(seed)

    with ThreadPoolExecutor(given.threads) as pool:
        running = [pool.submit(go_on) for _ in range(given.threads)]
        while time.monotonic() < end:
            time.sleep(EVERY)
            rows.append(look(began, 0))
        for one in running:
            one.result()
    rows.append(look(began, next(counter)))
    later = [row for row in rows if row["seconds"] > 30 * minutes]  # after half of the time
    third = len(later) // 3
    growth = {}
    for name in ("megabytes", "files", "threads", "plans"):
        first, last = (float(np.median([row[name] for row in part])) for part in (later[:third], later[-third:]))
        growth[name] = last - first
    summary = {"minutes": minutes, "threads": given.threads, "works": rows[-1]["work"], "growth": growth}
    given.out.write_text(json.dumps({**summary, "rows": rows}, indent=1))
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
