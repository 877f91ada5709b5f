"""Posteriors of Bayesian networks, ours beside pyAgrum's: time for a row, and error against exact inference.

    python benchmarks/networks.py sample FOLDER alarm andes      # needs pyAgrum; writes FOLDER/alarm.npz ...
    python benchmarks/networks.py run FOLDER alarm andes [--device cuda] [--method lbp] [--out results.json]

FOLDER has the networks as `NAME.bif.gz`. Rows are sampled from the network; 30 % of their entries are observed. Times
for a row are of the processor, on one core.
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import torchlgm as lgm
from torchlgm.networks import Network, read_bif

OBSERVED = 0.3
KINDS = ["LazyPropagation", "LoopyBeliefPropagation"]
METHODS = {
    "auto": None,
    "exact": lgm.exact(limit=2**26),
    "lbp": lgm.lbp(50, "sweep", damping=0.1, tolerance=1e-3),
}


def sample(folder: Path, name: str, rows: int, asked: int, kinds: list[str]) -> None:
    """Evidence, and the answers and times of pyAgrum on the first `asked` rows."""
    import pyagrum

    network = read_bif(folder / f"{name}.bif.gz")
    plain = folder / f"{name}.bif"
    plain.write_bytes(gzip.decompress((folder / f"{name}.bif.gz").read_bytes()))
    theirs = pyagrum.loadBN(str(plain))
    pyagrum.initRandom(1)
    generator = pyagrum.BNDatabaseGenerator(theirs)
    generator.drawSamples(rows)
    frame = generator.to_pandas(with_labels=True)
    codes = network.codes({v: [str(state) for state in frame[v]] for v in network.variables})
    codes[np.random.default_rng(0).random(codes.shape) > OBSERVED] = -1
    arrays: dict[str, Any] = {"codes": codes}
    for kind in kinds if asked else ():
        answers, seconds = _ask(getattr(pyagrum, kind)(theirs), theirs, network, codes[:asked])
        arrays[f"{kind}_ms"] = 1000 * seconds / asked
        for v, p in enumerate(answers):
            arrays[f"{kind}_{v}"] = p
    np.savez_compressed(folder / f"{name}.npz", **arrays)


def _ask(engine: Any, theirs: Any, network: Network, codes: np.ndarray) -> tuple[list[np.ndarray], float]:
    names = list(network.variables.items())
    orders = [[list(theirs.variable(name).labels()).index(state) for state in states] for name, states in names]
    answers = [np.zeros((len(codes), len(states))) for _, states in names]
    begin = time.process_time()
    for row, labels in enumerate(codes.tolist()):
        engine.setEvidence({names[v][0]: names[v][1][label] for v, label in enumerate(labels) if label >= 0})
        engine.makeInference()
        for v, (name, _) in enumerate(names):
            answers[v][row] = engine.posterior(name).toarray()[orders[v]]
    return answers, time.process_time() - begin


def measure(folder: Path, name: str, rows: int, device: str, method: str) -> dict[str, Any]:
    begin = time.perf_counter()
    network = read_bif(folder / f"{name}.bif.gz")
    read = time.perf_counter() - begin
    arrays = np.load(folder / f"{name}.npz")
    codes = arrays["codes"]

    def ask() -> Any:
        return network.posteriors(codes[:rows], device=device, method=METHODS[method])

    begin = time.perf_counter()
    result = ask()
    first = time.perf_counter() - begin
    seconds = _seconds(ask)
    free = codes < 0
    record: dict[str, Any] = {"network": name, "variables": len(network.labels), "method": result.method, "rows": rows}
    record |= {"read_s": read, "first_s": first, "ms": 1000 * seconds / rows, "device": device}
    record |= {"exact": float(result.exact.float().mean()), "trusted": float(result.trusted.float().mean())}
    truth = [arrays[key] for key in (f"LazyPropagation_{v}" for v in range(len(network.labels))) if key in arrays]
    if truth:
        ours = [result[v].numpy() for v in network.variables]
        record |= {f"ours_{key}": x for key, x in _errors(ours, truth, free).items()}
        record |= {"pyagrum_exact_ms": float(arrays["LazyPropagation_ms"])}
    if "LoopyBeliefPropagation_ms" in arrays:
        loopy = [arrays[f"LoopyBeliefPropagation_{v}"] for v in range(len(network.labels))]
        record |= {f"pyagrum_lbp_{key}": x for key, x in _errors(loopy, truth, free).items()}
        record |= {"pyagrum_lbp_ms": float(arrays["LoopyBeliefPropagation_ms"])}
    return record


def _errors(ours: list[np.ndarray], truth: list[np.ndarray], free: np.ndarray) -> dict[str, float]:
    """Of the probabilities of variables that were not observed, each the largest over its states."""
    rows = min(len(ours[0]), len(truth[0]))
    errors = np.stack([np.abs(a[:rows] - b[:rows]).max(1) for a, b in zip(ours, truth, strict=True)], 1)[free[:rows]]
    return {"mean": float(errors.mean()), "worst": float(errors.max()), "above_0.05": float((errors > 0.05).mean())}


def _seconds(ask: Callable[[], object]) -> float:
    begin = time.process_time()
    ask()
    return time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=["sample", "run"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--asked", type=int, default=100, help="rows that pyAgrum answers")
    parser.add_argument("--exact-only", action="store_true", help="do not ask pyAgrum for loopy propagation")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--method", choices=METHODS, default="auto")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.do == "sample":
        for name in options.names:
            sample(options.folder, name, options.rows, options.asked, KINDS[: 1 if options.exact_only else 2])
        return
    torch.set_num_threads(1)
    records = []
    for name in options.names:
        records.append(measure(options.folder, name, options.rows, options.device, options.method))
        print(json.dumps(records[-1]))
    if options.out is not None:
        gpu = torch.cuda.get_device_name() if options.device == "cuda" else None
        machine = {"cpu": platform.machine(), "threads": 1, "gpu": gpu, "torch": torch.__version__}
        known = json.loads(options.out.read_text())["records"] if options.out.exists() else []
        options.out.write_text(json.dumps({"machine": machine, "records": known + records}, indent=1) + "\n")


if __name__ == "__main__":
    main()
