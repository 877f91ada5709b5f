"""`python -m experiments.paper WHAT...`: the paper's tables, figures and the report, from a checkout."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from experiments.paper.tables import Ways
from torchlgm.cli.config import Device
from torchlgm.cli.entry import Stopped, enter

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _examples(*lines: str) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  python -m experiments.paper {line}" for line in lines)


def _option(
    help: str, default: object = None, *names: str, metavar: str | None = None, min: float | None = None
) -> Any:
    """An option that is None unless it is given; `default` is what that means."""
    shown = help if default is None else f"{help} [default: {default}]"
    return typer.Option(*names, help=shown, metavar=metavar, show_default=False, min=min)


Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback if something goes wrong.")]


@app.command(
    epilog=_examples(
        "table2 --quick",
        "mpcompare --cells SeqTRW/Local --column ours --seeds 1",
        "all --data data --minutes 9",
        "report > docs/reproduction.md",
    )
)
def reproduce(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WHAT...",
            help="table1 to table8 or their LaTeX labels, all, figures, questions, report. [default: all]",
            show_default=False,
        ),
    ] = None,
    column: Annotated[Ways, typer.Option(help="Train as the paper says, in our own way, or both.")] = Ways.BOTH,
    cells: Annotated[
        str, typer.Option(metavar="PATTERN", help="Only cells whose name, table/row/column, has this in it.")
    ] = "*",
    seeds: Annotated[
        int | None,
        _option("Seeds of a cell, at most.", "3, for some tables 5; with --quick 1", metavar="NUMBER", min=1),
    ] = None,
    epochs: Annotated[int | None, _option("A cap on the epochs of a training.", metavar="NUMBER", min=1)] = None,
    minutes: Annotated[
        float | None, _option("Leave after so many minutes; the same command goes on later.", metavar="NUMBER", min=0.0)
    ] = None,
    workers: Annotated[
        int | None,
        _option(
            "Trainings at the same time, at most 32 on a GPU.",
            "24 on a GPU, 16 for questions, else 1",
            metavar="NUMBER",
            min=1,
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few steps on a few images, to see that it runs.")] = False,
    data: Annotated[str | None, _option("Where the data lies, or is downloaded to.", metavar="FOLDER")] = None,
    out: Annotated[
        Path | None,
        _option("Where results go.", "experiments/paper/results; with --quick nowhere", metavar="FOLDER"),
    ] = None,
    device: Annotated[Device, typer.Option(help="Where to compute; auto prefers CUDA.")] = Device.AUTO,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Train the cells of the paper's tables, draw its figures, and report. What is done is not done again."""
    from experiments.paper import command

    options = {"seeds": seeds, "epochs": epochs, "minutes": minutes, "workers": workers, "quick": quick}
    try:
        command.reproduce(what or [], column, cells, out, json, **options, data=data, device=device)
    except KeyboardInterrupt as error:
        raise Stopped(str(error)) from error


if __name__ == "__main__":
    sys.exit(enter(app, sys.argv[1:]))
