"""Run folders: what a training leaves behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import nn

from torchlgm._utils.atomic import atomic_write, remove_parts
from torchlgm._utils.lock import dir_lock
from torchlgm.cli.classifier import Classifier
from torchlgm.cli.config import Config
from torchlgm.cli.figures import what_lacks
from torchlgm.cli.io import read_json, require_free
from torchlgm.cli.models import make_network
from torchlgm.data import is_table
from torchlgm.errors import CheckpointError, DataError

CONFIG, MODEL, METRICS, LOG, TRAINING = "config.json", "model", "metrics.json", "log.csv", "training"
NETWORK = "network.safetensors"


@dataclass(frozen=True)
class Run:
    """A training that is finished."""

    folder: Path
    config: Config
    metrics: dict[str, Any]

    @staticmethod
    def load(folder: Path) -> Run:
        config = read_config(folder)
        if not (folder / METRICS).is_file():
            advice = f"finish it with `torchlgm train --resume {folder}`"
            raise CheckpointError(f"{folder}: its training is not finished; {advice}")
        metrics = _read(folder / METRICS)
        if (wrong := what_lacks(metrics)) is not None:
            raise _damaged(f"{folder / METRICS}: expected {wrong}")
        return Run(folder, config, metrics)

    @property
    def is_table(self) -> bool:
        """Whether its model is an LGMClassifier, trained on a table."""
        return is_table(self.config.data)

    def classifier(self) -> Classifier:
        try:
            return Classifier.load(self.folder / MODEL)
        except CheckpointError as error:
            raise CheckpointError(f"{str(error).rstrip('.')}; train again, or restore the run from a copy") from error

    @property
    def brightness(self) -> float | None:
        """The mean of the inputs of the training, if they were images."""
        return self.metrics.get("brightness")

    def network(self) -> nn.Module | None:
        """The neural network beside the model of images, None if there is none."""
        file, classifier = self.folder / NETWORK, self.classifier()
        if not file.is_file():
            return None
        network = make_network(self.config.for_images(), classifier.shape, len(classifier.classes), self.config.seed)
        try:
            network.load_state_dict(load_file(file))
        except (OSError, RuntimeError, SafetensorError) as error:
            what = " ".join(str(error).split())
            raise CheckpointError(f"{file}: cannot be read ({what}); train again, or remove it") from error
        return network.float().eval()

    def missing_value(self, given: float | None) -> float | None:
        """What stands for missing in samples: what is given, else what did in the training."""
        return self.config.missing_value if given is None else given


def save_network(network: nn.Module, folder: Path) -> None:
    weights = {name: weight.detach().cpu().contiguous() for name, weight in network.state_dict().items()}
    atomic_write(folder / NETWORK, save(weights))


def read_config(folder: Path) -> Config:
    """The configuration of the run in `folder`, finished or not."""
    if not (folder / CONFIG).is_file():
        what = f"not a run folder, {CONFIG} is missing" if folder.exists() else "no such folder"
        raise CheckpointError(f"{folder}: {what}; name one that `torchlgm train` made, see `torchlgm runs`")
    return Config.from_dict(_read(folder / CONFIG), str(folder / CONFIG))


def read_unfinished(folder: Path) -> Config:
    config = read_config(folder)
    if is_table(config.data):
        raise CheckpointError(f"{folder}: the training of a table cannot be resumed; start a new one without --resume")
    if (folder / METRICS).is_file() and not (folder / TRAINING).exists():
        advice = f"look at it with `torchlgm show {folder}`, or start a new training without --resume"
        raise CheckpointError(f"{folder}: its training is finished, there is nothing to resume; {advice}")
    return config


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Raise if another process trains into `folder`, where the system can tell."""
    with dir_lock(folder) as ours:
        if not ours:
            raise DataError(f"{folder}: another process is training there; wait for it or stop it")
        remove_parts(folder)
        yield


def make_run_folder(out: Path | None, stem: str) -> Path:
    """An empty folder: `out`, else the first of runs/stem-1, runs/stem-2, ... that does not exist yet."""
    try:
        if out is not None:
            require_free(out)
            out.mkdir(parents=True, exist_ok=True)
            return out
        number = 1
        while True:
            path = Path("runs") / f"{stem}-{number}"
            with suppress(FileExistsError):
                path.mkdir(parents=True)
                return path
            number += 1
    except OSError as error:
        where = out or Path("runs").absolute()
        raise DataError(
            f"{where}: a run folder cannot be made here ({error.strerror or error}); choose another place with --out"
        ) from error


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except CheckpointError as error:
        raise _damaged(str(error)) from error


def _damaged(what: str) -> CheckpointError:
    return CheckpointError(f"{what}; the run folder is damaged, train again or restore it from a copy")
