"""Models on disk: a folder with the graph as JSON and weights as safetensors. Loading runs no code from the folder.

A folder is written under another name and then renamed, so a reader sees all of it or none.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from torchlgm.errors import CheckpointError, GraphError
from torchlgm.model import LGM
from torchlgm.spec import Graph

FORMAT = "torchlgm.model"
VERSION = 1
GRAPH, WEIGHTS, CARD = "graph.json", "weights.safetensors", "model.json"


def save(model: LGM, path: str | Path, card: Mapping[str, Any] | None = None) -> Path:
    """Write `model`, and anything JSON-able about it in `card`, to the folder `path`; an older one is replaced."""
    with replacing(path) as folder:
        write_model(model, folder, card or {})
    return Path(path)


def load(path: str | Path, device: str | torch.device = "cpu") -> LGM:
    """The model saved at `path`."""
    return load_with_card(path, device)[0]


def load_with_card(path: str | Path, device: str | torch.device = "cpu") -> tuple[LGM, dict[str, Any]]:
    folder = Path(path)
    head = _read_head(folder)
    for name in (GRAPH, WEIGHTS):
        if not (folder / name).is_file():
            raise CheckpointError(f"{folder}: {name} is missing; the model is incomplete")
        if file_hash(folder / name) != head["sha256"].get(name):
            raise CheckpointError(f"{folder}: {name} is not the file that was saved (truncated or changed)")
    try:
        graph = Graph.from_json((folder / GRAPH).read_text())
    except GraphError as error:
        raise CheckpointError(f"{folder}: {error}") from error
    model = LGM(graph, init="zero", scale=head["scale"])
    fill(model, read_tensors(folder / WEIGHTS), str(folder))
    return model.to(device), head["card"]


def _read_head(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise CheckpointError(f"{folder}: no such folder; expected a model saved by torchlgm")
    try:
        head = json.loads((folder / CARD).read_text())
    except FileNotFoundError as error:
        raise CheckpointError(f"{folder}: not a saved model, {CARD} is missing") from error
    except (ValueError, OSError) as error:
        raise CheckpointError(f"{folder}: {CARD} cannot be read: {error}") from error
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise CheckpointError(f"{folder}: {CARD} does not describe a torchlgm model")
    if head.get("version") != VERSION:
        raise CheckpointError(f"{folder}: model version {head.get('version')!r}; this torchlgm reads {VERSION}")
    if not isinstance(head.get("sha256"), dict) or head.get("scale") not in ("energy", "rho"):
        raise CheckpointError(f"{folder}: {CARD} is damaged")
    head.setdefault("card", {})
    return head


def write_model(model: LGM, folder: Path, card: Mapping[str, Any]) -> None:
    (folder / GRAPH).write_text(model.graph.to_json())
    write_tensors(model.state_dict(), folder / WEIGHTS)
    sums = {name: file_hash(folder / name) for name in (GRAPH, WEIGHTS)}
    head = {"format": FORMAT, "version": VERSION, "scale": model.scale, "sha256": sums, "card": dict(card)}
    (folder / CARD).write_text(json.dumps(head, indent=2))


def fill(module: torch.nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Load weights, or say which of them do not fit."""
    dtypes = {t.dtype for t in tensors.values() if t.is_floating_point()}
    if len(dtypes) == 1:
        module.to(dtypes.pop())
    try:
        module.load_state_dict(dict(tensors))
    except RuntimeError as error:
        raise CheckpointError(f"{where}: the weights do not fit the graph: {error}") from error


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    save_file({name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}, path)


def read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path}: not a readable safetensors file: {error}") from error


def file_hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class replacing:
    """A temporary folder beside `path` that takes its place on success and vanishes on failure."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __enter__(self) -> Path:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.exists() and not self.path.is_dir():
                raise CheckpointError(f"{self.path} is a file; name a folder to save to")
            self.folder = Path(tempfile.mkdtemp(prefix=f".{self.path.name}-", dir=self.path.parent))
        except OSError as error:
            raise CheckpointError(f"cannot write to {self.path}: {error}") from error
        return self.folder

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            if isinstance(error, OSError | SafetensorError):
                raise CheckpointError(f"cannot write to {self.path}: {error}") from error
            return
        for file in self.folder.iterdir():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
        old = None
        if self.path.exists():
            old = self.folder.with_name(self.folder.name + "-old")
            self.path.rename(old)
        self.folder.chmod(0o755)
        self.folder.rename(self.path)
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)
