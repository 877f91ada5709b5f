"""One hidden layer between inputs and a class, in closed form: matrix products instead of messages.

One sweep of loopy belief propagation from the inputs to the class sends each message once. Then an input sends its
hidden nodes the field of what was observed or, where it is missing, the log of what its labels sum out to, which is the
same for all rows. So the log-odds of all hidden nodes are one matrix product, and the class follows from sums of
softplus. The answers are those of `infer(model, evidence, lbp(1))`, which says it for any graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from torchlgm.inference.methods import Exact, Method, lbp
from torchlgm.mrf import Clamp
from torchlgm.ops.compact import full
from torchlgm.ops.softplus import softplus_sum
from torchlgm.spec import Dense, Graph


class Energies(Protocol):
    """A model with a graph; `unary` and `energies` are as in `torchlgm.LGM`."""

    graph: Graph

    @property
    def unary(self) -> Any: ...

    def energies(self, connection: str) -> Tensor: ...


class StarLayers(NamedTuple):
    """The names of the layers, and for each input that of its connection to the hidden layer."""

    inputs: Mapping[str, str]
    hidden: str
    out: str  # the connection of the hidden layer and the class
    target: str


def star_layers(graph: Graph, method: Method | Exact, target: str) -> StarLayers | None:
    """The layers if the graph is a star to which the closed form applies with this method, else None.

    That is: dense connections from each input layer to one binary hidden layer and from there to a target of one node,
    declared in this order, and `lbp(1)` with its default schedule.
    """
    names = list(graph.layer_names)
    if method != lbp(1) or len(names) < 3 or names[-1] != target or graph.layer(target).nodes != 1:
        return None
    *inputs, hidden = names[:-1]
    ends = {(c.left, c.right): c.name for c in graph.connections if isinstance(c, Dense)}
    wanted = [*[(name, hidden) for name in inputs], (hidden, target)]
    if graph.layer(hidden).labels != 2 or len(graph.connections) != len(wanted) or set(ends) != set(wanted):
        return None
    return StarLayers({name: ends[name, hidden] for name in inputs}, hidden, ends[hidden, target], target)


class Star(NamedTuple):
    """The energies of M models of one graph, side by side."""

    layers: StarLayers
    unary: Mapping[str, Tensor]  # of each input: (M, nodes, K-1)
    table: Mapping[str, Tensor]  # of each input to the hidden layer: (M, nodes, K-1, H)
    hidden: Tensor  # (M, H, 1)
    out: Tensor  # (M, H, C)
    target: Tensor  # (M, C)
    absent: Mapping[str, Tensor]  # what each node of an input tells the hidden nodes while it is missing: (M, nodes, H)

    @classmethod
    def of(cls, models: Sequence[Energies], layers: StarLayers) -> Star:
        def stacked(name: str) -> Tensor:
            return torch.stack([model.energies(name).squeeze(-1) for model in models])

        def unary(name: str) -> Tensor:
            return torch.stack([model.unary[name] for model in models])

        out = torch.stack([model.energies(layers.out)[:, 0, 0] for model in models])
        unaries = {name: unary(name) for name in layers.inputs}
        tables = {name: stacked(link).transpose(2, 3) for name, link in layers.inputs.items()}
        absent = {name: _summed_out(unaries[name], table) for name, table in tables.items()}
        hidden, target = unary(layers.hidden), full(unary(layers.target)[:, 0])
        return cls(layers, unaries, tables, hidden, full(out), target, absent)

    def log_probs(self, evidence: Mapping[str, Clamp]) -> Tensor:
        """log of the class beliefs of each model, `(M, B, C)`."""
        odds = -self.hidden
        for name, (q, free) in evidence.items():
            table = self.table[name]
            odds = odds - table.flatten(1, 2).transpose(1, 2) @ q.flatten(1).T
            if free is not None:
                odds = odds + self.absent[name].transpose(1, 2) @ free.to(q.dtype).T
        absent = [self.absent[name].sum(1).unsqueeze(-1) for name in self.layers.inputs if name not in evidence]
        odds = sum(absent, odds)
        return torch.log_softmax(softplus_sum(odds, -self.out).transpose(1, 2) - self.target.unsqueeze(1), -1)


def _summed_out(unary: Tensor, table: Tensor) -> Tensor:
    weights = torch.log_softmax(full(-unary), -1).unsqueeze(-1)
    return torch.logsumexp(weights - full(table.transpose(2, 3)).transpose(2, 3), 2)
