"""All rows of the table of benchmarks, measured in one run on one GPU; with --device cpu, those that a CPU can do.

Answers are compared first; only then is anything timed.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # where JAX and PyTorch share a device

import torch
from common import fresh, machine, save, table
from entries import Setting, Skipped
from races import Numbers, Task, ours
from subjects import KINDS, METHOD, ONE_SWEEP, Incorrect, Training, images, lgm_predictor
from summary import summary

from torchlgm.learn.ensemble import answer_of

ENTRIES = ("first", "train", "sweep", "floor", "memory", "ensemble", "serving", "growth", "profiled", "race")
PACKAGES = ("torch", "triton", "jax", "pgmax", "numpy")
COMPILERS = 8  # processes that compile kernels ahead


def measured(name: str, setting: Setting) -> dict[str, Any]:
    """The result of an entry, or why there is none."""
    entry = importlib.import_module(f"entries.{name}")
    start = time.perf_counter()
    try:
        result = entry.run(setting)
    except Skipped as reason:
        result = {"skipped": str(reason)}
    except Incorrect as reason:
        result = {"incorrect": str(reason)}
    except Exception as error:  # the other entries are still worth having
        traceback.print_exc()
        result = {"failed": f"{type(error).__name__}: {error}"[:500]}
    fresh(setting.device)
    return {"what": entry.__doc__.strip().splitlines()[0], **result, "seconds": time.perf_counter() - start}


def show(name: str, result: dict[str, Any]) -> None:
    print(f"\n{name}: {result['what']} ({result['seconds']:.0f} s)", flush=True)
    for word in ("skipped", "incorrect", "failed"):
        if word in result:
            print(f"{word}: {result[word]}", flush=True)
    if "rows" in result:
        print(table([{k: v for k, v in row.items() if not isinstance(v, list)} for row in result["rows"]]), flush=True)


def compile_ahead(entries: Sequence[str], setting: Setting) -> float:
    """Fill Triton's folder of kernels by several processes at once, since nothing of that is timed; seconds."""
    start = time.perf_counter()
    every = [f"{kind} {batch}" for batch in (4096, 256, 20) for kind in KINDS]
    points = range(len(list(_growth().points(setting))))
    jobs = {
        "train": [f"train {one}" for one in every],
        "sweep": [f"sweep {one}" for one in every],
        "growth": [f"growth {i}" for i in points],
        "serving": [f"serve {kind}" for kind in KINDS],
        "ensemble": [f"ensemble {i}" for i in range(len(_ensemble().CASES))],
        "race": ["race"],
    }
    jobs |= dict.fromkeys(("floor", "memory", "profiled"), jobs["train"])
    wanted = list(dict.fromkeys(job for name in entries for job in jobs.get(name, [])))
    command = [sys.executable, __file__, "--device", setting.device.type, "--compile"]
    running = [subprocess.Popen([*command, *wanted[i::COMPILERS]]) for i in range(COMPILERS)]
    for process in running:
        process.wait()
    return time.perf_counter() - start


def compile_job(job: str, setting: Setting) -> None:
    what, *rest = job.split()
    device = setting.device
    if what in ("train", "sweep"):
        work, batch = lgm_predictor(rest[0], METHOD if what == "train" else ONE_SWEEP), int(rest[1])
        Training(work, images(batch, device), batch, device, capture=False)()
    elif what == "growth":
        point = list(_growth().points(setting))[int(rest[0])]
        work = lgm_predictor(point.graph, point.method)
        Training(work, images(point.batch, device), point.batch, device, capture=False)()
    elif what == "race":
        task = Task("", 784, 100, 2, True, None, 1000)
        ours(task, Numbers.of(task), device).compute()
    elif what == "ensemble":
        works = [lgm_predictor(*_ensemble().CASES[int(rest[0])], seed=seed) for seed in range(_ensemble().MODELS)]
        Training(_ensemble().together(works), images(20, device), 20, device, capture=False)()
    else:
        serving = importlib.import_module("entries.serving")
        for method in serving.METHODS.values():
            work = lgm_predictor(rest[0], method)
            work.to(device)
            for batch in (1, serving.LARGE):
                with torch.no_grad():
                    answer_of(work, images(batch, device)[0])
    fresh(device)


def _growth() -> Any:
    return importlib.import_module("entries.growth")


def _ensemble() -> Any:
    return importlib.import_module("entries.ensemble")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the results to this file, entry by entry")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that everything runs")
    parser.add_argument("--only", nargs="*", choices=ENTRIES, default=ENTRIES, metavar="ENTRY", help=", ".join(ENTRIES))
    parser.add_argument("--first-step", nargs=2, metavar=("KIND", "BATCH"), help=argparse.SUPPRESS)
    parser.add_argument("--compile", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    kind = "cuda" if options.device == "auto" and torch.cuda.is_available() else options.device
    setting = Setting(torch.device("cpu" if kind == "auto" else kind), options.quick)
    if options.first_step:
        name, batch = options.first_step
        print(importlib.import_module("entries.first").measure(name, int(batch), setting.device))
        return
    if options.compile is not None:
        for job in options.compile:
            try:
                compile_job(job, setting)
            except Exception as error:  # the entry itself will say more
                print(f"{job}: {error}", flush=True)
        return
    about = {**machine(*PACKAGES), "device": setting.device.type, "quick": setting.quick}
    print(about)
    save(options.json, "machine", about)
    results: dict[str, Any] = {}
    for name in options.only:
        if name != "first" and setting.cuda and "compiling" not in results and not setting.quick:
            results["compiling"] = compile_ahead(options.only, setting)
            print(f"\ncompiled kernels ahead in {results['compiling']:.0f} s", flush=True)
        results[name] = measured(name, setting)
        show(name, results[name])
        save(options.json, name, results[name])
    print("\n" + table(summary(results)))


if __name__ == "__main__":
    main()
