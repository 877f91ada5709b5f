"""A model from a file for the browser, back in Python."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from torchlgm.errors import CheckpointError, LGMError
from torchlgm.inference import METHODS
from torchlgm.interop.web.export import FORMAT
from torchlgm.model import LGM
from torchlgm.posterior import Posterior
from torchlgm.spec import Graph


@dataclass(frozen=True)
class WebModel:
    """A posterior, what its file says about it, and the inputs that it shows first, or None."""

    posterior: Posterior
    about: Mapping[str, Any]
    examples: torch.Tensor | None


def import_web(path: str | Path) -> WebModel:
    """Read a model of images or arrays that `export_web` wrote; its energies may have been rounded.

    Raises
    ------
    CheckpointError
        If the file is no such model, is damaged, or holds an ensemble.
    """
    path = Path(path)
    try:
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {})[FORMAT])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
        if about["members"] != 1 or "encoding" in about:
            raise CheckpointError(f"{path}: an ensemble of a table; expected one model of images or arrays")
        return _model(about, tensors)
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (SafetensorError, LookupError, TypeError, ValueError, RuntimeError, LGMError) as error:
        raise CheckpointError(f"{path}: not a model for the browser, or damaged ({error!r})") from error


def _model(about: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> WebModel:
    model = LGM(Graph.from_json(json.dumps(about["graph"])), "zero", dtype=torch.float32)
    with torch.no_grad():
        for name, unary in model.unary.items():
            unary.copy_(tensors[f"unary.{name}"][0])
        for name, table in model.table.items():
            table.copy_(tensors[f"energies.{name}"][0])
    words = dict(about["method"])
    options = {"divide_by_rho": words["divide_by_rho"]} if words["name"] == "trw" else {}
    method = METHODS[words["name"]](words["iterations"], words["schedule"], damping=words["damping"], **options)
    posterior = Posterior(model, method, about["inputs"][0], about["target"])
    posterior.temperature = about["temperature"]
    examples = tensors.get("examples")
    if examples is not None:
        examples = examples / 255 if examples.dtype == torch.uint8 else examples
    return WebModel(posterior, about, examples)
