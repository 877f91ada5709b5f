"""From what a user observed to clamps: hard labels, soft values and missing entries become one form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchlgm._utils.tracing import is_traced
from torchlgm.errors import EvidenceError
from torchlgm.mrf import Clamp, Evidence
from torchlgm.ops.compact import one_hot
from torchlgm.spec import Graph, Layer


class Observed(NamedTuple):
    """Values of a layer with a boolean mask of the entries that were seen, shaped `(B, *layer.shape)`.

    Values of entries that were not seen are never read.

    >>> seen = Observed(torch.tensor([[1, 0, 7]]), mask=torch.tensor([[True, True, False]]))
    """

    values: Any
    mask: Any = None


_BARELY_SUPPORTED = (torch.uint16, torch.uint32, torch.uint64)  # by PyTorch: no minimum, no comparison


def encode(graph: Graph, evidence: Evidence, dtype: torch.dtype, device: torch.device) -> dict[str, Clamp]:
    """Check the evidence for each layer and bring it into the form of `Clamp`.

    A binary layer takes `(B, *shape)`: integers or booleans are labels, floats are means in [0, 1]. A layer with more
    labels takes labels `(B, *shape)`, or probabilities `(B, *shape, labels)`. NaN is a missing entry, as is a
    masked one of a NumPy array.
    """
    if not isinstance(evidence, Mapping):
        raise EvidenceError(f"evidence must map layer names to values, got {type(evidence).__name__}")
    clamps = {}
    for name, given in evidence.items():
        if name not in graph.layer_names:
            raise EvidenceError(f"evidence for unknown layer '{name}'; the graph has {', '.join(graph.layer_names)}")
        layer = graph.layer(name)
        checked = _checked if isinstance(given, Clamp) else _clamp
        clamps[name] = checked(layer, given, dtype, device)
    sizes = {name: clamp.q.shape[0] for name, clamp in clamps.items()}
    if any(size != next(iter(sizes.values())) for size in sizes.values()):
        raise EvidenceError(f"evidence must have one batch size for all layers, got {sizes}")
    return clamps


def _checked(layer: Layer, clamp: Clamp, dtype: torch.dtype, device: torch.device) -> Clamp:
    """A clamp that fits its layer, or EvidenceError."""
    q, free = clamp
    nodes, k = layer.nodes, layer.labels - 1
    if not isinstance(q, Tensor) or q.dim() != 3 or q.shape[1:] != (nodes, k):  # pyright: ignore[reportUnnecessaryIsInstance]
        shape = tuple(q.shape) if isinstance(q, Tensor) else type(q).__name__  # pyright: ignore[reportUnnecessaryIsInstance]
        raise EvidenceError(f"a Clamp of layer '{layer.name}' has q shaped (batch, {nodes}, {k}), got {shape}")
    if free is not None and not (isinstance(free, Tensor) and free.dtype == torch.bool and free.shape == q.shape[:2]):  # pyright: ignore[reportUnnecessaryIsInstance]
        got = f"{free.dtype} shaped {tuple(free.shape)}" if isinstance(free, Tensor) else type(free).__name__  # pyright: ignore[reportUnnecessaryIsInstance]
        raise EvidenceError(f"a Clamp of layer '{layer.name}' has booleans free shaped {tuple(q.shape[:2])}, got {got}")
    q = as_tensor(f"a Clamp of layer '{layer.name}'", q, device, dtype).to(dtype)
    if q.shape[0] and not is_traced(q):
        slack = 1e-3  # which sums of rounded probabilities may exceed 1 by
        totals = q if k == 1 else torch.cat([q, q.sum(-1, keepdim=True)], -1)
        low, high = (float(x) for x in totals.detach().aminmax())
        if not (low >= -slack and high <= 1 + slack):
            raise EvidenceError(
                f"a Clamp of layer '{layer.name}' has probabilities q, and their sums, in [0, 1], got {low:g} to "
                f"{high:g}; where nothing was seen q is 0 and free is True"
            )
    return Clamp(q, None if free is None else free.to(device))


def _clamp(layer: Layer, given: Any, dtype: torch.dtype, device: torch.device) -> Clamp:
    values, mask = given if isinstance(given, Observed) else (given, None)
    values = as_tensor(f"evidence for layer '{layer.name}'", values, device, dtype)
    vectors = values.dim() == len(layer.sizes) + 2
    expected = (values.shape[0] if values.dim() else 0, *layer.sizes, *([layer.labels] if vectors else []))
    if values.dim() == 0 or tuple(values.shape) != expected:
        raise EvidenceError(
            f"evidence for layer '{layer.name}' must be shaped (batch, {', '.join(map(str, layer.sizes))}), or with "
            f"probabilities of its {layer.labels} labels in a last axis, got {tuple(values.shape)}"
        )
    if values.shape[0] == 0:
        raise EvidenceError(f"evidence for layer '{layer.name}' is empty: a batch of 0 samples")
    values = values.flatten(1, -2) if vectors else values.flatten(1)
    seen = None if mask is None else _mask(layer, mask, len(values), device)
    free = _free(layer, values, seen, vectors)
    if free is not None:
        values = values.masked_fill(free.unsqueeze(-1) if vectors else free, 0)
    return Clamp(_probabilities(layer, values, free, vectors, dtype), free)


def as_tensor(what: str, values: Any, device: torch.device, dtype: torch.dtype) -> Tensor:
    """`values` on `device`; float64 only if the model's `dtype` is, since not every device has it."""
    try:
        if isinstance(values, np.ndarray):  # PyTorch takes no reversed, byte-swapped or read-only arrays
            if np.ma.is_masked(values):
                values = np.ma.filled(values.astype(float), np.nan)
            values = np.array(values, dtype=values.dtype.newbyteorder("="), order="C")
        values = values if isinstance(values, Tensor) else torch.as_tensor(values, device="cpu")
        if values.layout != torch.strided or values.is_quantized or values.is_nested:
            raise EvidenceError(f"{what} is sparse, nested or quantized; expected a plain tensor, as x.to_dense()")
        if values.dtype == torch.float64 and dtype != torch.float64:
            values = values.to(torch.float32)
        values = values.to(device)
    except (TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, EvidenceError):
            raise
        raise EvidenceError(f"{what} is not a numeric array: {error}") from error
    if values.is_complex():
        raise EvidenceError(f"{what} is complex; expected labels or values in [0, 1]")
    return values.long() if values.dtype in _BARELY_SUPPORTED else values


