"""Models on disk: a folder with the graph as JSON and weights as safetensors. Loading runs no code from the folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from torchlgm._utils.atomic import recover_dir, replace_dir
from torchlgm._utils.machine import as_path, usable_device
from torchlgm._utils.validate import check_positive
from torchlgm.errors import CheckpointError, GraphError
from torchlgm.model.init import SCALES, balanced_scales
from torchlgm.model.lgm import LGM
from torchlgm.model.parameters import require_finite_all
from torchlgm.spec import Graph

FORMAT = "torchlgm.model"
VERSION = 1
GRAPH, WEIGHTS, CARD = "graph.json", "weights.safetensors", "model.json"
MEMBERS = "members.safetensors"  # the weights of further models of the same graph


def save(model: LGM, path: str | Path, card: Mapping[str, Any] | None = None, members: Sequence[LGM] = ()) -> Path:
    """Save a model as a folder, without pickle; an older model in it is replaced.

    Parameters
    ----------
    model : LGM
        The model to save.
    path : str or Path
        The folder.
    card : optional
        Notes about the model: anything that JSON can hold.
    members : sequence of LGM
        Further models with the same graph and scale, which `load_members` returns.
    """
    if not isinstance(model, LGM):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise CheckpointError(
            f"a model of type {type(model).__name__} cannot be saved; expected an LGM, such as a member of an Ensemble;"
            " of other modules, save the state_dict() by torch.save"
        )
    folder = as_path(path, CheckpointError)
    require_finite_all([model], "this model is not saved", CheckpointError)
    if folder.is_dir():
        foreign = sorted({file.name for file in folder.iterdir()} - {GRAPH, WEIGHTS, CARD, MEMBERS})
        if foreign:
            raise CheckpointError(f"{folder} holds other files ({foreign[0]}); name a folder for the model alone")
    with replace_dir(folder) as new:
        _write(model, new, card or {}, members)
    return folder


def load(path: str | Path, device: str | torch.device = "cpu") -> LGM:
    """Load a model saved by `save`.

    Parameters
    ----------
    path : str or Path
        The folder.
    device : str or torch.device
        Where to put the model.

    Returns
    -------
    LGM
        The model. A damaged folder raises a `CheckpointError`.
    """
    return load_with_card(path, device)[0]


def load_with_card(path: str | Path, device: str | torch.device = "cpu") -> tuple[LGM, dict[str, Any]]:
    """Load a model saved by `save`, with its card.

    Parameters
    ----------
    path : str or Path
        The folder.
    device : str or torch.device
        Where to put the model.

    Returns
    -------
    model : LGM
        The model.
    card : object
        The notes that were saved with it.
    """
    device = usable_device(device, CheckpointError)
    folder = recover_dir(as_path(path, CheckpointError))
    head = _read_head(folder)
    description, weights = (read_checked(folder / name, head["sha256"].get(name)) for name in (GRAPH, WEIGHTS))
    tensors = decode(weights, folder / WEIGHTS)
    dtypes = {t.dtype for t in tensors.values()}
    if len(dtypes) != 1 or not next(iter(dtypes)).is_floating_point:
        raise CheckpointError(f"{folder}: {WEIGHTS} must hold floating point numbers of one kind")
    try:
        with _default_dtype(dtypes.pop()):
            model = LGM(Graph.from_json(description.decode()), init="zero", scale=head["scale"])
    except (GraphError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError(f"{folder}: {GRAPH} does not describe a graph: {error}") from error
    _make_start(model, tensors, folder)
    fill(model, tensors, str(folder))
    _keep_energies(model, head["balanced"], folder)
    require_finite_all([model], str(folder), CheckpointError)
    return model.to(device), head["card"]


def _make_start(model: LGM, tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Where messages start, for the connections that were saved with it."""
    for c in model.graph.connections:
        left, right = tensors.get(f"start_left.{c.name}"), tensors.get(f"start_right.{c.name}")
        if left is not None and right is not None:
            try:
                model.set_start(c.name, left, right)
            except GraphError as error:
                raise CheckpointError(f"{folder}: the weights do not fit the model: {error}") from error


