"""The state of a training on disk, complete enough that a killed run goes on to the very same weights."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from torchlgm._utils.atomic import replace_dir
from torchlgm.errors import CheckpointError
from torchlgm.learn.progress import Progress
from torchlgm.model.io import as_json, decode, fill, read_checked, read_json, sha256, write_tensors

FORMAT = "torchlgm.training"
VERSION = 3
TENSORS, HEAD = "training.safetensors", "training.json"


@dataclass
class Training:
    """Everything that a step changes."""

    model: nn.Module
    optimizer: Optimizer
    scheduler: LRScheduler | None
    generator: torch.Generator
    progress: Progress
    best: dict[str, Tensor]

    def keep_member(self, i: int) -> None:
        """The weights of one member of an ensemble are its best so far."""
        for name, p in self.model.named_parameters():
            self.best[name][i] = p.detach()[i]

    def save(self, folder: Path, fingerprint: Mapping[str, Any]) -> None:
        """Write the next numbered state and drop older ones; what is on disk is always complete."""
        states = _states(folder)
        number = _number(states[-1]) + 1 if states else 1
        with replace_dir(folder / f"state-{number:06d}") as new:
            self._write(new, fingerprint)
        for old in states:
            shutil.rmtree(old, ignore_errors=True)

    def _write(self, new: Path, fingerprint: Mapping[str, Any]) -> None:
        optimizer = self.optimizer.state_dict()
        state = {f"{i}.{k}": v for i, values in optimizer["state"].items() for k, v in values.items()}
        tensors = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        tensors |= {f"best.{k}": v for k, v in self.best.items()}
        tensors |= {f"optimizer.{k}": v for k, v in state.items() if isinstance(v, Tensor)}
        tensors["generator"] = self.generator.get_state()
        write_tensors(tensors, new / TENSORS)
        head = {
            "format": FORMAT,
            "version": VERSION,
            "fingerprint": dict(fingerprint),
            "progress": asdict(self.progress),
            "optimizer": {k: v for k, v in state.items() if not isinstance(v, Tensor)},
            "groups": plain(optimizer["param_groups"]),
            "scheduler": None if self.scheduler is None else plain(self.scheduler.state_dict()),
            "sha256": sha256((new / TENSORS).read_bytes()),
        }
        (new / HEAD).write_text(as_json(head), encoding="utf-8")

    def restore(self, folder: Path, fingerprint: Mapping[str, Any]) -> bool:
        """Go on from the newest state in `folder`; False if there is none."""
        states = _states(folder)
        if not states:
            return False
        where = states[-1]
        advice = f"delete {folder} to start over"
        try:
            head = read_json(where / HEAD)
        except CheckpointError as error:
            raise CheckpointError(f"{error}; {advice}") from error
        if not isinstance(head, dict) or head.get("format") != FORMAT or head.get("version") != VERSION:
            raise CheckpointError(f"{where}: not the state of a training that this torchlgm can read; {advice}")
        try:
            _check_same(folder, head["fingerprint"], fingerprint)
            tensors = decode(read_checked(where / TENSORS, head["sha256"]), where / TENSORS)
            self._take(head, tensors, where)
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            if isinstance(error, CheckpointError):
                raise
            raise CheckpointError(f"{where}: {HEAD} is damaged: {error!r}; {advice}") from error
        return True

    def _take(self, head: Mapping[str, Any], tensors: Mapping[str, Tensor], where: Path) -> None:
        fill(self.model, _below("model", tensors), str(where))
        self.best = _below("best", tensors)
        now = {name: (t.shape, t.dtype) for name, t in self.model.state_dict().items()}
        if {name: (t.shape, t.dtype) for name, t in self.best.items()} != now:
            raise CheckpointError(f"{where}: the best weights do not fit the model")
        state: dict[int, dict[str, Any]] = {}
        for name, value in {**_below("optimizer", tensors), **head["optimizer"]}.items():
            i, _, key = name.partition(".")
            state.setdefault(int(i), {})[key] = value
        groups = [
            {**_revived(saved, {**now, "params": None}), "params": saved["params"]}
            for saved, now in zip(head["groups"], self.optimizer.param_groups, strict=True)
        ]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})
        if self.scheduler is not None:
            self.scheduler.load_state_dict(_revived(head["scheduler"], self.scheduler.state_dict()))
        self.generator.set_state(tensors["generator"])
        self.progress = Progress.from_dict(head["progress"])


def _states(folder: Path) -> list[Path]:
    """Complete states, oldest first."""
    if not folder.is_dir():
        return []
    return sorted((p for p in folder.iterdir() if re.fullmatch(r"state-\d+", p.name) and p.is_dir()), key=_number)


def _number(state: Path) -> int:
    return int(state.name.partition("-")[2])


def _check_same(folder: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    changed = sorted(k for k in {*old, *new} if old.get(k) != new.get(k))
    if changed:
        what = "on other data" if {*changed} <= {"train_data", "valid_data"} else "with other settings"
        raise CheckpointError(
            f"{folder} holds a training {what} ({', '.join(changed)}); resume with the same, or train into a new folder"
        )


def _below(kind: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(f"{kind}."): t for name, t in tensors.items() if name.startswith(f"{kind}.")}


def plain(value: Any) -> Any:
    """JSON-able where it can be: tensors of one number become numbers."""
    if isinstance(value, Tensor):
        return value.item()
    if isinstance(value, Mapping):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value


def _revived(saved: Any, now: Any) -> Any:
    """What JSON gives back of `plain` values, in the types that their like has `now`: keys of mappings too."""
    if isinstance(now, Tensor):
        return torch.tensor(saved, dtype=now.dtype, device=now.device)
    if isinstance(now, dict) and isinstance(saved, dict):
        keys = {str(key): key for key in now}
        revived = {keys.get(k, k): _revived(v, now.get(keys.get(k, k))) for k, v in saved.items()}
        return Counter(revived) if isinstance(now, Counter) else revived
    if isinstance(now, list | tuple) and isinstance(saved, list):
        alike = [*now, *[None] * len(saved)][: len(saved)]
        return type(now)([_revived(v, like) for v, like in zip(saved, alike, strict=True)])
    return saved
