"""Which feature to look at next: `torchlgm.acquire` beside DIME (`dime.py`), a static and a random order.

Accuracy and negative log-likelihood by number of questions, on CUBE, wine, breast cancer and digits, mean over seeds;
CUBE-NM is the case that greedy orders cannot solve; `mnist` trains on 20,000 images and asks for pixels. Of DIME there
are two forms, of which each seed has the one with the lower loss on validation rows. `speed` times `acquire` for
tables, and on CUDA for all 784 pixels of 10,000 images. Seeds 0, 1, ... are reported; others were for choices.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
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
    "cube, noise 0.3": (3, 5, 10),
    "wine": (2, 3, 5),
    "breast cancer": (3, 5, 10),
    "digits": (5, 10, 20),
    "mnist": (10, 20, 30),
    "cube-nm": (2, 5, 10),
}
# Few labels for pixels, and where pairs are asked for.
OPTIONS: dict[str, dict[str, Any]] = {"digits": {"bins": 5}, "mnist": {"bins": 2}, "cube-nm": {"bins": 5}}
MODELS: dict[str, dict[str, Any]] = {"policy": {"visible": "policy"}, "default": {}}
ORDERS: dict[str, dict[str, Any]] = {"gain": {}, "static": {"order": "static"}, "random": {"order": "random"}}
FORMS: dict[str, dict[str, Any]] = {
    "of the paper": {"hidden": 128},
    "larger": {"hidden": 256, "warm_up": 8000, "steps": 4500},
}
TABLES = {"wine": load_wine, "breast cancer": load_breast_cancer, "digits": load_digits}
Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def cube(rows: int, rng: np.random.Generator, noise: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
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
    if name.startswith("cube"):
        x, y = cube_nm(4000, rng) if name == "cube-nm" else cube(4000, rng, 0.3 if "0.3" in name else 0.1)
        return x[:2000], y[:2000], x[2000:], y[2000:]
    if name == "mnist":
        data = load("mnist")
        rows = torch.from_numpy(rng.permutation(len(data.train.inputs))[:20_000])
        x, test_x = (half.inputs.flatten(1).numpy() for half in (data.train, data.test))
        y, test_y = (half.targets.flatten().numpy() for half in (data.train, data.test))
        return x[rows], y[rows], test_x[:1000], test_y[:1000]
    x, y = TABLES[name](return_X_y=True)
    train, test = train_test_split(np.arange(len(x)), test_size=0.3, random_state=seed, stratify=y)
    return x[train], y[train], x[test], y[test]


def ours(name: str, model: str, seed: int, quick: bool) -> dict[str, Any]:
    x, y, test_x, test_y = _rows(name, seed, quick)
    options: dict[str, Any] = OPTIONS.get(name, {}) | MODELS[model] | ({"epochs": 2} if quick else {})
    start = time.perf_counter()
    classifier = LGMClassifier(random_state=seed, **options).fit(x, y)
    curves: dict[str, Any] = {"fit": time.perf_counter() - start}
    orders = dict(ORDERS) if model == "policy" else {"gain": {}}
    if name == "cube-nm":
        orders["two steps"] = {"lookahead": 2}
    for order, how in orders.items():
        start = time.perf_counter()
        rows = slice(300 if "lookahead" in how else None)
        course = lgm.Acquisition(classifier, seed=seed, **how).run(test_x[rows], test_y[rows], max(QUESTIONS[name]))
        curves[order] = course.curve() | {"asked": time.perf_counter() - start}
    return curves


def rival(name: str, form: str, seed: int, quick: bool, device: str) -> dict[str, Any]:
    x, y, test_x, test_y = _rows(name, seed, quick)
    options = (
        FORMS[form] | ({"hidden": 256} if name == "mnist" else {}) | ({"warm_up": 50, "steps": 30} if quick else {})
    )
    mean, std = x.mean(0), x.std(0)
    std = np.where(std > 0, std, 1)
    rows, more = (torch.tensor((part - mean) / std, dtype=torch.float32) for part in (x, test_x))
    labels, truth = torch.tensor(y).long(), torch.tensor(test_y).long()
    train, valid = train_test_split(np.arange(len(x)), test_size=0.15, random_state=seed, stratify=y)
    start = time.perf_counter()
    settings = replace(Settings(), questions=max(QUESTIONS[name]), **options)
    dime = Dime(x.shape[1], int(y.max()) + 1, settings, seed, device if name in ("digits", "mnist") else "cpu")
    dime.fit(rows[train], labels[train], rows[valid], labels[valid])
    fitted = time.perf_counter() - start
    answers = torch.stack(dime.run(more, settings.questions)).cpu()
    right = (answers.argmax(-1) == truth).double().mean(1)
    nll = -answers.gather(-1, truth.expand(len(answers), -1).unsqueeze(-1)).mean((1, 2))
    curve = {"accuracy": right.tolist(), "nll": nll.tolist()}
    return {"gain": curve, "fit": fitted, "valid loss": dime.valid_loss}


def _rows(name: str, seed: int, quick: bool) -> Split:
    a, b, c, d = split_of(name, seed)
    most = 200 if quick else None
    return a[:most], b[:most], c[:most], d[:most]


def task(name: str, what: str, seed: int, quick: bool, device: str) -> tuple[str, str, int, dict[str, Any]]:
    torch.set_num_threads(2 if name == "mnist" and what in MODELS else 1)
    found = ours(name, what, seed, quick) if what in MODELS else rival(name, what, seed, quick, device)
    return name, what, seed, found


def quality(names: list[str], arguments: argparse.Namespace) -> None:
    """All tasks, the short ones first, in several processes; what is done is kept at once."""
    kinds = [*MODELS, *FORMS] if arguments.parts is None else arguments.parts
    wanted = [(name, what, seed) for name in names for what in kinds for seed in range(_seeds(name, arguments))]
    longest = ("mnist", "digits", "cube-nm")
    wanted.sort(key=lambda at: (at[0] in longest, at[1] == "larger", at[2]))
    done: dict[str, dict[str, dict[int, Any]]] = {name: {what: {} for what in kinds} for name in names}
    with ProcessPoolExecutor(arguments.jobs, multiprocessing.get_context("spawn")) as pool:
        waiting = [pool.submit(task, *at, arguments.quick, arguments.device) for at in wanted]
        for ready in as_completed(waiting):
            name, what, seed, found = ready.result()
            done[name][what][seed] = found
            print(f"{name}, {what}, seed {seed}: {found['fit']:.0f} s to train", flush=True)
            about = {"machine": machine("torch", "scikit-learn")}
            save(arguments.json, f"acquire {name}", about | done[name])
    for name in names:
        print(table(summary(name, done[name])), flush=True)


def summary(name: str, found: dict[str, dict[int, Any]]) -> list[dict[str, Any]]:
    """A line for each order: means over seeds, of DIME in the form that was better on validation rows."""
    lines = {
        f"{what}, {order}": [run[order] for run in found[what].values()]
        for what in MODELS
        if found.get(what)
        for order in next(iter(found[what].values()))
        if order != "fit"
    }
    forms = [found[form] for form in FORMS if found.get(form)]
    if forms:
        seeds = sorted(set.intersection(*(set(form) for form in forms)))
        lines["DIME"] = [min((form[s] for form in forms), key=lambda run: run["valid loss"])["gain"] for s in seeds]
    rows = []
    for line, runs in lines.items():
        row: dict[str, Any] = {name: line}
        for of, what in (("accuracy", "right"), ("nll", "NLL")):
            row |= {f"{what} at {at}": f"{np.mean([run[of][at] for run in runs]):.3f}" for at in QUESTIONS[name]}
        rows.append(row)
    return rows


def _seeds(name: str, arguments: argparse.Namespace) -> int:
    return min(arguments.seeds, 3) if name == "mnist" else arguments.seeds


def speed(device: str) -> dict[str, Any]:
    """Milliseconds of processor time a row, for 41 columns and three classes, and seconds for images on CUDA."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 1500)
    x = rng.normal(size=(1500, 41)) + 0.3 * y[:, None] * rng.normal(size=41)
    rows = x[:500].copy()
    rows[:, 5:] = np.nan
    times = {}
    for name, options in (("ensemble", {}), ("single model", {"fill_weight": 0.5, "epochs": 5})):
        classifier = LGMClassifier(random_state=0, device=device, **options).fit(x, y)
        for count in (500, 1):
            classifier.acquire(rows[:count])
            start, repeats = time.process_time(), 3 if count > 1 else 30
            for _ in range(repeats):
                classifier.acquire(rows[:count])
            taken = (time.process_time() - start) / repeats / count * 1000
            times[f"{name} of {len(classifier.members_)}, {count} rows, ms"] = taken
            print(f"{name}, {count} rows: {taken:.3f} ms a row")
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
    parser.add_argument("--parts", nargs="+", choices=[*MODELS, *FORMS], help="which models; all unless given")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--device", default="cpu", help="of DIME on images, and of speed")
    parser.add_argument("--quick", action="store_true", help="only show that everything runs")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    names = [name for name in arguments.only if name != "speed"]
    if names:
        quality(names, arguments)
    if "speed" in arguments.only:
        save(arguments.json, "acquire speed", {"machine": machine("torch")} | speed(arguments.device))


if __name__ == "__main__":
    main()
