"""The command line: words become calls of `torchlgm.cli.commands`, which is imported when it is needed."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from torchlgm import __version__
from torchlgm.cli import console
from torchlgm.cli.arguments import (
    DataFolder,
    Debug,
    Drop,
    Header,
    Invert,
    Json,
    MissingValue,
    Model,
    Quiet,
    Resize,
    RunFolder,
    RunMissingValue,
    RunTarget,
    SampleFile,
    Target,
)
from torchlgm.cli.config import Device, ImageForm, Kind, MethodName, ScheduleName
from torchlgm.cli.options import Grouped, option, takes_config

app = typer.Typer(
    name="torchlgm",
    help="Layered graphical models: classifiers that are probability models and cope with missing inputs.",
    epilog="Start with: torchlgm train",
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _examples(*lines: str) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  torchlgm {line}" for line in lines)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"torchlgm {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None: ...


@app.command(
    cls=Grouped,
    short_help="Train a model on images, arrays or a table.",
    epilog=_examples(
        "train",
        "train mnist --model local --epochs 5",
        "train table.csv --target species --drop id,date --seeds 5",
        "train --resume runs/digits-dense-1",
    ),
)
@takes_config
def train(
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="digits, mnist, fashion-mnist, kmnist, a table (.csv, .tsv, .parquet, .xlsx), a .npz file, or a "
            "folder of images by class or of idx files. [default: digits]",
            show_default=False,
        ),
    ] = None,
    options: Any = None,
    out: Annotated[
        Path | None, option("The run folder, which must be new.", "runs/DATA-MODEL-N", metavar="FOLDER")
    ] = None,
    resume: Annotated[
        Path | None, option("Continue a run that was stopped; takes no other option.", metavar="RUN")
    ] = None,
    config: Annotated[
        Path | None,
        option(
            "Read options from a file, such as the config.json of a run; the command line overrides it.", metavar="FILE"
        ),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Train a model, compare it with a neural network, and draw pictures. Without DATA, train on handwritten digits."""
    from torchlgm.cli import commands

    commands.train(options if data is None else {"data": data, **options}, out, resume, config, json)


@app.command(
    short_help="Measure accuracy and calibration by share of visible inputs.",
    epilog=_examples("evaluate runs/digits-dense-1 --visible 1,0.5,0.1", "evaluate runs/table-1 new.csv"),
)
def evaluate(
    run: RunFolder,
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help="Data other than that of the run.", show_default=False)
    ] = None,
    visible: Annotated[str, typer.Option(metavar="SHARES", help="Shares of inputs to show.")] = "1,0.7,0.3",
    part: Annotated[
        str | None,
        option(
            "test, train or all; data without a test part is split, one fifth for testing.",
            "test; all of other data without a test part",
        ),
    ] = None,
    target: RunTarget = None,
    missing_value: RunMissingValue = None,
    data_folder: DataFolder = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure accuracy, negative log-likelihood and calibration by share of visible inputs."""
    from torchlgm.cli import commands

    commands.evaluate(run, data, visible, part, data_folder, target, missing_value, json)


@app.command(
    short_help="Predict class probabilities for the samples in a file.",
    epilog=_examples("predict runs/digits-dense-1 scan.png", "predict runs/table-1 new.csv --out probs.csv"),
)
def predict(
    run: Model,
    file: SampleFile,
    out: Annotated[
        Path | None, option("A new .csv, .json or .parquet file to write to, instead of printing.", metavar="FILE")
    ] = None,
    missing_value: RunMissingValue = None,
    invert: Invert = False,
    resize: Resize = False,
    json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Predict class probabilities for the samples in FILE, shown as a table on a terminal and as CSV elsewhere."""
    from torchlgm.cli import commands

    commands.predict(run, file, out, missing_value, ImageForm(invert, resize), json)


@app.command(
    short_help="Fill in what is missing in the samples of a file.",
    epilog=_examples("complete runs/digits-dense-1 scans --out filled", "complete runs/table-1 gaps.csv --out filled"),
)
def complete(
    run: Model,
    file: SampleFile,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="A new folder for the results.", show_default=False)],
    missing_value: RunMissingValue = None,
    invert: Invert = False,
    resize: Resize = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Fill in what is missing in the samples of FILE with the values the model expects, as images or as a table."""
    from torchlgm.cli import commands

    commands.complete(run, file, out, missing_value, ImageForm(invert, resize), json)


@app.command(
    short_help="Explain the prediction for a row.",
    epilog=_examples("explain runs/table-1 17 --out why.png", "explain runs/digits-dense-1 scan.png scans"),
)
def explain(
    run: Model,
    row: Annotated[
        str,
        typer.Argument(
            metavar="ROW", help="A row number, counted from 0, or the name of an image.", show_default=False
        ),
    ],
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="A file as for predict. [default: the table of the run, or the test part of its data]",
            show_default=False,
        ),
    ] = None,
    label: Annotated[
        str | None, option("The class to explain.", "the most probable", "--class", metavar="CLASS")
    ] = None,
    out: Annotated[Path | None, option("A new .png, .pdf or .svg file for a picture of it.", metavar="FILE")] = None,
    missing_value: RunMissingValue = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Explain the prediction for a row: what each input adds to the log-odds of the class, in nats."""
    from torchlgm.cli import commands

    commands.explain(run, row, file, label, out, missing_value, json)


