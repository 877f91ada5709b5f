"""From a table to evidence for the input layers of a graph, and from beliefs to probabilities by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from torchlgm.data import Columns
from torchlgm.inference import Beliefs, Method
from torchlgm.learn import Samples, start_from_data
from torchlgm.model import LGM, Encoding, Init
from torchlgm.mrf import Clamp
from torchlgm.ops import one_hot
from torchlgm.posterior import Posterior
from torchlgm.sklearn.columns import Categories, Column, Numbers
from torchlgm.sklearn.knots import Lines
from torchlgm.sklearn.parts import VALUE, Part, split_up
from torchlgm.sklearn.reading import Raw
from torchlgm.spec import Graph, Layer

ROWS_AT_ONCE = 2**9  # that are scaled


@dataclass(frozen=True)
class Place:
    """An input layer and the numbers of the columns that are its nodes."""

    layer: str
    columns: tuple[int, ...]
    labels: int


@dataclass(frozen=True)
class Rows(Encoding):
    """How rows `(B, columns)` in [0, 1] become evidence: soft between the two nearest labels."""

    places: tuple[Place, ...]

    @property
    def layers(self) -> tuple[str, ...]:
        return tuple(place.layer for place in self.places)

    def split(self, x: Tensor) -> dict[str, Tensor]:
        return {place.layer: x[:, list(place.columns)] for place in self.places}

    def probs(self, layer: Layer, x: Tensor, dtype: torch.dtype) -> Tensor:
        labels = torch.arange(1, layer.labels, device=x.device, dtype=dtype)
        near = 1 - (x.to(dtype).unsqueeze(-1) * (layer.labels - 1) - labels).abs()
        return near.clamp(min=0)

    def values(self, probs: Mapping[str, Tensor]) -> Tensor:
        like = probs[self.places[0].layer]
        x = like.new_empty(len(like), sum(len(place.columns) for place in self.places))
        for place in self.places:
            labels = torch.linspace(0, 1, place.labels, dtype=like.dtype, device=like.device)
            x[:, list(place.columns)] = (probs[place.layer] * labels).sum(-1)
        return x

    def filled(self, seen: Mapping[str, Clamp], drawn: Mapping[str, Tensor]) -> dict[str, Clamp]:
        """What was `seen`, with labels that were `drawn` `(B, *shape)` in place of what was not."""
        whole = {}
        for place in self.places:
            q, free = seen[place.layer]
            hard = one_hot(drawn[place.layer].flatten(1), place.labels - 1, q.dtype)
            whole[place.layer] = Clamp(q if free is None else torch.where(free.unsqueeze(-1), hard, q))
        return whole


class NumberColumns(Lines):
    """The numeric ones among columns, with their places."""

    def __init__(self, placed: Sequence[tuple[int, Numbers]]) -> None:
        super().__init__([column.knots for _, column in placed])
        self.columns = [j for j, _ in placed]
        self.with_units = [i for i, (_, c) in enumerate(placed) if not c.is_time and len(c.knots) > 1]


@dataclass(frozen=True)
class Plan:
    """What the nodes for the columns of a table are (None for one without any value), and where they stand in a graph.

    The first nodes are the columns themselves, the others parts of them.
    """

    parts: tuple[Part, ...]
    columns: tuple[Column | None, ...]
    places: tuple[Place, ...]
    graph: Graph
    shape: tuple[int, ...]  # of a row, as training hides entries of it

    @property
    def of_table(self) -> tuple[Column | None, ...]:
        """What the columns of the table are, without parts of them."""
        return tuple(c for c, part in zip(self.columns, self.parts, strict=True) if part.what == VALUE)

    def scale(self, raws: Sequence[Raw]) -> Tensor:
        """The rows `(N, *shape)` in [0, 1], float32, NaN = missing or unknown."""
        for column, raw in zip(self.columns, raws, strict=False):  # of the table
            if column is not None:
                column.check(raw)
        raws = split_up(raws, self.parts)
        x = torch.full((len(raws[0].values), len(raws)), torch.nan, dtype=torch.float32)
        numbers = self._numbers
        if numbers.columns:
            values = torch.from_numpy(np.stack([raws[j].values for j in numbers.columns], 1))
            self._warn_of_other_units(raws, values)
            x[:, numbers.columns] = torch.cat([numbers.scale(part).float() for part in values.split(ROWS_AT_ONCE)])
        for j, column in enumerate(self.columns):
            if isinstance(column, Categories):
                x[:, j] = torch.from_numpy(column.scale(raws[j].values))
        return x.reshape(-1, *self.shape)

    @cached_property
    def _numbers(self) -> NumberColumns:
        return NumberColumns([(j, column) for j, column in enumerate(self.columns) if isinstance(column, Numbers)])

    def _warn_of_other_units(self, raws: Sequence[Raw], values: Tensor) -> None:
        """If numbers are far outside the range of the training, which would count as its ends."""
        told, low, high = self._numbers.with_units, self._numbers.low, self._numbers.high
        width = high - low
        far = (values < low - width) | (values > high + width)
        if bool(far[:, told].any()):
            names = tuple(raws[self._numbers.columns[i]].name for i in told)
            ends = (tuple(end[told].tolist()) for end in (low, high))
            Columns(names, *ends).warn_of_other_units(values[:, told], "make it NaN")

    @property
    def target(self) -> str:
        return self.graph.root

    def ordered(self) -> Tensor:
        """Whether the labels of a column are knots, by column in the order of the layers."""
        return torch.tensor([isinstance(self.columns[j], Numbers) for place in self.places for j in place.columns])

    @property
    def start(self) -> Init:
        """Weak, so that a missing entry has no loud opinion before anything is learned; stronger for few columns, whose
        voices would hardly differ otherwise, and for several hidden layers, which would hardly pass on anything."""
        if len(self.graph.layers) - len(self.places) > 2:
            return Init(table=0.3, scale="balanced")
        return Init(table=min(1.0, max(0.1, 2 / len(self.columns))), scale="energy")

    @property
    def rows(self) -> Rows:
        return Rows(self.places)

    def posterior(self, model: LGM, method: Method) -> Posterior:
        return Posterior(model, method, self.rows, self.target)

    def by_column(self, beliefs: Beliefs) -> list[np.ndarray]:
        """Beliefs of the layers -> `(N, labels)` for each column."""
        found: dict[int, np.ndarray] = {}
        for place in self.places:
            here = beliefs[place.layer].probs.flatten(1, -2).cpu().numpy()
            found |= {column: here[:, i] for i, column in enumerate(place.columns)}
        return [found[j] for j in range(len(self.columns))]


def start_from_rows(model: LGM, plan: Plan, samples: Samples) -> None:
    """Set the unaries of inputs and class to how often each label occurs, by weight."""
    weights = samples.targets.sum((1, 2))
    start_from_data(model, plan.target, samples.targets / weights.view(-1, 1, 1), weights=weights)
    for layer, clamp in plan.rows(model, samples.inputs).items():
        start_from_data(model, layer, clamp, weights=weights)


def labels_of_class(plan: Plan, samples: Samples) -> Tensor:
    """How often each label of a column occurs in a class, by weight, `(C, columns, K)`: drawn a little toward how often
    it occurs at all. A column without any value has label 0 alone."""
    targets = samples.targets[:, 0]  # (N, C)
    shares = targets.new_zeros(targets.shape[1], len(plan.columns), max(place.labels for place in plan.places))
    for place in plan.places:
        x = samples.inputs.flatten(1)[:, list(place.columns)]
        labels = torch.arange(place.labels, dtype=x.dtype)
        near = 1 - (x.nan_to_num().unsqueeze(-1) * (place.labels - 1) - labels).abs()
        counts = torch.einsum("nc,nik->cik", targets, near.clamp(min=0) * (~x.isnan()).unsqueeze(-1))
        total = counts.sum(0)
        total[total.sum(1) == 0, 0] = 1
        counts += total / total.sum(1, keepdim=True)
        shares[:, list(place.columns), : place.labels] = counts / counts.sum(2, keepdim=True)
    return shares