def load_members(path: str | Path, device: str | torch.device = "cpu") -> list[LGM]:
    """The further models that were saved at `path`, if any."""
    folder = recover_dir(Path(path))
    if MEMBERS not in (sums := _read_head(folder)["sha256"]):
        return []
    tensors = decode(read_checked(folder / MEMBERS, sums[MEMBERS]), folder / MEMBERS)
    members = []
    for i in range(len(next(iter(tensors.values())))):
        member = load(folder, device)
        fill(member, {name: tensor[i] for name, tensor in tensors.items()}, str(folder))
        members.append(member)
    return members


def _write(model: LGM, folder: Path, card: Mapping[str, Any], members: Sequence[LGM]) -> None:
    (folder / GRAPH).write_text(model.graph.to_json(), encoding="utf-8")
    write_tensors(model.state_dict(), folder / WEIGHTS)
    files = [GRAPH, WEIGHTS]
    if members:
        states = [member.state_dict() for member in members]
        write_tensors({name: torch.stack([state[name] for state in states]) for name in states[0]}, folder / MEMBERS)
        files.append(MEMBERS)
    sums = {name: sha256((folder / name).read_bytes()) for name in files}
    balanced = balanced_scales(model.graph)
    head = {"format": FORMAT, "version": VERSION, "scale": model.scale, "balanced": balanced, "sha256": sums}
    if not isinstance(card, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise CheckpointError(f"card={card!r}; expected a mapping that is JSON-able")
    head["card"] = dict(card)
    (folder / CARD).write_text(as_json(head, allow_nan=False), encoding="utf-8")


def _read_head(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "no such folder"
        raise CheckpointError(f"{folder}: {what}; expected the folder of a model saved by torchlgm")
    inside = sorted(folder.glob(f"*/{CARD}"))
    if inside and not (folder / CARD).exists():
        raise CheckpointError(f"{folder} is not the folder of a model, but holds one; load {inside[0].parent}")
    head = read_json(folder / CARD)
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise CheckpointError(f"{folder}: {CARD} does not describe a torchlgm model")
    if head.get("version") != VERSION:
        raise CheckpointError(f"{folder}: model version {head.get('version')!r}; this torchlgm reads {VERSION}")
    complete = all(isinstance(head.get(part), dict) for part in ("sha256", "balanced", "card"))
    if not complete or head.get("scale") not in SCALES:
        raise CheckpointError(f"{folder}: {CARD} is damaged")
    return head


def _keep_energies(model: LGM, balanced: Mapping[str, float], folder: Path) -> None:
    """What a balanced model stores are energies divided by scales, and those may have been others when it was saved."""
    if model.scale == "balanced":
        for name, now in balanced_scales(model.graph).items():
            then = check_positive(f"{folder}: the scale of '{name}'", balanced.get(name, now), error=CheckpointError)
            if then != now:
                model.table[name].data.mul_(then / now)


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """A model computes its constants in the default dtype when it is built."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def fill(module: torch.nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Load weights, or say which of them do not fit."""
    try:
        module.load_state_dict(dict(tensors))
    except RuntimeError as error:
        raise CheckpointError(f"{where}: the weights do not fit the model: {error}") from error


def as_json(value: Any, allow_nan: bool = True) -> str:
    try:
        return json.dumps(value, indent=2, allow_nan=allow_nan)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"what is saved beside the weights must be JSON-able: {error}") from error


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(f"{path.parent}: nothing saved by torchlgm, {path.name} is missing") from error
    except (ValueError, OSError, RecursionError) as error:
        raise CheckpointError(f"{path.parent}: {path.name} cannot be read: {error}") from error


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    copies = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    path.touch()
    usual = path.stat().st_mode
    try:
        safetensors.torch.save_file(copies, path)  # which nobody else may read
    except SafetensorError as error:
        raise OSError(str(error)) from error
    path.chmod(usual)


def read_checked(path: Path, checksum: str | None) -> bytes:
    """The content of a file, if it is still what was written."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path.parent}: {path.name} is missing or cannot be read: {error}") from error
    if sha256(content) != checksum:
        raise CheckpointError(f"{path.parent}: {path.name} is not the file that was saved (truncated or changed)")
    return content


def decode(content: bytes, path: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load(content)
    except (SafetensorError, ValueError) as error:
        raise CheckpointError(f"{path}: not a readable safetensors file: {error}") from error


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
