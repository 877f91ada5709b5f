"""The parameters of several models of one star-shaped graph, side by side, in the form in which they are trained."""

from __future__ import annotations

import math
from copy import copy, deepcopy
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from torchlgm.model import LGM
from torchlgm.ops.softplus import softplus_sum
from torchlgm.sklearn.encoding import Plan
from torchlgm.sklearn.slots import Slots
from torchlgm.spec import Graph

INPUT_STD, CLASS_STD = 3.0, 0.1  # of the initial energies; the first is shared by the columns


class Stack:
    """The parameters of all members, as they are trained: `flat` `(M, size)`, of which the others are parts."""

    def __init__(self, slots: Slots, start: LGM, members: int, hidden: str, target: str, seed: int) -> None:
        """Unaries are those of `start`, the same in all members; what is drawn differs."""
        generator = torch.Generator().manual_seed(seed)
        nodes, classes = start.unary[hidden].shape[0], start.graph.layer(target).labels
        self.slots, self.shape = slots, slots.shape(nodes, classes)

        def drawn(*shape: int) -> Tensor:
            return torch.randn(members, *shape, generator=generator, dtype=torch.float32).to(slots.device)

        unary = torch.cat([F.pad(-start.unary[p.layer].detach(), (1, 0)).flatten() for p in slots.places])
        self.flat = torch.zeros(members, sum(self.shape.sizes), dtype=torch.float32, device=slots.device)
        self.inputs.copy_(drawn(self.shape.slots, nodes) * (INPUT_STD / math.sqrt(len(slots.labels))))
        self.out.copy_(drawn(nodes, classes) * CLASS_STD)
        self.unary.copy_(unary.expand(members, -1))
        self.target.copy_(F.pad(-start.unary[target].detach()[0], (1, 0)).expand(members, -1))
        often = self._often() * slots.values(self.inputs)
        self.hidden.copy_(-often.sum(1).unsqueeze(-1))  # so that an average row has log-odds of 0

    def some(self, members: slice) -> Stack:
        """Some of the members; their parameters are parts of these."""
        stack = copy(self)
        stack.flat = self.flat[members]
        return stack

    def _part(self, number: int, *shape: int) -> Tensor:
        """A part of the parameters: values of slots, log-odds of hidden nodes, energies of the class, and unaries."""
        return self.flat.split(self.shape.sizes, 1)[number].unflatten(1, shape)

    @property
    def inputs(self) -> Tensor:
        return self._part(0, self.shape.slots, self.shape.hidden)

    @property
    def hidden(self) -> Tensor:
        return self._part(1, self.shape.hidden, 1)

    @property
    def out(self) -> Tensor:
        return self._part(2, self.shape.hidden, self.shape.classes)

    @property
    def unary(self) -> Tensor:
        return self._part(3, self.shape.slots)

    @property
    def target(self) -> Tensor:
        return self._part(4, self.shape.classes)

    def _often(self) -> Tensor:
        """The probability of each label of a node of which nothing is known, `(M, slots, 1)`."""
        weights = self.unary.exp()
        return (weights / self._by_column(weights.unsqueeze(-1)).squeeze(-1)[:, self.slots.column]).unsqueeze(-1)

    def _by_column(self, x: Tensor) -> Tensor:
        """Sums `(M, columns, k)` over the slots of each column."""
        sums = x.new_zeros(x.shape[0], len(self.slots.labels), x.shape[2])
        return sums.index_add_(1, self.slots.column, x)

    def log_probs(self, rows: Tensor) -> Tensor:
        """log of the class beliefs for `rows` of `Slots.dense`, `(M, B, slots + columns)` -> `(M, C, B)`.

        A missing column tells a hidden node the log of what its labels sum out to, often or seldom as they are.
        """
        values = self.slots.values(self.inputs)
        absent = self._by_column(self._often() * values.clamp(max=60).exp()).clamp(min=1e-30).log()
        table = torch.cat([values, absent], 1).transpose(1, 2)
        odds = torch.baddbmm(self.hidden, table, rows.transpose(1, 2))
        return torch.log_softmax(softplus_sum(odds, self.out) + self.target.unsqueeze(-1), 1)

    @torch.no_grad()
    def models(self, graph: Graph, plan: Plan, hidden: str) -> list[LGM]:
        """The members as models of the graph: their energies leave label 0 at 0."""
        blank = LGM(graph, "zero", dtype=torch.float32)
        energies = self._energies(plan.target, hidden)
        models = []
        for member in range(len(self.flat)):
            model = deepcopy(blank, {id(graph): graph})
            for (left, right), table in energies.table.items():
                model.table[_between(graph, left, right)].copy_(table[member])
            for layer, unary in energies.unary.items():
                model.unary[layer].copy_(unary[member])
            models.append(model)
        return models

    def _energies(self, target: str, hidden: str) -> _Energies:
        """Of all members, with label 0 at 0."""
        values, out = self.slots.values(self.inputs), self.out
        start, shift = 0, out[..., 0].clone()
        tables, unaries = {}, {}
        for place in self.slots.places:
            stop = start + len(place.columns) * place.labels
            here = values[:, start:stop].unflatten(1, (-1, place.labels))
            weights = self.unary[:, start:stop].unflatten(1, (-1, place.labels))
            tables[place.layer, hidden] = (here[:, :, :1] - here[:, :, 1:]).transpose(2, 3).unsqueeze(-1)
            unaries[place.layer] = weights[..., :1] - weights[..., 1:]
            shift += here[:, :, 0].sum(1)
            start = stop
        unaries[hidden] = -(self.hidden + shift.unsqueeze(-1))
        tables[hidden, target] = (out[..., :1] - out[..., 1:])[:, :, None, None]
        unaries[target] = (self.target[:, :1] - self.target[:, 1:]).unsqueeze(1)
        return _Energies(tables, unaries)


class _Energies(NamedTuple):
    table: dict[tuple[str, str], Tensor]  # by the layers that are joined
    unary: dict[str, Tensor]


def _between(graph: Graph, left: str, right: str) -> str:
    return next(c.name for c in graph.connections if (c.left, c.right) == (left, right))
