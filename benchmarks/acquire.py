"""Which feature to look at next: `torchlgm.acquire` beside DIME (`dime.py`), a static and a random order.

Accuracy and negative log-likelihood by number of questions, on CUBE, wine, breast cancer and digits, mean over seeds;
`--only cube-nm` is the case that greedy orders cannot solve; `--only mnist` trains on 5,000 images and asks for pixels;
`--only speed` times `acquire` for tables, and on CUDA for all 784 pixels of 10,000 images.
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import machine, save, table
from dime import Dime, Settings
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.model_selection import train_test_split

import torchlgm as lgm
from torchlgm import LGMClassifier
from torchlgm.data import load

QUESTIONS = {
    "cube": (3, 5, 10),
    "wine": (2, 3, 5),
    "breast cancer": (3, 5, 10),
    "digits": (5, 10, 20),
    "mnist": (10, 20, 30),
    "cube-nm": (2, 5, 10),
}
# Larger tables take more steps; chosen on a split of its own.
OPTIONS: dict[str, dict[str, Any]] = {
    "cube": {"bins": 12, "epochs": 40},
    "cube-nm": {"bins": 5, "epochs": 40},
    "digits": {"epochs": 60, "visible": (0.05, 0.8)},
    "mnist": {"bins": 2},
}
TABLES = {"wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}
Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def cube(rows: int, rng: np.random.Generator, noise: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    """Eight classes at the corners of a cube, as Rückstiess et al. and Shim et al. have it: features c to c + 2 of
    class c are normal around the bits of the corner, with deviation `noise`; the others of 20 are uniform."""
    y = rng.integers(0, 8, rows)
    x = rng.random((rows, 20))
    bits = (y[:, None] >> np.arange(3)) & 1
    for offset in range(3):
        x[np.arange(rows), y + offset] = bits[:, offset] + noise * rng.standard_normal(rows)
    return x, y


def cube_nm(rows: int, rng: np.random.Generator, contexts: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Feature 0 names one of 5 blocks of 3 features; the block that it names has the bits of the class, the others
    have random bits. Alone, no feature says anything of the class but those of blocks, a little."""
    y, context = rng.integers(0, 8, rows), rng.integers(0, contexts, rows)
    bits = rng.integers(0, 2, (rows, contexts, 3))
    bits[np.arange(rows), context] = (y[:, None] >> np.arange(3)) & 1
    values = bits.reshape(rows, -1) + 0.1 * rng.standard_normal((rows, 3 * contexts))
    return np.column_stack([context, values]), y


def split_of(name: str, seed: int) -> Split:
    rng = np.random.default_rng(seed)
    if name in ("cube", "cube-nm"):
        make = cube if name == "cube" else cube_nm
        x, y = make(4000, rng)
        return x[:2000], y[:2000], x[2000:], y[2000:]
    if name == "mnist":
        data = load("mnist")
        rows = torch.from_numpy(rng.permutation(len(data.train.inputs))[:5000])
        x, y = (half.flatten(1).numpy() for half in (data.train.inputs, data.test.inputs))
        labels = [half.targets.flatten().numpy() for half in (data.train, data.test)]
        return x[rows], labels[0][rows], y[:2000], labels[1][:2000]
    x, y = TABLES[name](return_X_y=True)
    a, b, c, d = train_test_split(x, y, test_size=0.3, random_state=seed, stratify=y)
    return a, c, b, d


def ours(split: Split, seed: int, most: int, options: dict[str, Any], orders: dict[str, dict[str, Any]]) -> dict:
    x, y, test_x, test_y = split
    start = time.perf_counter()
    classifier = LGMClassifier(fill_weight=0.5, random_state=seed, **options).fit(x, y)
    fitted = time.perf_counter() - start
    curves = {}
    for name, order in orders.items():
        start = time.perf_counter()
        curves[name] = lgm.Acquisition(classifier, seed=seed, **order).run(test_x, test_y, questions=most).curve()
        curves[name] |= {"fit": fitted, "asked": time.perf_counter() - start}
    return curves


