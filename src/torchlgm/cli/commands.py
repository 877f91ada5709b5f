"""Each command of `torchlgm`: do it, then print what a person, or with `json` a machine, wants to read."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torchlgm.cli import report
from torchlgm.cli.bench import bench as run_bench
from torchlgm.cli.complete import complete as complete_samples
from torchlgm.cli.config import Config, ImageForm, as_option, parse_range, parse_shares
from torchlgm.cli.console import Interrupted, print_line
from torchlgm.cli.describe import describe_data, describe_run, draw_graph, paper_graph
from torchlgm.cli.evaluate import evaluate as evaluate_run
from torchlgm.cli.explain import explain as explain_row
from torchlgm.cli.export import export as export_run
from torchlgm.cli.io import as_json, write_text
from torchlgm.cli.listing import list_runs
from torchlgm.cli.play import play as serve
from torchlgm.cli.predict import as_text, kind_of
from torchlgm.cli.predict import predict as predict_samples
from torchlgm.cli.pretrained import find_model
from torchlgm.cli.runs import Run
from torchlgm.cli.streaming import KINDS, predict_table
from torchlgm.cli.table_training import train_table
from torchlgm.cli.train import resume as resume_training
from torchlgm.cli.train import train as start_training
from torchlgm.data import is_table
from torchlgm.errors import DataError


def train(given: dict[str, Any], out: Path | None, resume: Path | None, config: Path | None, json: bool) -> None:
    extra = [*given, *[name for name, value in {"out": out, "config": config}.items() if value]]
    try:
        run = _start(given, out, config) if resume is None else _go_on(resume, extra)
    except KeyboardInterrupt as error:
        raise Interrupted(str(error)) from error
    if run is None:  # of several processes, the first one writes
        return
    if json:
        print(as_json({"folder": str(run.folder), "config": asdict(run.config), "metrics": run.metrics}))
    else:
        report.print_run(run)


def _start(given: dict[str, Any], out: Path | None, file: Path | None) -> Run | None:
    if "visible" in given:
        given["visible"] = parse_range(given["visible"])
    given = Config.read_options(file) | given if file else given
    config = Config.from_dict(given, str(file)) if file else Config(**given)
    if not is_table(config.data):
        return start_training(config, out, print_line)
    return train_table(config, out, print_line)


def _go_on(run: Path, extra: list[str]) -> Run | None:
    if extra:
        options = ", ".join("DATA" if name == "data" else as_option(name) for name in extra)
        raise DataError(f"--resume takes everything from the run; leave out {options}")
    return resume_training(run, print_line)


def evaluate(
    run: Path,
    data: str | None,
    visible: str,
    part: str | None,
    data_folder: str | None,
    target: str | None,
    missing_value: float | None,
    json: bool,
) -> None:
    done = evaluate_run(run, data, parse_shares(visible), part, data_folder, target, missing_value)
    if json:
        print(as_json({"run": str(run), "data": data, **done._asdict()}))
    else:
        part = "all" if done.part == "all" else f"the {done.part} part"
        where = data or "its own data"
        report.print_table(f"{run} on {part} of {where}: {done.samples:,} samples", {"LGM": done.rows})


def predict(run: Path, file: Path, out: Path | None, missing_value: float | None, form: ImageForm, json: bool) -> None:
    kind = kind_of(out) if out else "json" if json else "csv"
    if out is not None and kind != "json" and file.suffix.lower() in KINDS and (found := find_model(run)).is_table:
        count = predict_table(found, file, out, missing_value)
        print_line(f"Probabilities of {count:,} samples are in {out}.")
        return
    if kind == "parquet":
        raise DataError(f"{out}: .parquet is for predictions of a table, .csv, .tsv or .parquet; use .csv or .json")
    rows = predict_samples(run, file, missing_value, form)
    if out is None and kind == "csv" and sys.stdout.isatty():
        report.print_predictions(rows)
        return
    if out is None:
        print(as_text(rows, kind), end="")
        return
    write_text(out, as_text(rows, kind))
    print_line(f"Probabilities of {len(rows):,} samples are in {out}.")


def complete(run: Path, file: Path, out: Path, missing_value: float | None, form: ImageForm, json: bool) -> None:
    done = complete_samples(run, file, out, missing_value, form)
    if json:
        print(as_json(done))
    else:
        print(f"Filled in {done['missing']:,} missing values of {done['samples']:,} samples; they are in {out}/.")


def explain(
    run: Path,
    row: str,
    file: Path | None,
    label: str | None,
    out: Path | None,
    missing_value: float | None,
    json: bool,
) -> None:
    done = explain_row(run, row, file, label, out, missing_value)
    print(as_json(done.facts) if json else done.text)
    if out is not None:
        print_line(f"Its picture is in {out}.")


def export(run: Path, to: Path, json: bool) -> None:
    done = export_run(run, to)
    if json:
        print(as_json(done))
        return
    if to.suffix == "":
        print(f"The playground is in {done['file']}/; put it on any web server, or: python -m http.server -d {to}")
    print(f"{done['file']}: {done['bytes']:,} bytes; its probabilities differ by {done['difference']:.1e} at most.")
    if "shape" not in done:
        return
    shape = ", ".join(["batch", *map(str, done["shape"])])
    print(f"  x      ({shape}) {done['values']}; values where seen is False are ignored")
    print(f"  seen   ({shape}) boolean, True = seen")
    print(f"  probs  (batch, {len(done['classes'])}) of the classes {', '.join(done['classes'])}")


def play(run: Path | None, port: int, browser: bool) -> None:
    serve(run, port, browser, print_line)


def show(run: Path | None, graph: str | None, out: Path | None, json: bool) -> None:
    if (run is None) == (graph is None):
        raise DataError("show takes a run folder or --graph dense, conv or local; give one of the two")
    if run is not None:
        if out is not None:
            raise DataError("--out is for --graph; the pictures of a run are in its folder")
        facts = describe_run(run)
        print(as_json(facts)) if json else report.print_facts(facts)
    elif graph is not None:
        drawn = paper_graph(graph)
        if out is not None:
            draw_graph(drawn, out)
            print_line(f"Its picture is in {out}.")
        print(drawn.to_json() if json else drawn.summary())


def runs(folder: Path, json: bool) -> None:
    rows = list_runs(folder)
    print(as_json(rows)) if json else report.print_runs(folder, rows)


def data(
    name: str | None,
    folder: str | None,
    target: str | None,
    drop: Sequence[str],
    header: bool,
    missing_value: float | None,
    json: bool,
) -> None:
    facts = describe_data(name, folder, target, drop, header, missing_value)
    print(as_json(facts)) if json else report.print_data(facts)


def bench(device: str, batch_size: int, method: str, schedule: str, json: bool) -> None:
    print_line("Measuring ...")
    machine, rows = run_bench(device, batch_size, method, schedule)
    if json:
        print(as_json({"machine": machine, "rows": [asdict(row) | {"ratio": row.ratio} for row in rows]}))
    else:
        report.print_bench(machine, rows)
