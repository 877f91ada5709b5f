"""What members that were trained to fill in say of missing entries, in closed form: see `torchlgm.sklearn.filling`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchlgm.model import LGM
from torchlgm.ops.compact import full, softplus
from torchlgm.sklearn.encoding import Plan

AT_ONCE = 2**23  # numbers


class Column(NamedTuple):
    """A node of all members: minus its energies, and what it tells hidden nodes while it is missing."""

    unary: Tensor  # (M, K), logs of probabilities
    table: Tensor  # (M, K, H)
    absent: Tensor  # (M, 1, H)


class Completion:
    """Members of one graph of columns and a layer of hidden nodes, in double precision where the device has it."""

    def __init__(self, members: Sequence[LGM], plan: Plan, dtype: torch.dtype) -> None:
        graph = plan.graph
        links = {c.left: c.name for c in graph.connections}
        nodes: dict[int, Column] = {}
        with torch.no_grad():
            self.hidden = -torch.stack([model.unary[graph.root][:, 0] for model in members]).to(dtype).unsqueeze(1)
            for place in plan.places:
                unary = torch.stack([full(-model.unary[place.layer]) for model in members]).to(dtype)
                tables = [full(-model.energies(links[place.layer])[..., 0]) for model in members]
                table = torch.stack(tables).to(dtype).transpose(2, 3)  # (M, nodes, K, H)
                unary = torch.log_softmax(unary, -1)
                absent = torch.logsumexp(unary.unsqueeze(-1) + table, 2, keepdim=True)
                for i, j in enumerate(place.columns):
                    nodes[j] = Column(unary[:, i], table[:, i], absent[:, i])
        self.columns = [nodes[j] for j in range(len(nodes))]

    def odds(self, x: Tensor) -> Tensor:
        """Log-odds `(M, N, H)` of hidden nodes, of rows `(N, nodes)` in [0, 1], NaN = missing."""
        odds = self.hidden
        for j in range(len(self.columns)):
            odds = odds + self.said(j, x[:, j])
        return odds.expand(-1, len(x), -1)

    def said(self, j: int, values: Tensor) -> Tensor:
        """What values `(N,)` of a node tell the hidden nodes, `(M, N, H)`."""
        column = self.columns[j]
        return torch.where(values.isnan().unsqueeze(-1), column.absent, _soft(values, column) @ column.table)

    def probs(self, x: Tensor, j: int) -> Tensor:
        """Beliefs about a node `(N, labels)`; of rows in which it was seen, what was seen."""
        probs = _soft(x[:, j], self.columns[j])
        for part in self._parts(x[:, j].isnan().nonzero().squeeze(1), j):
            probs[part] = self.given(self.odds(x[part]), j).mean(0)
        return probs

    def given(self, odds: Tensor, j: int) -> Tensor:
        """Beliefs of each member about a missing node `(M, N, labels)`, whose rows have these log-odds."""
        column = self.columns[j]
        each = softplus((odds - column.absent).unsqueeze(2) + column.table.unsqueeze(1))
        return torch.softmax(column.unary.unsqueeze(1) + each.sum(-1), -1)

    def drawn(self, x: Tensor, nodes: Sequence[int], generator: np.random.Generator) -> Tensor:
        """Rows with the missing ones of `nodes` drawn, one after the other in an order of its own for each row, given
        what was seen or drawn before. One member, drawn by chance, answers for a row."""
        x = x.clone()
        member = torch.as_tensor(generator.integers(len(self.hidden), size=len(x)))
        odds = self.odds(x)[member, torch.arange(len(x))]
        order = torch.as_tensor(np.argsort(generator.random((len(x), len(nodes))), 1))
        numbers = torch.tensor(list(nodes))
        for step in order.unbind(1):
            for j in step.unique().tolist():
                node = int(numbers[j])
                rows = ((step == j) & x[:, node].isnan()).nonzero().squeeze(1)
                for part in self._parts(rows, node):
                    column, m = self.columns[node], member[part]
                    changed = odds[part] - column.absent[m, 0]
                    each = softplus(changed.unsqueeze(1) + column.table[m]).sum(-1)
                    probs = torch.softmax(column.unary[m] + each, -1)
                    labels = _choose(probs, torch.as_tensor(generator.random(len(part))))
                    x[part, node] = labels.to(x.dtype) / (probs.shape[1] - 1)
                    odds[part] = changed + column.table[m, labels]
        return x

    def _parts(self, rows: Tensor, j: int) -> Iterator[Tensor]:
        return iter(rows.split(max(1, AT_ONCE // self.columns[j].table.numel())))


def _soft(values: Tensor, column: Column) -> Tensor:
    """Values `(N,)` in [0, 1] as probabilities of the labels `(N, labels)`: soft between the two nearest."""
    labels = column.unary.shape[1]
    at = values.nan_to_num().unsqueeze(-1) * (labels - 1)
    return (1 - (at - torch.arange(labels, dtype=values.dtype, device=values.device)).abs()).clamp(min=0)


def _choose(probs: Tensor, at: Tensor) -> Tensor:
    """Labels `(N,)` drawn from probabilities `(N, labels)`, by numbers from 0 to 1."""
    return (probs.cumsum(1) < at.unsqueeze(1)).sum(1).clamp(max=probs.shape[1] - 1)
