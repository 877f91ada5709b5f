"""From inputs `(B, *shape)` as data sets have them to evidence about layers, and from beliefs back to such values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import torch
from torch import Tensor

from torchlgm._utils.tracing import is_traced
from torchlgm.errors import EvidenceError
from torchlgm.model.lgm import LGM
from torchlgm.mrf import Clamp
from torchlgm.ops.compact import one_hot
from torchlgm.spec import Graph, Layer


@dataclass(frozen=True)
class Encoding(ABC):
    """How inputs `(B, *shape)` become evidence about one layer, or several.

    `missing=False` promises that no entry is NaN, which is several times as fast: no message goes to the inputs.
    """

    missing: bool = field(default=True, kw_only=True)

    @property
    @abstractmethod
    def layers(self) -> tuple[str, ...]:
        """The layers that take inputs."""

    @abstractmethod
    def split(self, x: Tensor) -> dict[str, Tensor]:
        """Numbers for all inputs `(B, inputs)` -> those of each layer, `(B, nodes)`."""

    @abstractmethod
    def probs(self, layer: Layer, x: Tensor, dtype: torch.dtype) -> Tensor:
        """Inputs of a layer without missing ones `(B, nodes)` -> probabilities of the labels 1 .. K-1."""

    @abstractmethod
    def values(self, probs: Mapping[str, Tensor]) -> Tensor:
        """Beliefs about each layer `(B, nodes, K)` -> the inputs that are expected, `(B, inputs)`."""

    def most(self, graph: Graph, x: Tensor) -> float:
        """The largest value that an input may have."""
        del graph, x
        return 1

    def __call__(self, model: LGM, x: Tensor, seen: Tensor | None = None) -> dict[str, Clamp]:
        """The evidence of inputs whose values are not checked.

        Entries are missing that are NaN or, if a mask `seen` is given, False there.
        """
        self._check_shape(model.graph, x)
        x = x.flatten(1)
        free = x.isnan() if self.missing and x.is_floating_point() else None
        if seen is not None:
            free = ~seen.flatten(1) if free is None else free | ~seen.flatten(1)
        if free is not None:
            x = x.masked_fill(free, 0)
        parts, frees = self.split(x), {} if free is None else self.split(free)
        return {
            name: Clamp(self.probs(model.graph.layer(name), part, model.unary[name].dtype), frees.get(name))
            for name, part in parts.items()
        }

    def check(self, graph: Graph, x: Tensor, seen: Tensor | None = None) -> None:
        """Raise EvidenceError unless inputs are in [0, 1] or missing or, if they are integers, labels of their layer.

        Where values cannot be looked at, as in a capture, only shapes are checked.
        """
        self._check_shape(graph, x)
        if seen is not None:
            if seen.dtype != torch.bool or seen.flatten(1).shape != x.flatten(1).shape:
                raise EvidenceError(
                    f"seen is {seen.dtype} shaped {tuple(seen.shape)}; expected booleans, True for what was seen, "
                    f"shaped as the values are, {tuple(x.shape)}"
                )
            x = x.masked_fill(~seen.reshape(x.shape), 0)
        if is_traced(x):
            return
        most = self.most(graph, x)
        outside = range_outside(x, most)
        if outside is None:
            return
        names = " and ".join(f"'{name}'" for name in self.layers)
        if x.is_floating_point():
            raise EvidenceError(
                f"inputs of layer {names} must be in [0, 1], NaN = missing, got {outside}; scale them first, images "
                "of 0 to 255 as x / 255"
            )
        raise EvidenceError(
            f"integer inputs are labels, 0 to {most:g} in layer {names}, got {outside}; pass other values as floats in "
            "[0, 1], images of 0 to 255 as x / 255"
        )

    def _check_shape(self, graph: Graph, x: Tensor) -> None:
        nodes = sum(graph.layer(name).nodes for name in self.layers)
        if x.dim() < 2 or x.shape[1:].numel() != nodes:
            shapes = " and ".join(f"'{name}', which is shaped {graph.layer(name).sizes}" for name in self.layers)
            raise EvidenceError(f"inputs shaped {tuple(x.shape[1:])} do not fit layer {shapes}")

    def for_complete_inputs(self) -> Self:
        """The same for inputs of which none is missing."""
        return replace(self, missing=False)


@dataclass(frozen=True)
class InputEncoding(Encoding):
    """Inputs in [0, 1] as evidence about one layer.

    They are the means of binary nodes; for more labels they are cut into as many bins of equal width, and whole numbers
    (integer dtype) are labels already, of which none is missing.
    """

    layer: str

    @property
    def layers(self) -> tuple[str, ...]:
        return (self.layer,)

    def split(self, x: Tensor) -> dict[str, Tensor]:
        return {self.layer: x}

    def probs(self, layer: Layer, x: Tensor, dtype: torch.dtype) -> Tensor:
        if layer.labels == 2:
            return x.unsqueeze(-1).to(dtype)
        if x.is_floating_point():
            x = (x * layer.labels).floor().clamp(max=layer.labels - 1)
        return one_hot(x, layer.labels - 1, dtype)

    def values(self, probs: Mapping[str, Tensor]) -> Tensor:
        """The middle of each bin."""
        labels = probs[self.layer].shape[-1]
        values = torch.arange(labels, dtype=probs[self.layer].dtype, device=probs[self.layer].device)
        values = values if labels == 2 else (values + 0.5) / labels
        return (probs[self.layer] * values).sum(-1)

    def most(self, graph: Graph, x: Tensor) -> float:
        return 1 if x.is_floating_point() else graph.layer(self.layer).labels - 1


def range_outside(x: Tensor, most: float) -> str | None:
    """From where to where values go, NaN aside, if some are not in 0 .. `most`."""
    if x.numel() == 0:
        return None
    low, high = x.aminmax()
    if bool(low.isnan()):
        low, high = x.nan_to_num(0, torch.inf, -torch.inf).aminmax()
    low, high = low.item(), high.item()
    return None if low >= 0 and high <= most else f"{low:g} to {high:g}"
