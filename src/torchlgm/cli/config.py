"""What a training is asked to do: the one list of the options of `torchlgm train`, kept as JSON in its run folder."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, fields
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from torchlgm.cli.io import read_json
from torchlgm.errors import CheckpointError, DataError


class Kind(StrEnum):
    DENSE = "dense"
    CONV = "conv"
    LOCAL = "local"


class MethodName(StrEnum):
    LBP = "lbp"
    TRW = "trw"
    MEAN_FIELD = "mean_field"


class ScheduleName(StrEnum):
    SWEEP = "sweep"
    SEQUENTIAL = "sequential"
    PARALLEL = "parallel"


class Device(StrEnum):
    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


class ImageForm(NamedTuple):
    """How images to ask about differ from those of the training."""

    invert: bool = False
    resize: bool = False


AS_TRAINED = ImageForm()
STEPS, LEAST_EPOCHS, MOST_EPOCHS = 3600, 10, 500
LEAST_PATIENCE = 10
PAPER_ITERATIONS = 5
IMAGES, TABLES = "images and arrays", "tables"


def _option(
    default: Any,
    help: str,
    means: str | None = None,
    *,
    metavar: str | None = None,
    choices: type[StrEnum] | None = None,
    at_least: float | None = None,
    only: str | None = None,
    group: str,
) -> Any:
    """An option: its help, what the default `means`, what it may be, what it is `only` for, its `group` in the help."""
    means = means if means is not None or default is None else f"{default}"
    metadata = {"help": help, "means": means, "metavar": metavar, "choices": choices, "group": group}
    return field(default=default, metadata=metadata | {"at_least": at_least, "only": only})


@dataclass(frozen=True)
class Config:
    """The options of `torchlgm train`. None stands for a default that depends on the data and the model."""

    data: str = field(default="digits", metadata={})
    target: str | None = _option(
        None, "The column of a table that holds the labels.", "the last", metavar="COLUMN", only=TABLES, group="Data"
    )
    drop: tuple[str, ...] = _option(
        (),
        "Columns of a table to leave out, separated by commas.",
        "none",
        metavar="COLUMNS",
        only=TABLES,
        group="Data",
    )
    categorical: tuple[str, ...] = _option(
        (),
        "Columns of a table whose numbers stand for categories.",
        "those of text",
        metavar="COLUMNS",
        only=TABLES,
        group="Data",
    )
    header: bool = _option(
        True,
        "Whether the first row of a table names its columns; if not, they are called 1, 2, 3, ...",
        "header",
        only=TABLES,
        group="Data",
    )
    missing_value: float | None = _option(
        None,
        "A number that marks missing values, such as -999; NaN, empty cells and transparent pixels always do.",
        metavar="NUMBER",
        group="Data",
    )
    model: str = _option("dense", "How the layers are connected.", choices=Kind, only=IMAGES, group="Model")
    method: str = _option(
        "lbp", "Belief propagation, tree-reweighted, or mean field.", choices=MethodName, group="Inference"
    )
    schedule: str = _option("sweep", "The order in which messages are sent.", choices=ScheduleName, group="Inference")
    iterations: int | None = _option(
        None, "Iterations of inference.", "1 for sweep, otherwise 5", at_least=1, group="Inference"
    )
    damping: float = _option(0.0, "How much of the old message to keep.", "0", group="Inference")
    hidden: int | None = _option(
        None, "Nodes in the last hidden layer.", "100; for tables 64 to 256", at_least=1, group="Model"
    )
    bins: int | None = _option(None, "Labels per numeric column.", "12", at_least=2, only=TABLES, group="Model")
    colours: int = _option(
        2,
        "Labels per pixel, a power of two; with 2, a pixel is a probability.",
        at_least=2,
        only=IMAGES,
        group="Model",
    )
    epochs: int | None = _option(
        None,
        "Most passes over the data.",
        "about 3600 steps, from 10 to 500; for tables 40, and at least 1000 steps",
        at_least=1,
        group="Training",
    )
    patience: int | None = _option(
        None,
        "Epochs without improvement before stopping.",
        "a third of the epochs, at least 10",
        at_least=1,
        only=IMAGES,
        group="Training",
    )
    batch_size: int | None = _option(
        None, "Samples per step.", "20; for tables 64 to 512", at_least=1, group="Training"
    )
    learning_rate: float | None = _option(None, "Learning rate of Adam.", "0.02; for tables 0.1", group="Training")
    visible: tuple[float, float] | None = _option(
        None,
        "Share of the inputs left visible in training, or a range; 1 hides nothing.",
        "0.3-1; for tables a mixture",
        metavar="SHARE",
        group="Training",
    )
    fill: float | None = _option(
        None, "How much weight to give to filling in hidden inputs.", "1; for tables 0", at_least=0, group="Training"
    )
    smoothing: float = _option(0.0, "Label smoothing.", "0", only=IMAGES, group="Training")
    seed: int = _option(0, "The first seed.", at_least=0, group="Training")
    seeds: int = _option(1, "How many seeds to train.", at_least=1, group="Training")
    data_folder: str | None = _option(
        None, "Where to look for data, and where to download it.", metavar="FOLDER", group="Data"
    )
    device: str = _option(
        "auto", "Where to compute; auto prefers CUDA, except for tables.", choices=Device, group="Training"
    )
    compare: bool = _option(True, "Train a neural network for comparison.", "compare", group="Training")
    calibrate: bool = _option(
        True,
        "Fit a temperature on the validation part, so that probabilities match how often the LGM is right.",
        "calibrate",
        only=IMAGES,
        group="Training",
    )
    pictures: bool = _option(True, "Draw pictures.", "pictures", group="Output")

    def __post_init__(self) -> None:
        for option in fields(self):
            value, metadata = getattr(self, option.name), option.metadata
            if value is None:
                continue
            if (choices := metadata.get("choices")) is not None:
                _check_choice(option.name, value, choices)
                object.__setattr__(self, option.name, str(value))
            if isinstance(value, list):
                object.__setattr__(self, option.name, tuple(value))
            if (low := metadata.get("at_least")) is not None and not value >= low:
                raise DataError(f"{as_option(option.name)} {value}: expected at least {low:g}")
        self._check_ranges()

    def _check_ranges(self) -> None:
        if self.learning_rate is not None and not 0 < self.learning_rate < float("inf"):
            raise DataError(f"--learning-rate {self.learning_rate:g}: expected a positive number")
        if not 0 <= self.smoothing <= 1:
            raise DataError(f"--smoothing {self.smoothing:g}: expected a number from 0 to 1")
        if not 0 <= self.damping < 1:
            raise DataError(f"--damping {self.damping:g}: expected a number from 0 to below 1")
        low, high = self.visible or (1.0, 1.0)
        if not 0 < low <= high <= 1:
            given = f"{low:g}" if low == high else f"{low:g}-{high:g}"
            raise DataError(f"--visible {given}: expected shares above 0 and up to 1, such as 0.5 or 0.3-1")
        if self.colours & (self.colours - 1):
            raise DataError(f"--colours {self.colours}: expected 2, 4, 8 or another power of two")

    def require_for(self, data: str) -> None:
        """Raise unless every option that is not at its default applies to such data, IMAGES or TABLES."""
        for option in fields(self):
            only = option.metadata.get("only", data)
            if only not in (None, data) and getattr(self, option.name) != option.default:
                raise DataError(f"{as_option(option.name)} is for {only}, but the data are {data}; leave it out")

    def for_images(self) -> ImageConfig:
        """With the defaults of images and arrays in place of None."""
        self.require_for(IMAGES)
        return ImageConfig(**{name: value for name, value in asdict(self).items() if value is not None})

    @property
    def hides(self) -> bool:
        return self.visible is not None and self.visible[0] < 1

    def iterations_for(self, connections: int) -> int:
        """A sweep carries the inputs to the class at once, the paper's schedules by one connection an iteration."""
        if self.schedule == "sweep":
            return self.iterations or 1
        if self.iterations is not None and self.iterations < connections:
            raise DataError(
                f"--iterations {self.iterations}: with --schedule {self.schedule} inputs do not reach the class "
                f"of this model in fewer than {connections} iterations; raise them or use --schedule sweep"
            )
        return self.iterations or max(PAPER_ITERATIONS, connections)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    @staticmethod
    def read_options(path: Path) -> dict[str, Any]:
        """The options in a file such as the config.json of a run, but for those that it leaves to the data."""
        options, known = read_json(path), [field.name for field in fields(Config)]
        for name in options.keys() - set(known):
            close = get_close_matches(name, known, 1)
            advice = f"did you mean {close[0]!r}?" if close else f"expected some of {', '.join(known)}"
            raise DataError(f"{path}: there is no option {name!r}; {advice}")
        return {name: value for name, value in options.items() if value is not None}

    @staticmethod
    def from_dict(options: dict[str, Any], where: str) -> Config:
        names = {field.name for field in fields(Config)}
        try:
            return Config(**{name: value for name, value in options.items() if name in names})
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"{where}: not the configuration of a training ({error})") from error


