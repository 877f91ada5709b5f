"""A model as one file for the browser: what the playground's JavaScript engine needs, and nothing that it can work out.

The file is safetensors: energies in half precision where that changes no probability by more than `ROUNDING`, and
under the key "torchlgm.web" a description in JSON. `docs/playground.md` has the format.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from torchlgm._utils.atomic import atomic_write
from torchlgm._utils.machine import as_path
from torchlgm.errors import DataError, InferenceError
from torchlgm.inference import BELIEF_SCHEDULES, METHODS, SCHEDULES, Method
from torchlgm.interop.exporters import Exported
from torchlgm.interop.web.network import describe_network
from torchlgm.layout import child_probabilities
from torchlgm.model import LGM, InputEncoding, require_finite_all
from torchlgm.posterior import Posterior
from torchlgm.spec import Connection, Conv, Dense, Graph, Local, Sparse

FORMAT, VERSION = "torchlgm.web", 1
SUFFIX = ".safetensors"
ROUNDING = 0.005  # by how much half precision may change a probability
KINDS = (Dense, Conv, Local, Sparse)


@dataclass(frozen=True)
class Examples:
    """Inputs to start from `(N, *shape)` in [0, 1], NaN = missing, and their classes, as numbers."""

    inputs: Tensor
    labels: Sequence[int]


def export_web(
    posterior: Posterior | Sequence[Posterior],
    path: str | Path,
    about: Mapping[str, Any] | None = None,
    *,
    network: nn.Module | None = None,
    examples: Examples | None = None,
) -> Exported:
    """Write a model to a `.safetensors` file that the playground reads.

    Parameters
    ----------
    posterior : Posterior or sequence of Posterior
        A model of dense, convolutional, local and listed connections with `lbp()`, `trw()` or `mean_field()`, or the
        members of an ensemble.
    path : path
        A file whose name ends in `.safetensors`.
    about : mapping, optional
        Anything JSON-able. The page shows "title", "text", "classes" and the columns of a table in "columns"; it mixes
        the members of an ensemble as "mixture" says.
    network : Module, optional
        A network of `torchlgm.baselines` to show beside the model.
    examples : Examples, optional
        Inputs to begin with.

    Returns
    -------
    Exported
        The file, its size, and by how much rounding the energies changed a probability at most.

    Raises
    ------
    InferenceError
        If the page could not give the answers of `posterior`.

    Examples
    --------
    >>> import tempfile, torchlgm as lgm
    >>> posterior = lgm.Posterior(lgm.LGM(lgm.zoo.dense(inputs=4, hidden=[3], classes=2)), lgm.lbp(iterations=1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_web(posterior, f"{folder}/small.safetensors").bytes < 2000
    True
    """
    path = as_path(path, DataError)
    if path.suffix.lower() != SUFFIX:
        raise DataError(f"{path}: expected a name that ends in {SUFFIX}")
    posteriors = list(posterior) if isinstance(posterior, Sequence) else [posterior]
    if not posteriors or not all(isinstance(one, Posterior) for one in posteriors):
        raise InferenceError(f"posterior is of type {type(posterior).__name__}; expected a Posterior or a list of them")
    head, tensors, difference = _described(posteriors)
    if network is not None:
        head["network"], weights = describe_network(network)
        tensors |= {f"network.{name}": _halved(weight) for name, weight in weights.items()}
    if examples is not None:
        head["examples"] = list(map(int, examples.labels))
        tensors["examples"] = _examples_as_bytes(examples.inputs)
    content = safetensors.torch.save(
        {name: t.detach().cpu().contiguous() for name, t in tensors.items()},
        metadata={FORMAT: _as_json({**head, **(about or {})})},
    )
    atomic_write(path, content)
    return Exported(path, len(content), difference)


def _described(posteriors: Sequence[Posterior]) -> tuple[dict[str, Any], dict[str, Tensor], float]:
    """Description and energies, in half precision if that makes no difference, and the difference."""
    first = posteriors[0]
    models = [posterior.model for posterior in posteriors]
    require_finite_all(models, "this model cannot be exported", InferenceError)
    graph, energies = _tables(first.model)
    head = {
        "format": FORMAT,
        "version": VERSION,
        "graph": json.loads(graph.to_json(indent=None)),
        "child_probabilities": child_probabilities(graph),
        "method": describe_method(first.method),
        "inputs": list(first.encoding.layers),
        "target": first.target,
        "temperature": first.temperature,
        "members": len(posteriors),
    }
    if not isinstance(first.encoding, InputEncoding):
        head["encoding"] = "rows"
    members = [energies, *[_tables(posterior.model)[1] for posterior in posteriors[1:]]]
    if any(posterior.model.graph != first.model.graph for posterior in posteriors):
        raise InferenceError("the members of an ensemble have different graphs; expected one graph for all")
    for dtype in (torch.float16, torch.float32):
        rounded = [{name: t.to(dtype) for name, t in tables.items()} for tables in members]
        difference = max(map(_difference, posteriors, rounded))
        if difference <= ROUNDING:
            break
    return head, {name: torch.stack([tables[name] for tables in rounded]) for name in energies}, difference


def _tables(model: LGM) -> tuple[Graph, dict[str, Tensor]]:
    """The graph with a table for each energy, and the energies by name; tables that rho tells apart are not shared."""
    connections: list[Connection] = []
    tensors = {f"unary.{name}": unary for name, unary in model.unary.items()}
    for c in model.graph.connections:
        if type(c) not in KINDS:
            raise InferenceError(
                f"connection '{c.name}' is of kind {type(c).__name__}, which the playground does not know; it knows "
                "Dense, Conv, Local and Sparse"
            )
        if c.is_lateral:
            raise InferenceError(
                f"connection '{c.name}' joins nodes of one layer; the playground takes models with edges between layers"
            )
        if c.name in model.start_left:
            raise InferenceError(
                f"messages over connection '{c.name}' start at values of their own, as of a network that was read from "
                "a file; the playground takes models whose messages start at 0"
            )
        energies = model.energies(c.name)
        if isinstance(c, Conv) and model.scale == "rho":
            c = Local(**{f.name: getattr(c, f.name) for f in fields(c)})
            edges = c.make_layout(*model.graph.ends(c)).edge_shape
            energies = energies.expand(*edges, *energies.shape[-2:])
        connections.append(c)
        tensors[f"energies.{c.name}"] = energies
    return replace(model.graph, connections=tuple(connections)), {k: t.detach().cpu() for k, t in tensors.items()}


def describe_method(method: object) -> dict[str, Any]:
    """A method in words that the engine knows, or InferenceError."""
    if not isinstance(method, Method) or method.tolerance is not None:
        raise InferenceError(
            f"method={method!r} cannot be exported for the playground; expected lbp(), trw() or mean_field() without a "
            "tolerance"
        )
    orders = BELIEF_SCHEDULES if method.rule.name == "mean_field" else SCHEDULES
    schedule = next((name for name, order in orders.items() if order is method.schedule), None)
    options = dict(method.rule.options)
    if method.rule.name not in METHODS or schedule is None or options.pop("product", None):
        raise InferenceError(
            f"method={method!r} cannot be exported for the playground; expected lbp(), trw() or mean_field() with "
            "product='sum' and a schedule of theirs"
        )
    words = {"name": method.rule.name, "schedule": schedule, "iterations": method.iterations}
    return {**words, "damping": float(method.damping), "divide_by_rho": bool(options.get("divide_by_rho", True))}


def _difference(posterior: Posterior, tables: Mapping[str, Tensor]) -> float:
    """By how much probabilities differ with these energies, over inputs with more and more missing."""
    graph, _ = _tables(posterior.model)
    model = LGM(graph, "zero", dtype=torch.float32)
    with torch.no_grad():
        for layer in graph.layers:
            model.unary[layer.name].copy_(tables[f"unary.{layer.name}"])
        for c in graph.connections:
            model.table[c.name].copy_(tables[f"energies.{c.name}"])
        if not all(bool(p.isfinite().all()) for p in model.parameters()):
            return math.inf
        encoding, dtype = posterior.encoding, posterior.model.unary[posterior.target].dtype
        inputs = sum(posterior.model.graph.layer(name).nodes for name in encoding.layers)
        generator = torch.Generator().manual_seed(0)
        x, hidden = (torch.rand(16, inputs, generator=generator, dtype=torch.float64) for _ in range(2))
        x = x.masked_fill(hidden < torch.linspace(0, 1, 16, dtype=torch.float64)[:, None], torch.nan)
        there = next(posterior.model.parameters()).device
        exact = posterior.answer(x.to(there, dtype)).exp().cpu().double()
        rounded = Posterior(model, posterior.method, encoding, posterior.target)
        rounded.temperature = posterior.temperature
        return float((rounded.answer(x.float()).exp().double() - exact).abs().max())


def _halved(weight: Tensor) -> Tensor:
    return weight.half() if float(weight.abs().max()) < torch.finfo(torch.float16).max else weight.float()


def _examples_as_bytes(x: Tensor) -> Tensor:
    """Grey values in bytes where that loses nothing, else single precision."""
    grey = (x * 255).round()
    exact = bool(((grey - x * 255).abs() < 1e-3).all()) and bool(((grey >= 0) & (grey <= 255)).all())
    return grey.to(torch.uint8) if exact else x.float()


def _as_json(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DataError(f"what is exported beside the model must be JSON-able: {error}") from error
