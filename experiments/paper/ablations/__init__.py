"""What the paper leaves open, answered by small experiments: for each one JSON file, and a table of the report."""

import threading
from collections.abc import Callable, Sequence
from functools import partial

from experiments.paper.ablations import full_size, orders, race, silhouettes, small_size, stopping
from experiments.paper.ablations.cases import Ablation, Bench, Case, Row
from experiments.paper.options import Options
from experiments.paper.runner import machine
from experiments.paper.sources import Sources
from experiments.paper.store import Content, Store
from experiments.pool import Budget, TimeUp, run_all
from torchlgm.errors import DataError

_ALL = (
    Ablation("gradient", small_size.gradients, small_size.gradients_summary),
    Ablation("training", small_size.training, small_size.training_summary, small_size.training_shown),
    Ablation("orders", orders.orders, orders.orders_summary, orders.orders_shown, heavy=True),
    Ablation("patience", stopping.patience, lambda rows: "", heavy=True),  # the report judges its rows
    Ablation("soft-clamping", small_size.soft_clamping, small_size.soft_clamping_summary),
    Ablation("silhouettes", silhouettes.silhouettes, silhouettes.silhouettes_summary),
    Ablation("iterations", full_size.iterations, full_size.iterations_summary, heavy=True),
    Ablation("missing-starts", full_size.starts, full_size.starts_summary, full_size.starts_shown, True),
    Ablation("quantised", full_size.quantised, full_size.quantised_summary, full_size.quantised_shown, True),
    *(Ablation(f"race-{name}", partial(race.race, name), race.summary, race.shown, True) for name in race.DATA),
    Ablation("calibration", full_size.calibration, full_size.calibration_summary, full_size.calibration_shown, True),
)
ABLATIONS = {ablation.name: ablation for ablation in _ALL}


def run(names: Sequence[str], options: Options, log: Callable[[str], None]) -> None:
    """Make the rows that are missing of the ablations named; without names, of all that this machine can well run."""
    if unknown := [name for name in names if name not in ABLATIONS]:
        raise DataError(f"{unknown[0]!r} is no ablation; expected one of {', '.join(ABLATIONS)}")
    budget, sources = Budget(options.minutes, options.began), Sources(options.data, options.torch_device)
    for name in names or ABLATIONS:
        if ABLATIONS[name].heavy and options.torch_device.type == "cpu" and not names and not options.quick:
            log(f"{name}: takes long without a GPU; name it to run it")
            continue
        bench = Bench(name, options, budget, sources)
        cases, left = [], 0
        while not left and len(known := list(ABLATIONS[name].cases(bench))) > len(
            cases
        ):  # some wait for rows of others
            cases, left = known, _run_cases(ABLATIONS[name], known, bench, log)
        done = f"{left} of {len(cases)} parts are left; {options.to_continue}" if left else "done"
        log(f"{name}: {done}, in {bench.store.ablation_file(name)}")
    if options.quick:
        log("Measured with a few steps on a few images: this answers nothing.")


def _run_cases(ablation: Ablation, cases: Sequence[Case], bench: Bench, log: Callable[[str], None]) -> int:
    """Make those that are not done, as many as there is time for; how many are left."""
    name, store, options, lock = ablation.name, bench.store, bench.options, threading.Lock()
    rows = rows_of(store, name)
    todo = [case for case in cases if case.fits(options.cells) and not case.is_done(rows)]
    for more in filter(None, (case.surplus(rows) for case in todo)):
        had = " and ".join(f"{count} {what}" for what, count in more.items())
        path = store.ablation_file(name)
        raise DataError(f"{path}: rows with {had} would be lost; ask for as many, or delete it")

    def make(case: Case) -> None:
        try:
            made = case.rows()
        except TimeUp:
            return
        with lock:
            store.update_ablation(name, lambda content: _merged(content, case, made, cases, options))
            for row in made:
                log("  " + ", ".join(f"{key} {str(value)[:40]}" for key, value in row.items()))

    try:
        run_all(make, todo, options.most_workers if ablation.heavy else 1, options.torch_device, bench.budget)
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(f"stopped; parts are left; {options.to_continue}") from error
    rows = rows_of(store, name)
    left = sum(not case.is_done(rows) for case in cases)
    if not left and not options.quick:
        store.state("ablations", name).remove()
    return left


def _merged(content: Content, case: Case, made: Sequence[Row], cases: Sequence[Case], options: Options) -> Content:
    """With the rows of a case made anew, in the order of the cases."""
    rows = [row for other in cases for row in (made if other is case else other.own(content["rows"]))]
    machines = {machine(options.torch_device), *content.get("machine", "").split("; ")} - {""}
    left = sum(not other.is_done(rows) for other in cases)
    return {"rows": rows, "machine": "; ".join(sorted(machines))} | ({"left": left} if left else {})


def rows_of(store: Store, name: str) -> list[Row]:
    """The rows of an ablation that are known."""
    return store.ablation(name)["rows"]
