"""Arguments and options that several commands take."""

from pathlib import Path
from typing import Annotated

import typer

from torchlgm.cli import console
from torchlgm.cli.options import config_option

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A folder that `torchlgm train` made.")]
Model = Annotated[
    Path,
    typer.Argument(
        metavar="RUN", help="A folder that `torchlgm train` made, or a pretrained model: mnist, digits, ..."
    ),
]
SampleFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="A table, a .npz or .npy file, an image or a folder of images.")
]
DataFolder = Annotated[str | None, config_option("data_folder")]
Target = Annotated[str | None, config_option("target")]
RunTarget = Annotated[str | None, config_option("target", means="that of the run")]
Drop = Annotated[list[str] | None, config_option("drop")]
Header = Annotated[bool, typer.Option("--header/--no-header", help="Whether the first row of a table has names.")]
MissingValue = Annotated[float | None, config_option("missing_value")]
RunMissingValue = Annotated[float | None, config_option("missing_value", means="that of the training")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback if something goes wrong.")]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Print results and errors alone.", callback=lambda on: console.set_quiet(on)),
]
Invert = Annotated[bool, typer.Option("--invert", help="Images are dark on light, other than those of the training.")]
Resize = Annotated[bool, typer.Option("--resize", help="Bring images to the size of those of the training.")]
