"""`python -m experiments.paper`: train the paper's tables, run ablations, draw the figures, print the report."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.paper.tables import COLUMNS, TABLES, Ways
from torchlgm.cli.config import Device
from torchlgm.cli.entry import Stopped, enter
from torchlgm.errors import DataError

NAME = "python -m experiments.paper"
RESULTS = Path(__file__).parent / "results"

app = typer.Typer(
    help="The paper's tables and figures: train, run ablations, draw, report. What is done is not done again.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _option(help: str, metavar: str | None = None, min: float | None = None) -> Any:
    return typer.Option(help=help, metavar=metavar, show_default=False, min=min)


Seeds = Annotated[int | None, _option("Seeds, at most. [default: 3, for some tables 5; with --quick 1]", "NUMBER", 1)]
Epochs = Annotated[int | None, _option("A cap on the epochs of a training.", "NUMBER", 1)]
Minutes = Annotated[float | None, _option("Leave after so many minutes; the same command continues.", "NUMBER", 0.0)]
Workers = Annotated[
    int | None, _option("Trainings at once, at most 32 on a GPU. [default: 24 on a GPU, else 1]", "NUMBER", 1)
]
Quick = Annotated[bool, typer.Option("--quick", help="A few steps on a few images; keeps nothing.")]
DataFolder = Annotated[str | None, _option("Where the data is, or is downloaded to.", "FOLDER")]
Out = Annotated[Path | None, _option("Where results are kept. [default: experiments/paper/results]", "FOLDER")]
Where = Annotated[Device, typer.Option(help="Where to compute; auto prefers CUDA.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback if something goes wrong.")]


@app.command(epilog=f"\b\nExample:\n  {NAME} train mpcompare --cells SeqTRW/Local --column ours --seeds 1")
def train(
    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="TABLE...", help="table1 to table8, or their LaTeX labels. [default: all]"),
    ] = None,
    column: Annotated[Ways, typer.Option(help="Train as the paper says, in our own way, or both.")] = Ways.BOTH,
    cells: Annotated[
        str, typer.Option(metavar="PATTERN", help="Only cells whose name, table/row/column, ends or matches so.")
    ] = "*",
    seeds: Seeds = None,
    epochs: Epochs = None,
    minutes: Minutes = None,
    workers: Workers = None,
    quick: Quick = False,
    data: DataFolder = None,
    out: Out = None,
    device: Where = Device.AUTO,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")] = False,
    debug: Debug = False,
) -> None:
    """Train the cells of tables, and print them beside the paper's numbers."""
    from experiments.paper import jobs, model_cards
    from experiments.paper.cells import all_cells, find_table
    from experiments.paper.report.page import lines_of
    from experiments.paper.report.summary import summary
    from experiments.paper.train import Trainer

    chosen = list(dict.fromkeys(map(find_table, tables))) if tables else list(TABLES)
    ways = list(COLUMNS) if column is Ways.BOTH else [column]
    found = list(all_cells(chosen, ways, cells))
    if not found:
        other = any(all_cells(chosen, pattern=cells))
        hint = "only of the other; leave out --column" if other else "whose names are table/row/column"
        labels = ", ".join(table.label for table in chosen)
        raise DataError(f"--cells {cells}: fits no cell of {labels} in the column {column}, {hint}")
    with _folder(out, quick) as folder:
        options = jobs.Options(folder, data, device, workers, seeds or (1 if quick else None), epochs, minutes, quick)
        trainer = Trainer(options, _log)
        trainer.store.require_writable()
        if any(cell.seeds < (seeds or 0) for cell in found):
            _log(f"--seeds {seeds}: some cells have fewer seeds, {min(cell.seeds for cell in found)} at least")
        try:
            trainer.run(jobs.plan(found, options))
        finally:
            model_cards.write(trainer.store)
        if json:
            content = {"left": trainer.missing, "cells": [summary(cell, trainer.store) for cell in found]}
            print(dumps(content, indent=2, ensure_ascii=False))
            return
        print("\n".join(lines_of(found, trainer.store)))
        if quick:
            print("Measured with a few steps on a few images: this says nothing about the paper's tables.")


@app.command(epilog=f"\b\nExample:\n  {NAME} ablate gradient training")
def ablate(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="Ablations. [default: all]")] = None,
    seeds: Seeds = None,
    epochs: Epochs = None,
    minutes: Minutes = None,
    workers: Workers = None,
    quick: Quick = False,
    data: DataFolder = None,
    out: Out = None,
    device: Where = Device.AUTO,
    debug: Debug = False,
) -> None:
    """Answer what the paper leaves open with small experiments; large ones, without a GPU, only if named."""
    from experiments.paper import ablations, jobs
    from experiments.paper.store import Store

    with _folder(out, quick) as folder:
        Store(folder).require_writable()
        options = jobs.Options(folder, data, device, workers, seeds or (1 if quick else None), epochs, minutes, quick)
        ablations.run(names or [], options, _log)


@app.command()
def figures(data: DataFolder = None, out: Out = None, debug: Debug = False) -> None:
    """Draw the paper's figures, with models that tables 7 and 8 leave behind, into the folder `figures` of --out."""
    from experiments.paper import figures
    from experiments.paper.store import Store, plural

    store = Store(out or RESULTS)
    store.require_writable()
    if failed := figures.draw(store, data, _log):
        raise DataError(f"{plural(failed, 'figure')} could not be drawn; each line above says what one needs")


@app.command(epilog=f"\b\nExample:\n  {NAME} report > docs/reproduction.md")
def report(out: Out = None, debug: Debug = False) -> None:
    """Print the page of results, in Markdown."""
    from experiments.paper.report.page import page
    from experiments.paper.store import Store

    folder = out or RESULTS
    if not any(folder.glob("*/*.json")):
        raise DataError(f"{folder}: there are no results yet; train some tables, or name their folder by --out")
    print(page(Store(folder)), end="")


@contextmanager
def _folder(out: Path | None, quick: bool) -> Iterator[Path]:
    """Where results are kept: of quick runs nowhere for long."""
    if quick and out is not None:
        raise DataError("--quick keeps nothing, since its results mean nothing; leave out --out")
    with tempfile.TemporaryDirectory() as temporary:
        try:
            yield Path(temporary) if quick else out or RESULTS
        except KeyboardInterrupt as error:
            raise Stopped(str(error)) from error


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    def named(**options: Any) -> Any:
        return app(**options | {"prog_name": NAME})

    return enter(named, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
