"""The contract between model and inference: a batch of pairwise Markov random fields.

An observed node is absorbed into its neighbours: the expected energy of its edges becomes part of their `evidence`
field, its own energy part of `constant`. If only some nodes of a layer are observed, or different ones in each sample,
the layer stays and its observed nodes are pinned to label 0 (whose energies are 0) by a huge unary. So no method below
ever meets a mask.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchlgm._utils.tracing import is_traced
from torchlgm.errors import EvidenceError
from torchlgm.layout import LEFT, RIGHT, Layout, TurnedLayout
from torchlgm.ops.compact import one_hot
from torchlgm.ops.linear import linear

PIN = 1e30

Evidence = Mapping[str, Any]  # layer -> tensor, array, Observed or Clamp


class Clamp(NamedTuple):
    """What is known about one layer: `q` `(B, nodes, K-1)` are the probabilities of the labels 1 .. K-1.

    `free` `(B, nodes)` marks the nodes that were not observed; None means that all were. `q` is 0 at free nodes.
    """

    q: Tensor
    free: Tensor | None = None

    @property
    def probs(self) -> Tensor:
        """The probabilities of all labels, `(B, nodes, K)`."""
        return torch.cat([1 - self.q.sum(-1, keepdim=True), self.q], -1)


class Link(NamedTuple):
    """One connection between two layers, or inside one."""

    name: str
    left: str
    right: str
    layout: Layout
    table: Tensor  # energies over `scale`, in the layout's stored shape or expanded
    rho: Tensor  # broadcasts against the edges
    scale: float = 1.0
    start: tuple[Tensor, Tensor] | None = None  # inflows at the start, to left (*edge, kl) and right; None: 0

    def turned(self, layout: TurnedLayout) -> Link:
        """Inside a layer: the same edges, left ends being those of the lower colour."""
        start = None if self.start is None else layout.turn_ends(*self.start)
        return self._replace(layout=layout, table=layout.turn(self.layout.spread(self.table)), start=start)

    @property
    def energies(self) -> Tensor:
        return self.table if self.scale == 1 else self.table * self.scale


class EvidenceTerm(NamedTuple):
    """What one connection out of observed nodes adds to a field: `q` is what is known about its nodes on `side`."""

    link: Link
    side: int
    q: Tensor

    @property
    def field(self) -> Tensor:
        """Minus the expected energies of the labels of the target's nodes, `(B, nodes, K-1)`."""
        return linear(self.link.layout, self.link.table, self.q, self.side, -self.link.scale)


class LazyEvidence(Mapping[str, Tensor]):
    """Fields by layer that are computed when they are first read: kernels may make them on the way instead."""

    def __init__(self, terms: Mapping[str, Sequence[EvidenceTerm | Tensor]]) -> None:
        self.terms = terms
        self._computed: dict[tuple[str, bool], Tensor] = {}  # with gradients and without

    def __getitem__(self, layer: str) -> Tensor:
        key = layer, torch.is_grad_enabled()
        if key not in self._computed:
            first, *others = [x.field if isinstance(x, EvidenceTerm) else x for x in self.terms[layer]]
            self._computed[key] = sum(others, first)
        return self._computed[key]

    def __contains__(self, layer: object) -> bool:
        return layer in self.terms

    def __iter__(self) -> Iterator[str]:
        return iter(self.terms)

    def __len__(self) -> int:
        return len(self.terms)

    def single_term(self, layer: str) -> EvidenceTerm | None:
        """The one connection that makes up the field of a layer, if it is not computed yet."""
        first, *others = self.terms[layer]
        computed = (layer, torch.is_grad_enabled()) in self._computed
        return None if others or computed or isinstance(first, Tensor) else first