@dataclass(frozen=True)
class ImageConfig(Config):
    """The options of a training on images or arrays: none of these depends on the data any more."""

    hidden: int = 100
    batch_size: int = 20
    learning_rate: float = 0.02
    visible: tuple[float, float] = (0.3, 1.0)
    fill: float = 1.0

    def epochs_for(self, samples: int) -> int:
        """As many as asked for, else enough for about 3600 steps, within 10 to 500."""
        steps = math.ceil(STEPS * self.batch_size / samples)
        return self.epochs or max(LEAST_EPOCHS, min(MOST_EPOCHS, steps))

    def patience_for(self, samples: int) -> int:
        return self.patience or max(LEAST_PATIENCE, self.epochs_for(samples) // 3)


def as_option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _check_choice(name: str, value: str, choices: type[StrEnum]) -> None:
    allowed = [str(choice) for choice in choices]
    if value not in allowed:
        raise DataError(f"{as_option(name)} {value}: expected one of {', '.join(allowed)}")


def parse_range(text: str) -> tuple[float, float]:
    """ "0.3-1" or a single number, such as 0.5."""
    low, _, high = text.partition("-")
    try:
        return float(low), float(high or low)
    except ValueError:
        raise DataError(f"--visible {text}: expected a share such as 0.5, or a range such as 0.3-1") from None


def parse_shares(text: str) -> list[float]:
    """ "1,0.7,0.3"."""
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        shares = []
    if not shares or not all(0 <= share <= 1 for share in shares):
        raise DataError(f"--visible {text}: expected shares from 0 to 1 with commas between, such as 1,0.7,0.3")
    return shares
