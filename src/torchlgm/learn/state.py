"""The state of a training on disk, complete enough that a killed run goes on to the very same weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from torchlgm.errors import CheckpointError
from torchlgm.learn.checkpoint import file_hash, fill, read_tensors, replacing, write_tensors

FORMAT = "torchlgm.training"
VERSION = 1
TENSORS, HEAD = "training.safetensors", "training.json"


@dataclass
class Progress:
    """Where a training stands: `epoch` full epochs are done, and `at` samples of the next one."""

    epoch: int = 0
    at: int = 0
    loss_sum: float = 0.0
    seconds: float = 0.0
    best_epoch: int = 0
    best_loss: float = float("inf")
    history: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Training:
    """Everything that a step changes."""

    model: nn.Module
    optimiser: Optimizer
    scheduler: LRScheduler | None
    generator: torch.Generator
    progress: Progress
    best: dict[str, Tensor]

    def save(self, folder: Path, fingerprint: Mapping[str, Any]) -> None:
        """Write the next numbered state and drop older ones; what is on disk is always complete."""
        states = _states(folder)
        number = int(states[-1].name.split("-")[1]) + 1 if states else 1
        with replacing(folder / f"state-{number:06d}") as new:
            optimiser = self.optimiser.state_dict()
            tensors = {f"model.{k}": v for k, v in self.model.state_dict().items()}
            tensors |= {f"best.{k}": v for k, v in self.best.items()}
            tensors |= {
                f"optimiser.{i}.{k}": torch.as_tensor(v) for i, s in optimiser["state"].items() for k, v in s.items()
            }
            tensors["generator"] = self.generator.get_state()
            write_tensors(tensors, new / TENSORS)
            head = {
                "format": FORMAT,
                "version": VERSION,
                "fingerprint": dict(fingerprint),
                "progress": asdict(self.progress),
                "groups": [_plain(g) for g in optimiser["param_groups"]],
                "scheduler": None if self.scheduler is None else _plain(self.scheduler.state_dict()),
                "sha256": file_hash(new / TENSORS),
            }
            (new / HEAD).write_text(json.dumps(head, indent=2))
        for old in states:
            shutil.rmtree(old, ignore_errors=True)

    def restore(self, folder: Path, fingerprint: Mapping[str, Any]) -> bool:
        """Go on from the newest state in `folder`; False if there is none."""
        states = _states(folder)
        if not states:
            return False
        head, where = _read_head(states[-1]), states[-1]
        changed = sorted(
            k for k in {*head["fingerprint"], *fingerprint} if head["fingerprint"].get(k) != fingerprint.get(k)
        )
        if changed:
            raise CheckpointError(
                f"{folder} holds a training with other settings ({', '.join(changed)}); "
                "resume with the same ones, or train into a new folder"
            )
        tensors = read_tensors(where / TENSORS)
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "best": {}, "optimiser": {}}
        for name, tensor in tensors.items():
            kind, _, rest = name.partition(".")
            if kind in parts:
                parts[kind][rest] = tensor
        fill(self.model, parts["model"], str(where))
        self.best = parts["best"]
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in parts["optimiser"].items():
            i, _, key = name.partition(".")
            state.setdefault(int(i), {})[key] = tensor
        self.optimiser.load_state_dict({"state": state, "param_groups": head["groups"]})
        if self.scheduler is not None:
            self.scheduler.load_state_dict(head["scheduler"])
        self.generator.set_state(tensors["generator"])
        self.progress = Progress(**head["progress"])
        return True


def _states(folder: Path) -> list[Path]:
    return sorted(p for p in folder.glob("state-*") if p.is_dir()) if folder.is_dir() else []


def _read_head(where: Path) -> dict[str, Any]:
    try:
        head = json.loads((where / HEAD).read_text())
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{where}: {HEAD} cannot be read: {error}") from error
    if not isinstance(head, dict) or head.get("format") != FORMAT or head.get("version") != VERSION:
        raise CheckpointError(f"{where}: not the state of a training that this torchlgm can read")
    if not (where / TENSORS).is_file() or file_hash(where / TENSORS) != head.get("sha256"):
        raise CheckpointError(f"{where}: {TENSORS} is missing or not the file that was saved")
    return head


def _plain(value: Any) -> Any:
    """JSON-able: tensors of one number become numbers."""
    if isinstance(value, Tensor):
        return value.item()
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value if isinstance(value, str | int | float | bool | None) else repr(value)