class MRF(NamedTuple):
    """Unaries, tables and evidence fields over the layers with free nodes. Dictionaries keep the declared order."""

    unary: Mapping[str, Tensor]  # energies, (1 or B, nodes, K-1)
    evidence: Mapping[str, Tensor]  # minus the expected energies toward observed nodes, (B, nodes, K-1)
    links: tuple[Link, ...]  # between layers that both have free nodes
    observed_links: tuple[Link, ...]  # with a layer that is observed altogether; absorbed into evidence and constant
    observed: tuple[tuple[Tensor, Tensor], ...]  # observed nodes and their energies, both (1 or B, nodes, K-1)
    batch: int
    shapes: Mapping[str, tuple[int, ...]]  # of every layer, observed ones included
    clamps: Mapping[str, Clamp]
    colours: Mapping[str, Tensor] = MappingProxyType({})  # (colours, nodes), of layers with edges inside; see `parts`

    @property
    def constant(self) -> Tensor:
        """Energy of the observed nodes among themselves, `(B,)`; computed for those who ask."""
        return sum(((q * energy).sum((1, 2)) for q, energy in self.observed), self.like.new_zeros(self.batch))

    @property
    def like(self) -> Tensor:
        """A tensor on the device, and of the dtype, of all others."""
        return next(iter(self.unary.values())) if self.unary else self.observed[0][1]

    def field(self, layer: str) -> Tensor:
        """Minus the energy of each label of each node given the evidence: `(1 or B, nodes, K-1)`."""
        field = -self.unary[layer]
        return field + self.evidence[layer] if layer in self.evidence else field

    def parts(self, layer: str) -> Sequence[Tensor | None]:
        """Nodes of a layer with no edge between them, as masks `(nodes,)`, one for each colour; None for all nodes."""
        return self.colours[layer].unbind() if layer in self.colours else (None,)

    def take(self, index: Tensor) -> MRF:
        """The samples at `index` `(b,)`."""

        def pick(x: Tensor) -> Tensor:
            return x if x.shape[0] == 1 and self.batch != 1 else x.index_select(0, index)

        return self._replace(
            unary={k: pick(v) for k, v in self.unary.items()},
            evidence={k: pick(v) for k, v in self.evidence.items()},
            observed=tuple((pick(q), pick(energy)) for q, energy in self.observed),
            batch=len(index),
            clamps={k: Clamp(pick(c.q), None if c.free is None else pick(c.free)) for k, c in self.clamps.items()},
        )


def energy(mrf: MRF, labels: Mapping[str, Tensor]) -> Tensor:
    """Compute the energy E(x) of one labelling of the free nodes; p(x) is proportional to exp(-E(x)).

    Everything else is tested against this scalar.

    Parameters
    ----------
    mrf : MRF
        What `LGM.condition` returns.
    labels : mapping
        By layer, a label for each node, `(B, nodes)` or `(B, *shape)`.

    Returns
    -------
    Tensor
        `(B,)`.
    """
    check_labels(mrf, labels)
    return energy_of(mrf, labels)


def energy_of(mrf: MRF, labels: Mapping[str, Tensor]) -> Tensor:
    """`energy` of labels that are known to be right."""
    q = {name: one_hot(labels[name].flatten(1), u.shape[-1], u.dtype) for name, u in mrf.unary.items()}
    total = mrf.constant
    for name in mrf.unary:
        total = total - (mrf.field(name) * q[name]).sum((1, 2))
    for link in mrf.links:
        left, right = link.layout.gather(q[link.left], LEFT), link.layout.gather(q[link.right], RIGHT)
        pair = left.unsqueeze(-1) * right.unsqueeze(-2) * link.layout.expand(link.energies)
        total = total + link.layout.total(pair.sum((-2, -1)))
    return total


def check_labels(mrf: MRF, labels: Mapping[str, Tensor]) -> None:
    """Raise EvidenceError unless there is a label of every node of every layer with free nodes."""
    for name, unary in mrf.unary.items():
        given, nodes, most = labels.get(name), unary.shape[1], unary.shape[2]
        if given is None or given.dim() < 2 or math.prod(given.shape[1:]) != nodes:
            shape = None if given is None else tuple(given.shape)
            raise EvidenceError(f"labels of layer '{name}' must be a tensor (batch, {nodes}), got {shape}")
        if given.is_floating_point():
            raise EvidenceError(f"labels of layer '{name}' must be whole numbers, got {given.dtype}")
        if not is_traced(given) and given.numel() and not 0 <= given.min() <= given.max() <= most:
            raise EvidenceError(
                f"labels of layer '{name}' must be 0 to {most}, got {given.min().item():g} to {given.max().item():g}"
            )


def pin(unary: Tensor, free: Tensor) -> Tensor:
    """The unary `(1, nodes, K-1)` with the nodes that are not free `(B, nodes)` pinned at label 0."""
    return torch.where(free.unsqueeze(-1), unary, min(PIN, torch.finfo(unary.dtype).max / 8))
