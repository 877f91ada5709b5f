"""The parameters of several models of one star-shaped graph, side by side, in the form in which they are trained."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from torchlgm.model import LGM
from torchlgm.ops.softplus import softplus_sum
from torchlgm.sklearn.encoding import Place, Plan

INPUT_STD, CLASS_STD = 3.0, 0.1  # of the initial energies; the first is shared by the columns


@dataclass(frozen=True)
class Slots:
    """Every label of every column is a slot; columns are in the order of the layers.

    A category has a free value for each label. A number's values add up from knot to knot, by steps that are alike
    before anything is learned: neighbouring knots share what they learn.
    """

    places: tuple[Place, ...]
    ordered: Tensor  # (columns,): whether labels are knots
    column: Tensor = field(init=False)  # (slots,)
    first: Tensor = field(init=False)  # (columns,): the slot of label 0
    scale: Tensor = field(init=False)  # (slots, 1): of steps; 0 at label 0

    def __post_init__(self) -> None:
        labels = torch.tensor([p.labels for p in self.places for _ in p.columns])
        column = torch.repeat_interleave(torch.arange(len(labels)), labels)
        first = labels.cumsum(0) - labels
        step = (labels - 1).to(torch.float32).rsqrt()[column].masked_fill(torch.arange(len(column)) == first[column], 0)
        for name, value in (("column", column), ("first", first), ("scale", step.unsqueeze(1))):
            object.__setattr__(self, name, value.to(self.ordered.device))

    def values(self, free: Tensor) -> Tensor:
        """Free numbers `(M, slots, H)` -> minus the energies, up to a constant of each column."""
        if not self.ordered.any():
            return free
        upto = (free * self.scale).cumsum(1)
        steps = upto - upto.index_select(1, self.first).index_select(1, self.column)
        return steps if self.ordered.all() else torch.where(self.ordered[self.column].unsqueeze(1), steps, free)

    def read(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Rows `(N, columns)` in [0, 1] -> probabilities of the labels `(N, slots)`, 0 where missing, and which entries
        were seen, `(N, columns)`, 1 or 0."""
        parts, seen = [], []
        for place in self.places:
            at = x[:, list(place.columns)]
            here = (~at.isnan()).to(x.dtype)
            labels = torch.arange(place.labels, device=x.device, dtype=x.dtype)
            near = 1 - (at.nan_to_num().unsqueeze(-1) * (place.labels - 1) - labels).abs()
            parts.append((near.clamp(min=0) * here.unsqueeze(-1)).flatten(1))
            seen.append(here)
        return torch.cat(parts, 1), torch.cat(seen, 1)

    def rows(self, q: Tensor, seen: Tensor) -> Tensor:
        """What multiplies values and what is sent while missing: `(M, B, slots + columns)`."""
        return torch.cat([q * seen.index_select(2, self.column), 1 - seen], 2)


class Stack:
    """The parameters of all members, as they are trained."""

    def __init__(self, slots: Slots, start: LGM, members: int, hidden: str, target: str, seed: int) -> None:
        """Unaries are those of `start`, the same in all members; what is drawn differs."""
        generator = torch.Generator().manual_seed(seed)
        device = slots.ordered.device
        nodes, classes = start.unary[hidden].shape[0], start.graph.layer(target).labels
        columns, count = len(slots.first), len(slots.column)

        def drawn(*shape: int) -> Tensor:
            return torch.randn(members, *shape, generator=generator, dtype=torch.float32).to(device)

        unary = [F.pad(-start.unary[p.layer].detach(), (1, 0)).flatten() for p in slots.places]
        self.slots = slots
        self.inputs = drawn(count, nodes) * (INPUT_STD / math.sqrt(columns))
        self.out = drawn(nodes, classes) * CLASS_STD
        self.unary = torch.cat(unary).expand(members, -1).clone()
        self.target = F.pad(-start.unary[target].detach()[0], (1, 0)).expand(members, -1).clone()
        often = self._often() * slots.values(self.inputs)
        self.hidden = -often.sum(1).unsqueeze(-1)  # so that an average row has log-odds of 0
        for parameter in self.parameters():
            parameter.requires_grad_(True)

    def parameters(self) -> list[Tensor]:
        return [self.inputs, self.hidden, self.out, self.unary, self.target]

    def _often(self) -> Tensor:
        """The probability of each label of a node of which nothing is known, `(M, slots, 1)`."""
        weights = self.unary.exp()
        return (weights / self._by_column(weights.unsqueeze(-1)).squeeze(-1)[:, self.slots.column]).unsqueeze(-1)

    def _by_column(self, x: Tensor) -> Tensor:
        """Sums `(M, columns, k)` over the slots of each column."""
        return x.new_zeros(x.shape[0], len(self.slots.first), x.shape[2]).index_add(1, self.slots.column, x)

    def log_probs(self, rows: Tensor) -> Tensor:
        """log of the class beliefs `(M, C, B)`, of rows as `Slots.rows` gives them.

        The formula of `torchlgm.inference.star`, with one matrix product for all columns.
        """
        values = self.slots.values(self.inputs)
        absent = self._by_column(self._often() * values.clamp(max=60).exp()).clamp(min=1e-30).log()
        table = torch.cat([values, absent], 1).transpose(1, 2)
        odds = torch.baddbmm(self.hidden, table, rows.transpose(1, 2))
        return torch.log_softmax(softplus_sum(odds, self.out) + self.target.unsqueeze(-1), 1)

    def shrink(self, members: slice, weight: float) -> None:
        """Add the gradient of `weight / 2` times the squares of the energies of some members."""
        for parameter in (self.inputs, self.out):
            assert parameter.grad is not None
            parameter.grad[members].add_(parameter.detach()[members], alpha=weight)

    def model(self, member: int, like: LGM, plan: Plan, hidden: str) -> LGM:
        """One member as a model of the graph: its energies leave label 0 at 0."""
        model = LGM(like.graph, "zero", dtype=torch.float32)
        values, unary = self.slots.values(self.inputs)[member], self.unary[member]
        out, target = self.out[member], self.target[member]
        with torch.no_grad():
            start, shift = 0, out[:, 0].clone()
            for place in self.slots.places:
                stop = start + len(place.columns) * place.labels
                here = values[start:stop].unflatten(0, (-1, place.labels))
                weights = unary[start:stop].unflatten(0, (-1, place.labels))
                model.table[_between(like, place.layer, hidden)].copy_(
                    (here[:, :1] - here[:, 1:]).transpose(1, 2).unsqueeze(-1)
                )
                model.unary[place.layer].copy_(weights[:, :1] - weights[:, 1:])
                shift += here[:, 0].sum(0)
                start = stop
            model.unary[hidden].copy_(-(self.hidden[member] + shift.unsqueeze(1)))
            model.table[_between(like, hidden, plan.target)].copy_((out[:, :1] - out[:, 1:])[:, None, None])
            model.unary[plan.target].copy_((target[:1] - target[1:]).unsqueeze(0))
        return model


def _between(model: LGM, left: str, right: str) -> str:
    return next(c.name for c in model.graph.connections if (c.left, c.right) == (left, right))