def rival(split: Split, seed: int, most: int, settings: Settings, device: str) -> dict[str, Any]:
    x, y, test_x, test_y = split
    mean, std = x.mean(0), x.std(0)
    std = np.where(std > 0, std, 1)
    rows, more = (torch.tensor((part - mean) / std, dtype=torch.float32) for part in (x, test_x))
    labels = torch.tensor(y).long()
    train, valid = train_test_split(np.arange(len(x)), test_size=0.15, random_state=seed, stratify=y)
    start = time.perf_counter()
    dime = Dime(x.shape[1], int(y.max()) + 1, settings, seed, device)
    dime.fit(rows[train], labels[train], rows[valid], labels[valid])
    fitted = time.perf_counter() - start
    answers = torch.stack(dime.run(more, most)).cpu()
    truth = torch.tensor(test_y).long()
    right = (answers.argmax(-1) == truth).double().mean(1)
    nll = -answers.gather(-1, truth.expand(len(answers), -1).unsqueeze(-1)).mean((1, 2))
    return {"accuracy": right.tolist(), "nll": nll.tolist(), "fit": fitted}


def quality(name: str, seeds: int, device: str, quick: bool) -> dict[str, Any]:
    marks = QUESTIONS[name]
    most = max(marks)
    orders: dict[str, dict[str, Any]] = {"gain": {}, "static": {"order": "static"}, "random": {"order": "random"}}
    if name == "cube-nm":
        orders["lookahead"] = {"lookahead": 2}
    options: dict[str, Any] = {"device": device, **OPTIONS.get(name, {})}
    if quick:
        options["epochs"] = 2
    settings = Settings(questions=most, **({"warm_up": 50, "steps": 30} if quick else {}))
    runs = []
    for seed in range(seeds):
        split = split_of(name, seed)
        if quick:
            split = tuple(part[:200] for part in split)
        run = ours(split, seed, most, options, orders)
        runs.append(run | {"DIME": rival(split, seed, most, settings, device)})
    rows = []
    for order in runs[0]:
        row: dict[str, Any] = {name: order}
        for of, what in (("accuracy", "right"), ("nll", "NLL")):
            row |= {f"{what} at {at}": f"{np.mean([run[order][of][at] for run in runs]):.3f}" for at in marks}
        rows.append(row | {"s to train": round(float(np.mean([run[order]["fit"] for run in runs])))})
    print(table(rows), flush=True)
    return {name: runs}


def speed(device: str) -> dict[str, Any]:
    """Milliseconds a row for 41 columns, and seconds for images."""
    graph = lgm.zoo.dense(inputs=41, hidden=[64], classes=3)
    layers = (lgm.Layer("inputs", 41, 5), *graph.layers[1:])
    connections = tuple(lgm.Dense(a.name, b.name) for a, b in pairwise(layers))
    model = lgm.LGM(lgm.Graph(layers, connections, graph.root)).to(device)
    times = {}
    for dtype in (torch.float32, torch.float64):
        posterior = lgm.Posterior(model.to(dtype), lgm.lbp(1))
        x = torch.full((1000, 41), torch.nan, dtype=dtype, device=device)
        for rows in (1000, 1):
            lgm.acquire(posterior, x[:rows])
            start = time.perf_counter()
            for _ in range(3 if rows > 1 else 30):
                lgm.acquire(posterior, x[:rows])
            taken = time.perf_counter() - start
            times[f"41 columns, {str(dtype)[6:]}, {rows} rows"] = taken / (3 if rows > 1 else 30) / rows * 1000
    for what, milliseconds in times.items():
        print(f"{what}: {milliseconds:.3f} ms a row")
    if torch.cuda.is_available():
        posterior = lgm.Posterior(lgm.LGM(lgm.zoo.dense(inputs=784, hidden=[100], classes=10)).cuda(), lgm.lbp(1))
        x = torch.full((10000, 784), torch.nan, device="cuda")
        lgm.acquire(posterior, x[:100])
        torch.cuda.synchronize()
        start = time.perf_counter()
        lgm.acquire(posterior, x)
        torch.cuda.synchronize()
        times["784 pixels, 10000 images, s"] = time.perf_counter() - start
        print(f"784 pixels of 10,000 images: {times['784 pixels, 10000 images, s']:.1f} s")
    return {"speed": times}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=[*QUESTIONS, "speed"], default=[*QUESTIONS, "speed"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quick", action="store_true", help="only show that everything runs")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    for name in arguments.only:
        if name == "speed":
            found = speed(arguments.device)
        else:
            found = quality(name, arguments.seeds, arguments.device, arguments.quick)
        about = {"machine": machine("torch", "scikit-learn"), "seeds": arguments.seeds}
        save(arguments.json, f"acquire {name}", about | found)


if __name__ == "__main__":
    main()
