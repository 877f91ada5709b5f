"""Networks of variables without layers, with factors of any number of variables, as layered models.

A factor of three or more variables becomes an auxiliary node with a label for each of its possible labellings, and an
edge to each of its variables that forbids what does not agree. One with many labellings becomes two such nodes, each
for half of its variables, joined by an edge with the energies: nodes then have few labels, and nothing is larger than
the factor. Nodes are coloured so that no two neighbours have the same colour; those with one colour and one number of
labels become a layer.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from torchlgm.errors import DataError, GraphWarning, InferenceError
from torchlgm.inference import Beliefs
from torchlgm.layout import colour
from torchlgm.model import LGM, Observed
from torchlgm.networks.factors import Factor
from torchlgm.spec import Graph, Layer, Sparse

Place = tuple[str, int] | None
UNDERFLOW = 750.0  # exp(-750) is 0 in float64
MOST_LABELS = 2**8  # of an auxiliary node for a whole factor


@dataclass(frozen=True, eq=False)
class Layered:
    """A model in which variable v is node `places[v][1]` of layer `places[v][0]`, None if it has one label.

    Its log Z is that of the factors plus `constant`. `forbidden` is the energy of what is impossible.
    """

    model: LGM
    places: tuple[Place, ...]
    constant: float
    forbidden: float

    def observed(self, codes: np.ndarray) -> dict[str, Observed]:
        """See `Network.observed`."""
        layers = {layer.name: layer.nodes for layer in self.model.graph.layers}
        values: dict[str, np.ndarray] = {}
        for v, place in enumerate(self.places):
            if place is not None and (codes[:, v] >= 0).any():
                values.setdefault(place[0], np.full((len(codes), layers[place[0]]), -1))[:, place[1]] = codes[:, v]
        values = values or {next(iter(layers)): np.full((len(codes), next(iter(layers.values()))), -1)}
        tensors = {name: torch.from_numpy(labels) for name, labels in values.items()}
        return {name: Observed(labels.clamp(min=0), labels >= 0) for name, labels in tensors.items()}

    def marginals(self, beliefs: Beliefs) -> list[Tensor]:
        """See `Network.marginals`."""
        _require_beliefs(beliefs)
        one = beliefs.mrf.like.new_ones(beliefs.mrf.batch, 1)
        return [one if at is None else beliefs[at[0]].probs[:, at[1]] for at in self.places]

    def map_labels(self, beliefs: Beliefs) -> Tensor:
        """See `Network.map_labels`."""
        _require_beliefs(beliefs)
        best = beliefs.map().labels
        none = beliefs.mrf.like.new_zeros(beliefs.mrf.batch, dtype=torch.long)
        return torch.stack([none if at is None else best[at[0]][:, at[1]] for at in self.places], 1)

    def log_z(self, beliefs: Beliefs) -> Tensor:
        """See `Network.log_z`; -inf where evidence is impossible."""
        _require_beliefs(beliefs)
        log_z = beliefs.log_z - self.constant
        return torch.where(log_z < -self.forbidden / 2, -torch.inf, log_z)


def _require_beliefs(beliefs: object) -> None:
    if not isinstance(beliefs, Beliefs):
        raise InferenceError(
            f"beliefs of type {type(beliefs).__name__}; expected what torchlgm.infer(network.model, ...) gives"
        )


@dataclass
class _Nodes:
    """Variables, then auxiliary nodes: energies of their labels, and tables of pairs, lower number first."""

    unary: list[np.ndarray]
    pairs: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)

    def add_pair(self, left: int, right: int, energies: np.ndarray) -> None:
        if left > right:
            left, right, energies = right, left, energies.T
        self.pairs[left, right] = self.pairs.get((left, right), 0) + energies


def layered(labels: Sequence[int], factors: Sequence[Factor]) -> Layered:
    """The layered model of variables with so many `labels` each and the sum of the energies of `factors`.

    What is impossible gets a finite energy, more than all that possible labellings can differ by, so that it never
    wins and its probability is 0. Such energies cancel in messages, so the model computes in float64.
    """
    if all(k == 1 for k in labels):
        raise DataError("a network in which no variable has two labels: there is nothing to infer")
    forbidden = _forbidden(labels, factors)
    nodes = _Nodes([np.zeros(k) for k in labels])
    constant = 0.0
    for scope, energies in factors:
        scope, energies = _squeezed(labels, scope, energies)
        if not scope:
            constant += float(energies)
        elif len(scope) == 1:
            nodes.unary[scope[0]] += np.where(np.isinf(energies), forbidden, energies)
        elif len(scope) == 2:
            nodes.add_pair(*scope, np.where(np.isinf(energies), forbidden, energies))
        else:
            _add_auxiliary(nodes, scope, energies, forbidden)
    return _model(nodes, len(labels), constant, forbidden)


def _forbidden(labels: Sequence[int], factors: Sequence[Factor]) -> float:
    spread = sum(math.log(k) for k in labels)
    for _, energies in factors:
        possible = energies[np.isfinite(energies)]
        spread += float(possible.max() - possible.min()) if possible.size else 0.0
    return 2 * spread + 2 * UNDERFLOW


def _squeezed(labels: Sequence[int], scope: tuple[int, ...], energies: np.ndarray) -> Factor:
    """A factor without its variables of one label."""
    return tuple(v for v in scope if labels[v] > 1), energies.reshape([labels[v] for v in scope if labels[v] > 1])


def _add_auxiliary(nodes: _Nodes, scope: tuple[int, ...], energies: np.ndarray, forbidden: float) -> None:
    possible = np.isfinite(energies)
    if possible.sum() <= MOST_LABELS:
        node = _add_node(nodes, scope, energies.shape, np.argwhere(possible), forbidden)
        nodes.unary[node][: possible.sum()] += energies[possible]
        return
    at = min(range(1, len(scope)), key=lambda at: max(math.prod(energies.shape[:at]), math.prod(energies.shape[at:])))
    table = energies.reshape(math.prod(energies.shape[:at]), -1)
    ends = []
    for side, half in ((0, slice(at)), (1, slice(at, None))):
        if len(scope[half]) == 1:
            ends.append(scope[half][0])
            continue
        known = np.isfinite(table).any(1 - side)
        table = table.compress(known, side)
        labellings = np.argwhere(known.reshape(energies.shape[half]))
        ends.append(_add_node(nodes, scope[half], energies.shape[half], labellings, forbidden))
    for end, axis in zip(ends, (1, 0), strict=True):  # what a side can be by itself goes to its node
        own = -np.logaddexp.reduce(-table, axis)
        nodes.unary[end][: len(own)] += np.where(np.isinf(own), forbidden, own)
        table = table - np.expand_dims(np.where(np.isinf(own), 0.0, own), axis)
    padded = np.zeros([len(nodes.unary[end]) for end in ends])
    padded[: table.shape[0], : table.shape[1]] = np.where(np.isinf(table), forbidden, table)
    nodes.add_pair(ends[0], ends[1], padded)


def _add_node(
    nodes: _Nodes, scope: tuple[int, ...], shape: tuple[int, ...], labellings: np.ndarray, forbidden: float
) -> int:
    """An auxiliary node with a label for each of these labellings, which agree with those of its variables."""
    unary = np.full(_rounded_up(len(labellings)), forbidden)
    unary[: len(labellings)] = 0.0
    number = len(nodes.unary)
    nodes.unary.append(unary)
    for axis, v in enumerate(scope):
        agrees = np.ones((len(unary), shape[axis]), dtype=bool)
        agrees[: len(labellings)] = labellings[:, axis, None] == np.arange(shape[axis])
        nodes.add_pair(number, v, np.where(agrees, 0.0, forbidden))
    return number


def _rounded_up(labels: int) -> int:
    """Few different numbers of labels make few layers; those that are not needed are impossible."""
    power = 2 ** max(1, (labels - 1).bit_length())
    return power * 3 // 4 if power >= 8 and labels <= power * 3 // 4 else power


def _model(nodes: _Nodes, variables: int, constant: float, forbidden: float) -> Layered:
    alive = [v for v, u in enumerate(nodes.unary) if len(u) > 1]
    unary = [u.copy() for u in nodes.unary]
    layers: dict[str, list[int]] = {}
    for v, number in colour(alive, list(nodes.pairs)).items():
        layers.setdefault(f"k{len(unary[v])}_{number}", []).append(v)
    places = {v: (name, i) for name, members in layers.items() for i, v in enumerate(members)}
    edges: dict[tuple[str, str], dict[tuple[int, int], np.ndarray]] = {}
    for (left, right), energies in nodes.pairs.items():
        if places[left] > places[right]:
            left, right, energies = right, left, energies.T
        (a, i), (b, j) = places[left], places[right]
        edges.setdefault((a, b), {})[i, j] = energies
        unary[left] += energies[:, 0]
        unary[right] += energies[0] - energies[0, 0]
    for a, b in _bridges(list(layers), list(edges)):
        edges[a, b] = {(0, 0): np.zeros((len(unary[layers[a][0]]), len(unary[layers[b][0]])))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)  # a variable in no factor of two is no mistake here
        graph = Graph(
            tuple(Layer(name, len(members), len(unary[members[0]])) for name, members in layers.items()),
            tuple(Sparse(a, b, tuple(tables)) for (a, b), tables in edges.items()),
        )
        model = LGM(graph, init="zero", dtype=torch.float64)
    with torch.no_grad():
        for name, members in layers.items():
            model.unary[name].copy_(torch.from_numpy(np.stack([unary[v][1:] - unary[v][0] for v in members])))
        for (a, b), tables in edges.items():
            _set_tables(model, f"{a}-{b}", np.stack(list(tables.values())))
    constant += sum(float(unary[v][0]) for v in alive)
    return Layered(model, tuple(places.get(v) for v in range(variables)), constant, forbidden)


def _set_tables(model: LGM, connection: str, energies: np.ndarray) -> None:
    """Tables relative to label 0 of both ends; messages start where those of `energies` would be uniform."""
    to_left, to_right = energies[:, :, :1], energies[:, :1, :]
    corner = energies[:, :1, :1]
    compact = (energies - to_left - to_right + corner)[:, 1:, 1:]
    model.table[connection].copy_(torch.from_numpy(compact))
    starts = (to_left - corner)[:, 1:, 0], (to_right - corner)[:, 0, 1:]
    model.set_start(connection, *[torch.from_numpy(x.copy()) for x in starts])


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