def _mask(layer: Layer, mask: Any, batch: int, device: torch.device) -> Tensor:
    seen = as_tensor(f"the mask for layer '{layer.name}'", mask, device, torch.float32)
    if seen.dtype != torch.bool:
        raise EvidenceError(f"the mask for layer '{layer.name}' must be boolean (True = seen), got {seen.dtype}")
    if tuple(seen.shape) != (batch, *layer.sizes):
        raise EvidenceError(
            f"the mask for layer '{layer.name}' must be shaped {(batch, *layer.sizes)}, got {tuple(seen.shape)}"
        )
    return seen.flatten(1)


def _free(layer: Layer, values: Tensor, seen: Tensor | None, vectors: bool) -> Tensor | None:
    """Which nodes are missing; None if none is. Where values cannot be looked at, a mask is kept."""
    missing = values.isnan() if values.is_floating_point() else None
    if missing is not None and vectors:
        missing = missing.any(-1)
    if seen is not None:
        wrong = None if missing is None else missing & seen
        if wrong is not None and not is_traced(wrong) and bool(wrong.any()):
            raise EvidenceError(f"the mask for layer '{layer.name}' marks entries as seen whose value is NaN")
        missing = ~seen if missing is None else missing | ~seen
    if missing is None or (not is_traced(missing) and not bool(missing.any())):
        return None
    return missing


def _probabilities(layer: Layer, values: Tensor, free: Tensor | None, vectors: bool, dtype: torch.dtype) -> Tensor:
    k = layer.labels - 1
    if vectors:
        _check_range(layer, values, 0.0, 1.0, "probabilities")
        if not is_traced(values):
            totals = values.to(torch.promote_types(values.dtype, torch.float32)).sum(-1)
            off = (totals - 1).abs() > 1e-3
            if free is not None:
                off = off & ~free
            if bool(off.any()):
                worst = totals[off][0].item()
                raise EvidenceError(
                    f"probabilities for layer '{layer.name}' must sum to 1 over {layer.labels} labels, got {worst:g}"
                )
        return values[..., 1:].to(dtype)
    if layer.labels == 2 and values.is_floating_point():
        _check_range(layer, values, 0.0, 1.0, "means of binary nodes")
        return values.unsqueeze(-1).to(dtype)
    _check_range(layer, values, 0, k, "labels")
    if values.is_floating_point() and not is_traced(values) and bool((values != values.round()).any()):
        raise EvidenceError(
            f"evidence for layer '{layer.name}' with {layer.labels} labels must be whole labels 0 to {k}, or "
            f"probabilities shaped (batch, {', '.join(map(str, layer.sizes))}, {layer.labels})"
        )
    return one_hot(values, k, dtype)


def _check_range(layer: Layer, values: Tensor, low: float, high: float, what: str) -> None:
    if is_traced(values):
        return
    least, most = values.amin().item(), values.amax().item()
    if not (least >= low and most <= high):
        raise EvidenceError(
            f"{what} of layer '{layer.name}' must lie in [{low:g}, {high:g}], got values from {least:g} to {most:g}"
        )
