"""The command line, `torchlgm ...`: words become calls of `torchlgm.cli`, and nothing else happens here."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from torchlgm.cli.config import Config, Device, Kind, MethodName, ScheduleName
from torchlgm.cli.entry import enter

app = typer.Typer(
    name="torchlgm",
    help="Layered graphical models: classifiers that are probability models and cope with missing inputs.",
    epilog="To begin with: torchlgm train",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _examples(*lines: str) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  torchlgm {line}" for line in lines)


def _option(
    help: str, default: object = None, *names: str, metavar: str | None = None, min: float | None = None
) -> Any:
    """An option that is None unless it is given; `default` is what that means."""
    shown = help if default is None else f"{help} [default: {default}]"
    return typer.Option(*names, help=shown, metavar=metavar, show_default=False, min=min)


RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `torchlgm train` made.")]
SampleFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="A .npz, .npy or .csv file, an image or a folder of images.")
]
DataFolder = Annotated[str | None, _option("Where to look for data first, and to download it to.", metavar="FOLDER")]
Label = Annotated[
    str | None,
    _option(
        "The column of a table that holds the labels: its name or its number, from 1.",
        "label, target or class, else the last",
        metavar="COLUMN",
    ),
]
_MISSING = "What stands for missing, such as -999; NaN, empty cells and transparent pixels always do."
MissingValue = Annotated[float | None, _option(_MISSING, metavar="NUMBER")]
RunMissingValue = Annotated[float | None, _option(_MISSING, "that of the training", metavar="NUMBER")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback if something goes wrong.")]


@app.command(
    epilog=_examples(
        "train",
        "train mnist --model local --epochs 5",
        "train table.csv --label species --hidden 50 --seeds 5",
        "train --resume runs/digits-dense-1",
    )
)
def train(
    data: Annotated[
        str | None,
        typer.Argument(
            metavar="DATA",
            help="digits, mnist, fashion-mnist, kmnist, a .npz or .csv file, or a folder of images by class or of idx "
            "files. [default: digits]",
            show_default=False,
        ),
    ] = None,
    label: Label = None,
    missing_value: MissingValue = None,
    model: Annotated[Kind | None, _option("How layers are connected.", Config.model)] = None,
    method: Annotated[
        MethodName | None, _option("Belief propagation, tree-reweighted, or mean field.", Config.method)
    ] = None,
    schedule: Annotated[ScheduleName | None, _option("In which order messages are sent.", Config.schedule)] = None,
    iterations: Annotated[int | None, _option("Iterations of inference.", "1 for sweep, else 5")] = None,
    damping: Annotated[float | None, _option("Share of the old message that is kept.", Config.damping)] = None,
    hidden: Annotated[int | None, _option("Nodes of the last hidden layer.", Config.hidden)] = None,
    colours: Annotated[
        int | None,
        _option("Labels of an input node, a power of two; with 2 an input is a probability.", Config.colours),
    ] = None,
    epochs: Annotated[
        int | None, _option("Passes over the data, at most.", "about 3600 steps, within 10 to 500")
    ] = None,
    patience: Annotated[
        int | None, _option("Epochs without progress after which to stop.", "a third of all, at least 10")
    ] = None,
    batch_size: Annotated[int | None, _option("Samples in a step.", Config.batch_size)] = None,
    learning_rate: Annotated[float | None, _option("Of Adam.", Config.learning_rate)] = None,
    visible: Annotated[
        str | None,
        _option("Share of inputs that a training sample shows, or a range; 1 hides nothing.", "0.3-1", metavar="SHARE"),
    ] = None,
    fill: Annotated[float | None, _option("Weight of learning to fill in hidden inputs.", Config.fill)] = None,
    smoothing: Annotated[float | None, _option("Label smoothing.", Config.smoothing)] = None,
    seed: Annotated[int | None, _option("The first seed.", Config.seed)] = None,
    seeds: Annotated[int | None, _option("How many seeds to train from.", Config.seeds)] = None,
    out: Annotated[
        Path | None, _option("The run folder, which must be new.", "runs/DATA-MODEL-N", metavar="FOLDER")
    ] = None,
    data_folder: DataFolder = None,
    device: Annotated[Device | None, _option("Where to compute; auto prefers CUDA.", Config.device)] = None,
    resume: Annotated[
        Path | None, _option("Go on with a run that was stopped; with no other option.", metavar="RUN")
    ] = None,
    compare: Annotated[
        bool | None,
        _option("Train the neural network of the same shape beside it.", "compare", "--compare/--no-compare"),
    ] = None,
    pictures: Annotated[bool | None, _option("Draw pictures.", "pictures", "--pictures/--no-pictures")] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Train a model, compare it with a neural network, and draw pictures. Without DATA on handwritten digits."""
    from torchlgm.cli import commands

    options = {
        "data": data,
        "label": label,
        "missing_value": missing_value,
        "model": model,
        "method": method,
        "schedule": schedule,
        "iterations": iterations,
        "damping": damping,
        "hidden": hidden,
        "colours": colours,
        "epochs": epochs,
        "patience": patience,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "visible": visible,
        "fill": fill,
        "smoothing": smoothing,
        "seed": seed,
        "seeds": seeds,
        "data_folder": data_folder,
        "device": device,
        "compare": compare,
        "pictures": pictures,
    }
    commands.train(options, out, resume, json)


