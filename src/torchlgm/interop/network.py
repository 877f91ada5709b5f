"""Pairwise networks of numbered variables, without layers, as layered models.

Variables are coloured so that no two neighbours have the same colour, and those with one colour and one number of
labels become a layer.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from torchlgm.errors import DataError, EvidenceError, GraphWarning
from torchlgm.inference import Beliefs
from torchlgm.model import LGM, Observed
from torchlgm.spec import Graph, Layer, Sparse

Factor = tuple[tuple[int, ...], np.ndarray]  # variables, and an energy for each of their labellings
Place = tuple[str, int] | None
Tables = dict[tuple[int, int], np.ndarray]


@dataclass(frozen=True, eq=False)
class Network:
    """A model whose nodes are numbered variables: variable v is node `places[v][1]` of layer `places[v][0]`.

    A variable with one label has no node, and its place is None. `constant` is the energy that no label can change: the
    model's log Z is that of the network plus `constant`.
    """

    model: LGM
    places: tuple[Place, ...]
    constant: float

    def evidence(self, *samples: Mapping[int, int]) -> dict[str, Observed]:
        """Labels of variables, one mapping for each sample, as evidence for the model."""
        layers = {layer.name: layer for layer in self.model.graph.layers}
        values = {name: torch.zeros(len(samples), *layer.sizes, dtype=torch.long) for name, layer in layers.items()}
        seen = {name: torch.zeros_like(v, dtype=torch.bool) for name, v in values.items()}
        for sample, labels in enumerate(samples):
            for variable, label in labels.items():
                if not 0 <= variable < len(self.places):
                    raise EvidenceError(f"variable {variable}: the network has 0 to {len(self.places) - 1}")
                place = self.places[variable]
                most = 1 if place is None else layers[place[0]].labels
                if not 0 <= label < most:
                    raise EvidenceError(f"variable {variable}: label {label}, expected 0 to {most - 1}")
                if place is not None:
                    values[place[0]][sample, place[1]] = label
                    seen[place[0]][sample, place[1]] = True
        observed = [name for name in layers if bool(seen[name].any())] or list(layers)[:1]
        return {name: Observed(values[name], seen[name]) for name in observed}

    def marginals(self, beliefs: Beliefs) -> list[Tensor]:
        """Probabilities `(B, labels)` of each variable."""
        one = beliefs.mrf.like.new_ones(beliefs.mrf.batch, 1)
        return [one if at is None else beliefs[at[0]].probs[:, at[1]] for at in self.places]

    def labels(self, beliefs: Beliefs) -> Tensor:
        """The most probable labelling, `(B, variables)`, from max-product or exact inference."""
        best = beliefs.map().labels
        none = beliefs.mrf.like.new_zeros(beliefs.mrf.batch, dtype=torch.long)
        return torch.stack([none if at is None else best[at[0]][:, at[1]] for at in self.places], 1)

    def log_z(self, beliefs: Beliefs) -> Tensor:
        """Natural log of the network's sum over all labellings that agree with the evidence, `(B,)`."""
        return beliefs.log_z - self.constant


def network_of(labels: Sequence[int], factors: Iterable[Factor]) -> Network:
    """The network of variables with so many `labels` each, and the sum of the energies of `factors` of 0, 1 or 2 of
    them. It is kept in the default dtype."""
    constant, unary, pairs = _summed(labels, factors)
    alive = [v for v, k in enumerate(labels) if k > 1]
    if not alive:
        raise DataError("a network in which no variable has two labels: there is nothing to infer")
    layers: dict[str, list[int]] = {}
    for v, colour in _colours(alive, pairs).items():
        layers.setdefault(f"k{labels[v]}_{colour}", []).append(v)
    places = {v: (name, i) for name, members in layers.items() for i, v in enumerate(members)}
    edges: dict[tuple[str, str], Tables] = {}
    for (left, right), table in pairs.items():
        if places[left] > places[right]:
            left, right, table = right, left, table.T
        (a, i), (b, j) = places[left], places[right]
        edges.setdefault((a, b), {})[i, j] = table
    sizes = {name: labels[members[0]] - 1 for name, members in layers.items()}
    for a, b in _bridges(list(layers), list(edges)):
        edges[a, b] = {(0, 0): np.zeros((sizes[a], sizes[b]))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)  # a variable in no factor of two is no mistake here
        graph = Graph(
            tuple(Layer(name, len(members), sizes[name] + 1) for name, members in layers.items()),
            tuple(Sparse(a, b, tuple(tables)) for (a, b), tables in edges.items()),
        )
        model = LGM(graph, init="zero")
    with torch.no_grad():
        for name, members in layers.items():
            model.unary[name].copy_(torch.from_numpy(np.stack([unary[v][1:] for v in members])))
        for (a, b), tables in edges.items():
            model.table[f"{a}-{b}"].copy_(torch.from_numpy(np.stack(list(tables.values()))))
    return Network(model, tuple(places.get(v) for v in range(len(labels))), constant)


def _summed(labels: Sequence[int], factors: Iterable[Factor]) -> tuple[float, list[np.ndarray], Tables]:
    """A constant, an energy for each variable and one for each pair (lower number first), all relative to label 0."""
    constant = 0.0
    unary = [np.zeros(k) for k in labels]
    pairs: Tables = {}
    for scope, given in factors:
        energies = np.asarray(given, dtype=np.float64)
        if energies.shape != tuple(labels[v] for v in scope):
            raise DataError(
                f"a factor of the variables {scope} needs an energy for each labelling, got {energies.shape}"
            )
        match scope:
            case ():
                constant += float(energies)
            case (v,):
                unary[v] += energies
            case (left, right):
                if left > right:
                    left, right, energies = right, left, energies.T
                unary[left] += energies[:, 0]
                unary[right] += energies[0] - energies[0, 0]
                table = (energies - energies[:, :1] - energies[:1] + energies[0, 0])[1:, 1:]
                if table.size:  # a variable with one label has no edge
                    pairs[left, right] = pairs.get((left, right), 0) + table
            case _:
                raise DataError(f"a factor of the variables {scope}; torchlgm models are pairwise, expected 1 or 2")
    constant += sum(float(u[0]) for u in unary)
    return constant, [u - u[0] for u in unary], pairs


def _colours(variables: Sequence[int], pairs: Tables) -> dict[int, int]:
    """The least colour that no neighbour has, breadth first: two colours for every tree and grid."""
    neighbours: dict[int, list[int]] = {v: [] for v in variables}
    for left, right in pairs:
        neighbours[left].append(right)
        neighbours[right].append(left)
    colours: dict[int, int] = {}
    for root in variables:
        queue = deque([root])
        while queue:
            v = queue.popleft()
            if v in colours:
                continue
            taken = {colours.get(n) for n in neighbours[v]}
            colours[v] = next(c for c in range(len(taken) + 1) if c not in taken)
            queue.extend(n for n in neighbours[v] if n not in colours)
    return {v: colours[v] for v in variables}


def _bridges(layers: Sequence[str], edges: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Tables of layers to join, with energies of 0, so that every layer can be reached."""
    group = {name: {name} for name in layers}
    for a, b in edges:
        if group[a] is not group[b]:
            group[a] |= group[b]
            for name in group[b]:
                group[name] = group[a]
    first = list({id(group[name]): name for name in reversed(layers)}.values())[::-1]
    return list(pairwise(first))
