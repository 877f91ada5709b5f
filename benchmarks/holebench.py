"""HoleBench: how well classifiers do while more and more entries are missing.

    PYTHONPATH=src python benchmarks/holebench.py                   # tables that come with scikit-learn
    PYTHONPATH=src python benchmarks/holebench.py FOLDER            # every CSV file in FOLDER

The CSV files have a column `target`, the class; an empty field is missing. A file `kinds.json` in the folder may say
{"table": {"column": "cat"}} of numbers that are names. Text always is.

What has been measured is kept in --results, a line for each training: a run that was killed goes on where it was when
started again, and measures only what is lacking. In the end it writes a page with pictures.
"""

from __future__ import annotations

import argparse
import time
from datetime import date
from pathlib import Path

from common import machine
from holes.methods import METHODS
from holes.page import write_page
from holes.patterns import PATTERNS
from holes.record import Record
from holes.tables import names_in
from holes.trainings import FIGURES, WHERE, Plan, Training, cell, facts, measure
from joblib import Parallel, delayed, parallel_config

PACKAGES = ("torch", "scikit-learn", "xgboost", "xgboost-cpu", "lightgbm", "catboost", "numpy", "pandas")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="of CSV files; without it, scikit-learn's own tables")
    parser.add_argument("--tables", nargs="+", metavar="NAME", help="some of them")
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS), metavar="METHOD")
    parser.add_argument("--seeds", type=int, default=3, help="splits of each table (%(default)s)")
    parser.add_argument("--shares", type=percent, nargs="+", default=[0, 20, 40, 60, 80], help="missing, in %%")
    parser.add_argument("--patterns", nargs="+", choices=list(PATTERNS), default=list(PATTERNS))
    parser.add_argument("--where", nargs="+", choices=WHERE, default=list(WHERE), help="holes in test rows, or in both")
    parser.add_argument("--most-rows", type=int, metavar="N", help="of larger tables as many rows")
    parser.add_argument("--jobs", type=int, default=2, help="trainings at the same time, a core each (%(default)s)")
    parser.add_argument("--again", nargs="+", choices=list(METHODS), default=[], metavar="METHOD", help="measure anew")
    parser.add_argument("--results", type=Path, default=Path("runs/holebench.jsonl"), help="(%(default)s)")
    parser.add_argument("--page", type=Path, default=Path("runs/holebench.md"), help="(%(default)s)")
    parser.add_argument("--only-page", action="store_true", help="of what has been measured")
    options = parser.parse_args()
    record = Record(options.results)
    failed = 0
    if not options.only_page:
        plan = planned(options)
        with record.locked():
            failed = run(plan, options.folder, record, options.jobs, options.again)
    write_page(record, options.page)
    print(f"{options.page} is written from {options.results}")
    if failed:
        raise SystemExit(f"{failed} trainings failed; start again to try them again")


def percent(text: str) -> float:
    if not 0 <= float(text) < 100:
        raise argparse.ArgumentTypeError(f"expected 0 or more and less than 100, got {text}")
    return float(text)


def planned(options: argparse.Namespace) -> Plan:
    there = names_in(options.folder)
    if unknown := set(options.tables or ()) - set(there):
        raise SystemExit(f"--tables: there is no {', '.join(sorted(unknown))}, but {', '.join(there)}")
    names = tuple(name for name in there if not options.tables or name in options.tables)
    shares = tuple(share / 100 for share in options.shares)
    choices = (tuple(options.methods), options.seeds, shares, tuple(options.patterns), tuple(options.where))
    return Plan(names, *choices, most_rows=options.most_rows)


def run(plan: Plan, folder: Path | None, record: Record, jobs: int = 1, again: list[str] | None = None) -> int:
    """Measure what the record lacks; how many trainings failed."""
    if again:
        record.forget(again)
    for name in plan.names:
        record.describe(name, facts(plan, folder, name))
    todo = [t for t in plan.trainings() if not record.done(t, [cell(*test) for test in plan.tests(t.holes)])]
    if not todo:
        return 0
    record.begin({"day": date.today().isoformat(), "machine": machine(*PACKAGES), "figures": FIGURES})
    print(f"{len(todo)} trainings, {jobs} at a time", flush=True)
    failed, start = 0, time.monotonic()
    with parallel_config("loky", inner_max_num_threads=1):
        answers = Parallel(n_jobs=jobs, return_as="generator_unordered")(
            delayed(attempt)(plan, folder, training) for training in todo
        )
        for count, (training, result) in enumerate(answers, start=1):
            if isinstance(result, str):
                failed += 1
                print(f"failed: {training.key}: {result}", flush=True)
            else:
                record.add_training(training, result)
                took = f"{result['fit s']:.1f} s to fit"
                print(f"{count}/{len(todo)}, {time.monotonic() - start:.0f} s: {training.key}, {took}", flush=True)
    return failed


def attempt(plan: Plan, folder: Path | None, training: Training) -> tuple[Training, dict | str]:
    """The training's record, or what went wrong; the others go on."""
    try:
        return training, measure(plan, folder, training)
    except Exception as error:
        return training, f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