@app.command(
    epilog=_examples("evaluate runs/digits-dense-1 --visible 1,0.5,0.1", "evaluate runs/table-dense-1 new.csv")
)
def evaluate(
    run: RunFolder,
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help="Other data than that of the run.", show_default=False)
    ] = None,
    visible: Annotated[str, typer.Option(metavar="SHARES", help="Shares of inputs to show.")] = "1,0.7,0.3",
    part: Annotated[
        str | None,
        _option("test, train or all; of data in one part a fifth is test.", "test, or all of other data in one part"),
    ] = None,
    label: Label = None,
    missing_value: RunMissingValue = None,
    data_folder: DataFolder = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Accuracy, negative log-likelihood and calibration by share of visible inputs."""
    from torchlgm.cli import commands

    commands.evaluate(run, data, visible, part, data_folder, label, missing_value, json)


@app.command(
    epilog=_examples("predict runs/digits-dense-1 scan.png", "predict runs/table-dense-1 new.csv --out probs.csv")
)
def predict(
    run: RunFolder,
    file: SampleFile,
    out: Annotated[
        Path | None, _option("A new .csv or .json file to write instead of printing.", metavar="FILE")
    ] = None,
    missing_value: RunMissingValue = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Class probabilities of the samples in FILE."""
    from torchlgm.cli import commands

    commands.predict(run, file, out, missing_value, json)


@app.command(
    epilog=_examples(
        "complete runs/digits-dense-1 scans --out filled", "complete runs/table-dense-1 gaps.csv --out filled"
    )
)
def complete(
    run: RunFolder,
    file: SampleFile,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="A new folder for the results.", show_default=False)],
    missing_value: RunMissingValue = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Fill in what is missing in the samples of FILE with what the model believes, as images or as a table."""
    from torchlgm.cli import commands

    commands.complete(run, file, out, missing_value, json)


@app.command(epilog=_examples("export runs/digits-dense-1 --to model.onnx", "export runs/table-dense-1 --to model.pt2"))
def export(
    run: RunFolder,
    to: Annotated[
        Path,
        typer.Option(metavar="FILE", help="A new file to write: .onnx or .pt2 (torch.export).", show_default=False),
    ],
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Write the model as a file that runs without torchlgm: class probabilities of inputs with a mask of what was seen.

    It takes any batch size, and is compared with the model before it is written."""
    from torchlgm.cli import commands

    commands.export(run, to, json)


@app.command(epilog=_examples("show runs/digits-dense-1", "show --graph local --out local.png"))
def show(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="RUN", help="A folder that `torchlgm train` made.", show_default=False),
    ] = None,
    graph: Annotated[Kind | None, _option("Show the paper's architecture of this kind instead.")] = None,
    out: Annotated[Path | None, _option("With --graph, where to draw it (.png, .pdf or .svg).", metavar="FILE")] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """What is in a run: its graph, its training and its figures."""
    from torchlgm.cli import commands

    commands.show(run, graph, out, json)


@app.command(epilog=_examples("data", "data mnist --data-folder data", "data table.csv"))
def data(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="As for train; without it the names are listed.", show_default=False),
    ] = None,
    label: Label = None,
    missing_value: MissingValue = None,
    data_folder: DataFolder = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Load a data set, downloading it if need be, and say what is in it."""
    from torchlgm.cli import commands

    commands.data(name, data_folder, label, missing_value, json)


@app.command(epilog=_examples("bench", "bench --method lbp --schedule sweep --batch-size 100"))
def bench(
    device: Annotated[Device, typer.Option(help="Where to compute; auto prefers CUDA.")] = Device.AUTO,
    batch_size: Annotated[int, typer.Option(help="Samples at once.", min=1)] = 20,
    method: Annotated[MethodName, typer.Option(help="Of inference.")] = MethodName.TRW,
    schedule: Annotated[ScheduleName, typer.Option(help="Order of the updates.")] = ScheduleName.SEQUENTIAL,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure how fast models are on this machine, beside neural networks (about half a minute).

    Without a GPU, says which rows need one."""
    from torchlgm.cli import commands

    commands.bench(device, batch_size, method, schedule, json)


def main() -> None:
    sys.exit(enter(app, sys.argv[1:]))
