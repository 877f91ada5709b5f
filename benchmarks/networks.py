"""Posteriors of Bayesian networks, ours beside those of pyAgrum and pgmpy: time for a row, and error.

    python benchmarks/networks.py sample FOLDER             # needs the rivals; writes NAME.npz beside NAME.bif.gz
    python benchmarks/networks.py run FOLDER [NAMES] [--device cuda] [--method lbp] [--gradients] [--out results.json]
    python benchmarks/networks.py table results.json [h200.json]       # the table of docs/networks.md

FOLDER has the networks as `NAME.bif.gz`; those of bnlearn are in the wheel of pgmpy 0.1.26. Rows are drawn from the
network, and 30 % of their entries are observed. The rivals answer the first 100 of them, or as many as they can within
`--seconds`; all posteriors of a row are asked for. Times are of the processor, on one core; on a GPU they are of the
clock, and so they are where there are several threads; `solver` says whether it was the GPU (`ByTree`) or the processor
beside it (`ByRow`).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import machine, version_of

import torchlgm as lgm
from torchlgm.networks import Network, read_bif
from torchlgm.networks.posteriors import solver_for

OBSERVED = 0.3
KINDS = {"exact": "LazyPropagation", "loopy": "LoopyBeliefPropagation"}  # of pyAgrum
METHODS = {
    "auto": None,
    "exact": lgm.exact(limit=2**26),
    "lbp": lgm.lbp(50, "sweep", damping=0.1, tolerance=1e-3),
}


def sample(folder: Path, name: str, rows: int, asked: int, seconds: float) -> None:
    """Evidence, and the answers and times of the rivals on its first rows."""
    network = read_bif(folder / f"{name}.bif.gz")
    codes = network.sample(rows, seed=1)
    codes[np.random.default_rng(0).random(codes.shape) > OBSERVED] = -1
    arrays: dict[str, Any] = {"codes": codes.astype(np.int8)}
    for kind, engine in KINDS.items():
        answers, arrays[f"{kind}_ms"] = _asked(_pyagrum(network, engine), codes[:asked], seconds)
        arrays[kind] = answers.astype(np.float64 if kind == "exact" else np.float32)
    answers, arrays["pgmpy_ms"] = _asked(_pgmpy(network), codes[: asked // 10], seconds)
    both = min(len(answers), len(arrays["exact"]))
    arrays["pgmpy_worst"] = np.abs(answers[:both] - arrays["exact"][:both]).max() if both else np.nan
    np.savez_compressed(folder / f"{name}.npz", **arrays)
    print(name, {key: round(float(x), 3) for key, x in arrays.items() if np.ndim(x) == 0}, flush=True)


def _asked(ask: Callable[[list[int]], np.ndarray], codes: np.ndarray, seconds: float) -> tuple[np.ndarray, float]:
    """Answers `(rows, states of all variables)` of as many rows as are done in time, and milliseconds for one."""
    answers = []
    begin = time.process_time()
    try:
        with _alarm(seconds):
            for row in codes.tolist():
                answers.append(ask(row))
                if time.process_time() - begin > seconds / 3:
                    break
    except (TimeoutError, MemoryError, ValueError) as error:
        print(f"{len(answers)} rows, then {type(error).__name__}: {str(error)[:100]}", flush=True)
    spent = time.process_time() - begin
    return (np.stack(answers), 1000 * spent / len(answers)) if answers else (np.zeros((0, 0)), np.nan)


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _pyagrum(network: Network, kind: str) -> Callable[[list[int]], np.ndarray]:
    import pyagrum

    theirs = pyagrum.BayesNet()
    names = list(network.variables)
    for variable, states in network.variables.items():
        theirs.add(pyagrum.LabelizedVariable(variable, variable, list(states)))
    for (scope, _), child in zip(network.factors, network.children, strict=True):
        for v in scope:
            if v != child:
                theirs.addArc(names[v], names[child])
    for (scope, energies), child in zip(network.factors, network.children, strict=True):
        axes = [names.index(variable) for variable in theirs.cpt(names[child]).names]  # the first varies fastest
        order = [scope.index(v) for v in axes[::-1]]
        theirs.cpt(names[child]).fillWith(np.exp(-energies).transpose(order).ravel().tolist())
    engine = getattr(pyagrum, kind)(theirs)
    if hasattr(engine, "setNumberOfThreads"):
        engine.setNumberOfThreads(1)  # several wait for each other, which takes time of processors too

    def ask(row: list[int]) -> np.ndarray:
        engine.setEvidence({names[v]: network.variables[names[v]][label] for v, label in enumerate(row) if label >= 0})
        engine.makeInference()
        return np.concatenate([engine.posterior(name).toarray() for name in names])

    return ask


def _pgmpy(network: Network) -> Callable[[list[int]], np.ndarray]:
    from pgmpy.factors.discrete import TabularCPD
    from pgmpy.inference import VariableElimination
    from pgmpy.models import DiscreteBayesianNetwork

    names = list(network.variables)
    model = DiscreteBayesianNetwork()
    model.add_nodes_from(names)
    for (scope, energies), child in zip(network.factors, network.children, strict=True):
        above = [v for v in scope if v != child]
        model.add_edges_from([(names[v], names[child]) for v in above])
        probs = np.moveaxis(np.exp(-energies), scope.index(child), 0).reshape(network.labels[child], -1)
        states = {names[v]: list(network.variables[names[v]]) for v in scope}
        shape = [network.labels[v] for v in above]
        model.add_cpds(
            TabularCPD(
                names[child], network.labels[child], probs, [names[v] for v in above] or None, shape or None, states
            )
        )
    engine = VariableElimination(model)

    def ask(row: list[int]) -> np.ndarray:
        evidence = {names[v]: network.variables[names[v]][label] for v, label in enumerate(row) if label >= 0}
        answers = []
        for v, label in enumerate(row):
            if label >= 0:
                answers.append(np.eye(network.labels[v])[label])
                continue
            found = engine.query([names[v]], evidence, show_progress=False)
            order = [found.state_names[names[v]].index(state) for state in network.variables[names[v]]]
            answers.append(found.values[order])
        return np.concatenate(answers)

    return ask


def measure(folder: Path, name: str, options: argparse.Namespace) -> dict[str, Any]:
    begin = time.perf_counter()
    network = read_bif(folder / f"{name}.bif.gz")
    read = time.perf_counter() - begin
    arrays = np.load(folder / f"{name}.npz")
    codes = arrays["codes"].astype(np.int64)[: options.rows]
    if len(codes) < options.rows:
        more = network.sample(options.rows - len(codes), seed=2)
        more[np.random.default_rng(2).random(more.shape) > OBSERVED] = -1
        codes = np.concatenate([codes, more])
    device, method = options.device, METHODS[options.method]
    one_core = device == "cpu" and torch.get_num_threads() == 1
    clock = time.process_time if one_core else time.perf_counter
    begin = time.perf_counter()
    network.posteriors(codes[:1], device=device, method=method)
    first = time.perf_counter() - begin
    result, ms = _timed(lambda rows: network.posteriors(rows, device=device, method=method), codes, options, clock)
    record: dict[str, Any] = {"network": name, "variables": len(network.labels), "method": result.method}
    record |= {"rows": len(result.exact), "read_s": read, "first_s": first, "ms": ms, "device": device}
    everything = [(v,) for v in range(len(network.labels))]
    record |= {"asked": options.method}
    record["solver"] = type(solver_for(network, everything, method, torch.device(device))).__name__
    record |= {"exact": float(result.exact.float().mean()), "trusted": float(result.trusted.float().mean())}
    truth, ours = arrays["exact"], torch.cat(list(result.values()), 1).numpy()
    if device != "cpu":
        beside = network.posteriors(codes[: min(256, len(ours))])
        apart = np.abs(torch.cat(list(beside.values()), 1).numpy() - ours[: len(beside.exact)])
        record["off_processor"] = float(apart.max())  # of the answers of the processor, which are exact
    if len(truth):
        record |= {f"ours_{key}": x for key, x in _errors(network, ours, truth, codes).items()}
        record |= {"pyagrum_rows": len(truth), "pyagrum_exact_ms": float(arrays["exact_ms"])}
        if one_core and version_of("pyagrum"):  # beside ours, since a busy machine is slower
            asked = codes[: len(truth)]
            record["pyagrum_exact_ms"] = _asked(_pyagrum(network, KINDS["exact"]), asked, options.seconds)[1]
    if len(truth) and len(arrays["loopy"]):
        record |= {f"pyagrum_lbp_{key}": x for key, x in _errors(network, arrays["loopy"], truth, codes).items()}
        record |= {"pyagrum_lbp_ms": float(arrays["loopy_ms"])}
    if np.isfinite(arrays["pgmpy_ms"]):
        record |= {"pgmpy_ms": float(arrays["pgmpy_ms"]), "pgmpy_worst": float(arrays["pgmpy_worst"])}
    if options.gradients:
        record["gradient_ms"] = _timed(lambda rows: _gradients(network, rows, device), codes, options, clock)[1]
    return record


def _timed(
    ask: Callable[[np.ndarray], Any], codes: np.ndarray, options: argparse.Namespace, clock: Callable[[], float]
) -> tuple[Any, float]:
    """What is answered for as many rows as are done in time, and milliseconds for a row."""
    count, ms, result = 0, 0.0, None
    while count < len(codes):
        more = min(len(codes), 8 * count or 64, int(1000 * options.seconds / ms) if ms else 64)
        if more <= count:
            break
        count = more
        for _ in range(1 if options.device == "cpu" else 2):  # on a GPU again, with memory and kernels that are there
            begin = clock()
            result = ask(codes[:count])
            ms = 1000 * (clock() - begin) / count
    return result, ms


def _gradients(network: Network, codes: np.ndarray, device: str) -> list[torch.Tensor | None]:
    """Of a loss on the posteriors of all variables, in the energies of all tables."""
    energies = [torch.from_numpy(e).to(device).requires_grad_() for _, e in network.factors]
    found = network.posteriors(codes, energies=energies)
    torch.stack([p.square().sum() for p in found.values()]).sum().backward()
    return [e.grad for e in energies]


def _errors(network: Network, ours: np.ndarray, truth: np.ndarray, codes: np.ndarray) -> dict[str, float]:
    """Of the probabilities of variables that were not observed, each the largest over its states."""
    rows = min(len(ours), len(truth), len(codes))
    starts = np.concatenate([[0], np.cumsum(network.labels)[:-1]])
    errors = np.maximum.reduceat(np.abs(ours[:rows] - truth[:rows]), starts, 1)[codes[:rows] < 0]
    return {"mean": float(errors.mean()), "worst": float(errors.max()), "above_0.05": float((errors > 0.05).mean())}


def table(cpu: list[dict[str, Any]], gpu: list[dict[str, Any]]) -> str:
    """Markdown, the networks with the most variables last."""
    at = {record["network"]: record for record in gpu}
    titles = ["network", "variables", "ours", "pyAgrum", "ratio", "its loopy", "its error", "pgmpy"] + ["H200"] * bool(
        at
    )
    lines = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    for r in sorted(cpu, key=lambda r: (r["variables"], r["network"])):
        loopy = "pyagrum_lbp_ms" in r
        cells = [
            r["network"],
            f"{r['variables']:,}",
            _figures(r["ms"]),
            _figures(r["pyagrum_exact_ms"]) if "pyagrum_exact_ms" in r else "",
            f"{r['pyagrum_exact_ms'] / r['ms']:.0f}" if "pyagrum_exact_ms" in r else "",
            _figures(r["pyagrum_lbp_ms"]) if loopy else "",
            f"{r['pyagrum_lbp_mean']:.3f}, {r['pyagrum_lbp_worst']:.2f}" if loopy else "",
            _figures(r["pgmpy_ms"]) if "pgmpy_ms" in r else "",
        ]
        if at:
            cells.append(_figures(at[r["network"]]["ms"]) if r["network"] in at else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _figures(ms: float) -> str:
    """Two or three figures."""
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}" if ms >= 1 else f"{ms:.2g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=["sample", "run", "table"])
    parser.add_argument("folder", type=Path, help="with networks; results where a table is asked for")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--asked", type=int, default=100, help="rows that rivals answer, at most")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each network, and each rival, at most")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=None, help="1, beside a GPU all")
    parser.add_argument("--method", choices=METHODS, default="auto")
    parser.add_argument("--gradients", action="store_true", help="time those of a loss on all posteriors too")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.do == "table":
        found = [json.loads(Path(path).read_text())["records"] for path in (options.folder, *options.names)]
        found = [[r for r in records if r.get("asked", "auto") == options.method] for records in found]
        print(table(found[0], found[1] if len(found) > 1 else []))
        return
    names = options.names or sorted(path.name.removesuffix(".bif.gz") for path in options.folder.glob("*.bif.gz"))
    if options.do == "sample":
        for name in names:
            sample(options.folder, name, options.rows, options.asked, options.seconds)
        return
    torch.set_num_threads(options.threads or (1 if options.device == "cpu" else os.cpu_count() or 1))
    for name in names:
        record = measure(options.folder, name, options)
        print(json.dumps(record), flush=True)
        if options.out is not None:
            known = json.loads(options.out.read_text())["records"] if options.out.exists() else []
            about = machine("torch", "pyagrum", "pgmpy") | {"threads": torch.get_num_threads()}
            this = name, options.method
            kept = [other for other in known if (other["network"], other.get("asked", "auto")) != this]
            options.out.write_text(json.dumps({"machine": about, "records": [*kept, record]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