@app.command(
    short_help="Play with a model in the browser.",
    epilog=_examples("play", "play runs/digits-dense-1", "play runs/table-1 --no-browser"),
)
def play(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="RUN", help="A folder that `torchlgm train` made.", show_default=False),
    ] = None,
    port: Annotated[int, typer.Option(help="Port to listen on; 0 picks a free one.", min=0, max=65535)] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Whether to open a browser.")] = True,
    debug: Debug = False,
) -> None:
    """Play with a model in the browser: draw, hide, and watch what it believes. Without RUN, plays models of digits,
    clothes and wines.

    The page is served to this machine only, and everything is computed in the browser."""
    from torchlgm.cli import commands

    commands.play(run, port, browser)


@app.command(
    short_help="Export the model for ONNX, torch.export or the web.",
    epilog=_examples(
        "export runs/digits-dense-1 --to model.onnx",
        "export runs/table-1 --to model.pt2",
        "export runs/digits-dense-1 --to web",
    ),
)
def export(
    run: RunFolder,
    to: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="A new file to write: .onnx, .pt2 (torch.export) or .safetensors (for the playground); or a new "
            "folder for the playground itself.",
            show_default=False,
        ),
    ],
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a file that runs without torchlgm and maps inputs, with a mask of those observed, to class probabilities.

    It takes any batch size. Its answers are compared with those of the model before it is written."""
    from torchlgm.cli import commands

    commands.export(run, to, json)


@app.command(
    short_help="Show a run: graph, training, figures.",
    epilog=_examples("show runs/digits-dense-1", "show --graph local --out local.png"),
)
def show(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="RUN", help="A folder that `torchlgm train` made.", show_default=False),
    ] = None,
    graph: Annotated[Kind | None, option("Show the paper's architecture of this kind instead.")] = None,
    out: Annotated[Path | None, option("With --graph, where to draw it (.png, .pdf or .svg).", metavar="FILE")] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the graph of a run, how it was trained, and its figures."""
    from torchlgm.cli import commands

    commands.show(run, graph, out, json)


@app.command(short_help="List the runs in a folder.", epilog=_examples("runs", "runs results --json"))
def runs(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder that holds the runs.")] = Path("runs"),
    json: Json = False,
    debug: Debug = False,
) -> None:
    """List the runs in a folder with their accuracy, newest first."""
    from torchlgm.cli import commands

    commands.runs(folder, json)


@app.command(
    short_help="Load a data set and summarise it.",
    epilog=_examples("data", "data mnist --data-folder data", "data table.csv"),
)
def data(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="As for train; without it, the known names are listed.", show_default=False
        ),
    ] = None,
    target: Target = None,
    drop: Drop = None,
    header: Header = True,
    missing_value: MissingValue = None,
    data_folder: DataFolder = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Load a data set, downloading it if necessary, and summarise it."""
    from torchlgm.cli import commands

    commands.data(name, data_folder, target, drop or [], header, missing_value, json)


@app.command(
    short_help="Measure how fast models run on this machine.",
    epilog=_examples("bench", "bench --method lbp --schedule sweep --batch-size 100"),
)
def bench(
    device: Annotated[Device, typer.Option(help="Where to compute; auto prefers CUDA.")] = Device.AUTO,
    batch_size: Annotated[int, typer.Option(help="Samples per batch.", min=1)] = 20,
    method: Annotated[MethodName, typer.Option(help="Inference method.")] = MethodName.TRW,
    schedule: Annotated[
        ScheduleName, typer.Option(help="The order in which messages are sent.")
    ] = ScheduleName.SEQUENTIAL,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure how fast models run on this machine, compared with neural networks (about half a minute).

    Without a GPU, it lists the measurements that need one."""
    from torchlgm.cli import commands

    commands.bench(device, batch_size, method, schedule, json)


def main() -> None:
    sys.exit(console.run(app, sys.argv[1:]))
