"""What a training is asked to do, as a record that is kept as JSON in its run folder."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

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


_CHOICES: dict[str, type[StrEnum]] = {"model": Kind, "method": MethodName, "schedule": ScheduleName, "device": Device}
STEPS, LEAST_EPOCHS, MOST_EPOCHS = 3600, 10, 500
LEAST_PATIENCE = 10
PAPER_ITERATIONS = 5


@dataclass(frozen=True)
class Config:
    """The options of `torchlgm train`. None stands for a default that depends on data and model.

    `visible` is the range from which each training sample draws the share of its inputs that it shows; `fill` is the
    weight of learning to fill in inputs beside learning to classify.
    """

    data: str = "digits"
    data_folder: str | None = None
    label: str | None = None
    missing_value: float | None = None
    model: str = "dense"
    method: str = "lbp"
    schedule: str = "sweep"
    iterations: int | None = None
    damping: float = 0.0
    hidden: int = 100
    colours: int = 2
    epochs: int | None = None
    batch_size: int = 20
    learning_rate: float = 0.02
    patience: int | None = None
    visible: tuple[float, float] = (0.3, 1.0)
    fill: float = 1.0
    smoothing: float = 0.0
    seed: int = 0
    seeds: int = 1
    device: str = "auto"
    compare: bool = True
    pictures: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "visible", tuple(self.visible))
        for name, choices in _CHOICES.items():
            value, known = getattr(self, name), [str(choice) for choice in choices]
            if value not in known:
                raise DataError(f"--{name} {value}: expected one of {', '.join(known)}.")
            object.__setattr__(self, name, str(value))
        least = {"iterations": 1, "hidden": 1, "colours": 2, "epochs": 1, "batch_size": 1, "patience": 1}
        for name, low in {**least, "seed": 0, "seeds": 1, "fill": 0}.items():
            value = getattr(self, name)
            if value is not None and not value >= low:
                raise DataError(f"--{name.replace('_', '-')} {value}: expected at least {low}.")
        if not 0 < self.learning_rate < float("inf"):
            raise DataError(f"--learning-rate {self.learning_rate:g}: expected a positive number.")
        if not 0 <= self.smoothing <= 1:
            raise DataError(f"--smoothing {self.smoothing:g}: expected a number from 0 to 1.")
        if not 0 <= self.damping < 1:
            raise DataError(f"--damping {self.damping:g}: expected a number from 0 to below 1.")
        low, high = self.visible
        if not 0 < low <= high <= 1:
            given = f"{low:g}" if low == high else f"{low:g}-{high:g}"
            raise DataError(f"--visible {given}: expected shares above 0 and up to 1, such as 0.5 or 0.3-1.")
        if self.colours & (self.colours - 1):
            raise DataError(f"--colours {self.colours}: expected 2, 4, 8 or another power of two.")

    @property
    def hides(self) -> bool:
        return self.visible[0] < 1

    def epochs_for(self, samples: int) -> int:
        """As many as asked for, else enough for about 3600 steps, within 10 to 500."""
        return self.epochs or max(LEAST_EPOCHS, min(MOST_EPOCHS, math.ceil(STEPS * self.batch_size / samples)))

    def patience_for(self, samples: int) -> int:
        return self.patience or max(LEAST_PATIENCE, self.epochs_for(samples) // 3)

    def iterations_for(self, connections: int) -> int:
        """A sweep carries the inputs to the class at once, the paper's schedules by one connection an iteration."""
        if self.schedule == "sweep":
            return self.iterations or 1
        if self.iterations is not None and self.iterations < connections:
            raise DataError(
                f"--iterations {self.iterations}: with --schedule {self.schedule} inputs do not reach the class "
                f"of this model in fewer than {connections} iterations; raise them or use --schedule sweep."
            )
        return self.iterations or max(PAPER_ITERATIONS, connections)

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    @staticmethod
    def from_dict(options: dict[str, Any], where: str) -> Config:
        known = {field.name for field in fields(Config)}
        try:
            return Config(**{name: value for name, value in options.items() if name in known})
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"{where}: not the configuration of a training ({error}).") from error


def parse_range(text: str) -> tuple[float, float]:
    """ "0.3-1" or a single number, such as 0.5."""
    low, _, high = text.partition("-")
    try:
        return float(low), float(high or low)
    except ValueError:
        raise DataError(f"--visible {text}: expected a share such as 0.5, or a range such as 0.3-1.") from None


def parse_shares(text: str) -> list[float]:
    """ "1,0.7,0.3"."""
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        shares = []
    if not shares or not all(0 <= share <= 1 for share in shares):
        raise DataError(f"--visible {text}: expected shares from 0 to 1 with commas between, such as 1,0.7,0.3.")
    return shares
