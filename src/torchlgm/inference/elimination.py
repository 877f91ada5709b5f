"""Exact answers: by enumeration of all labellings, and by eliminating node after node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from torchlgm._utils.tracing import no_autocast
from torchlgm.errors import TooLargeError
from torchlgm.layout import edge_list
from torchlgm.mrf import MRF, energy_of
from torchlgm.ops.compact import full


class Enumeration(NamedTuple):
    """Every labelling of the free nodes: `labels[layer]` `(S, nodes)`, with `log_probs` `(B, S)` and `log_z` `(B,)`."""

    labels: dict[str, Tensor]
    log_probs: Tensor
    log_z: Tensor


def enumerate_labellings(mrf: MRF, limit: int = 2**22) -> Enumeration:
    """All of them, or a TooLargeError if `samples * labellings` exceeds `limit`."""
    sizes = {name: (u.shape[1], u.shape[2] + 1) for name, u in mrf.unary.items()}
    states = prod(k**n for n, k in sizes.values())
    if states * mrf.batch > limit:
        raise TooLargeError(
            f"{states:,} labellings for each of {mrf.batch} samples exceed the limit of {limit:,}; "
            "use elimination, an approximate method, or a larger exact(limit=...)"
        )
    columns = [range(k) for n, k in sizes.values() for _ in range(n)]
    every = torch.tensor(list(product(*columns)), device=mrf.like.device).reshape(states, len(columns))
    parts = every.split([n for n, _ in sizes.values()], dim=1)
    labels = dict(zip(sizes, parts, strict=True))
    samples = torch.arange(mrf.batch, device=every.device)
    scores = torch.stack([-energy_of(mrf.take(samples[i : i + 1]), labels).expand(states) for i in samples.tolist()])
    log_z = scores.logsumexp(1)
    return Enumeration(labels, scores - log_z[:, None], log_z)


def enumerated_marginals(mrf: MRF, limit: int) -> tuple[Tensor, Potentials]:
    """log Z and the node marginals, summed over all labellings."""
    every = enumerate_labellings(mrf, limit)
    p = every.log_probs.exp()
    nodes = {}
    for name, labels in every.labels.items():
        indicators = torch.nn.functional.one_hot(labels, mrf.unary[name].shape[-1] + 1).to(p.dtype)
        with no_autocast(p):
            nodes[name] = torch.einsum("bs,snk->bnk", p, indicators)
    return every.log_z, Potentials(nodes, ())


class Potentials(NamedTuple):
    """Log-potentials over the full label axes: nodes `(B, nodes, K)`, edges `(B or 1, *edge, KL, KR)` per link."""

    nodes: dict[str, Tensor]
    edges: tuple[Tensor, ...]


def potentials(mrf: MRF) -> Potentials:
    nodes = {name: full(mrf.field(name)).expand(mrf.batch, -1, -1) for name in mrf.unary}
    edges = []
    for link in mrf.links:
        table = -link.layout.expand(link.energies)
        table = table.expand(*link.layout.edge_shape, *table.shape[-2:])
        edges.append(full(full(table).transpose(-1, -2)).transpose(-1, -2).unsqueeze(0))
    return Potentials(nodes, tuple(edges))


def eliminate(mrf: MRF, pot: Potentials, limit: int, maximise: bool = False) -> tuple[Tensor, list[Factor]]:
    """log Z (or, maximising, minus the least energy) `(B,)`, and the factor each node was eliminated from.

    Nodes go greedily, the one whose factor is smallest first.
    """
    reduce: Callable[[Tensor], Tensor] = (lambda x: x.amax(-1)) if maximise else (lambda x: x.logsumexp(-1))
    factors = _factors(mrf, pot)
    around: dict[Node, list[Factor]] = {}
    for factor in factors:
        for node in factor.scope:
            around.setdefault(node, []).append(factor)
    labels = {node: pot.nodes[node[0]].shape[-1] for node in around}
    sizes = {node: _size(node, around, labels) for node in around}
    total = -mrf.constant
    trail: list[Factor] = []
    while around:
        node = min(sizes, key=lambda n: sizes[n])
        if sizes[node] * mrf.batch > limit:
            raise TooLargeError(
                f"exact elimination needs a factor of {sizes[node]:,} numbers for each of {mrf.batch} samples, over "
                f"the limit of {limit:,}; use lbp, trw or mean_field, smaller batches, or a larger exact(limit=...)"
            )
        joined = _join(around.pop(node), node)
        del sizes[node]
        trail.append(joined)
        rest = Factor(joined.scope[:-1], reduce(joined.values))
        for other in rest.scope:
            around[other] = [*(f for f in around[other] if node not in f.scope), rest]
        for other in rest.scope:
            sizes[other] = _size(other, around, labels)
        if not rest.scope:
            total = total + rest.values
    return total, trail


def best_labels(mrf: MRF, trail: list[Factor]) -> dict[str, Tensor]:
    """The MAP labelling from a maximising elimination, decoded backwards: `(B, nodes)` per layer."""
    device = mrf.like.device
    samples = torch.arange(mrf.batch, device=device)
    chosen: dict[Node, Tensor] = {}
    for factor in reversed(trail):
        *others, node = factor.scope
        values = factor.values.expand(mrf.batch, *factor.values.shape[1:])
        chosen[node] = values[(samples, *[chosen[n] for n in others])].argmax(-1)
    return {name: torch.stack([chosen[(name, i)] for i in range(u.shape[1])], dim=1) for name, u in mrf.unary.items()}


def marginals(mrf: MRF, limit: int, edges: bool = False) -> tuple[Tensor, Potentials]:
    """log Z and the marginals, which are its gradients in the potentials, so they come in the form of potentials."""
    pot = potentials(mrf)
    if not pot.nodes:
        return -mrf.constant, pot
    wanted = torch.is_grad_enabled() and any(x.requires_grad for x in (*pot.nodes.values(), *pot.edges, mrf.constant))
    if edges:
        pot = pot._replace(edges=tuple(e.expand(mrf.batch, *e.shape[1:]) for e in pot.edges))
    inputs = [*pot.nodes.values(), *(pot.edges if edges else ())]
    with torch.inference_mode(False), torch.enable_grad():
        inputs = [x if wanted and x.requires_grad else x.detach().clone().requires_grad_() for x in inputs]
        count = len(pot.nodes)
        tied = Potentials(
            dict(zip(pot.nodes, inputs[:count], strict=True)), tuple(inputs[count:]) if edges else pot.edges
        )
        log_z, _ = eliminate(mrf, tied, limit)
        grads = torch.autograd.grad(log_z.sum(), inputs, create_graph=wanted)
    result = Potentials(dict(zip(pot.nodes, grads[:count], strict=True)), tuple(grads[count:]))
    return (log_z if wanted else log_z.detach()), result


Node = tuple[str, int]


class Factor(NamedTuple):
    """Log-values `(B or 1, *labels of scope)`."""

    scope: tuple[Node, ...]
    values: Tensor


def _factors(mrf: MRF, pot: Potentials) -> list[Factor]:
    result = []
    for name, values in pot.nodes.items():
        result += [Factor(((name, i),), column) for i, column in enumerate(values.unbind(1))]
    for link, values in zip(mrf.links, pot.edges, strict=True):
        ends, edges = edge_list(link.layout)
        columns = values.flatten(1, -3).unbind(1)
        for i, j, edge in zip(*ends.tolist(), edges.tolist(), strict=True):
            result.append(Factor(((link.left, i), (link.right, j)), columns[edge]))
    return result


def _size(node: Node, around: Mapping[Node, list[Factor]], labels: Mapping[Node, int]) -> int:
    scope = {n for factor in around[node] for n in factor.scope}
    return prod(labels[n] for n in scope)


def _join(factors: list[Factor], last: Node) -> Factor:
    """The sum of log-values over the union of the scopes, `last` as the last axis."""
    scope = [*sorted({n for factor in factors for n in factor.scope} - {last}), last]
    total: Tensor | float = 0.0
    for factor in sorted(factors, key=lambda f: f.scope):
        order = sorted(range(len(factor.scope)), key=lambda a: scope.index(factor.scope[a]))
        values = factor.values.permute(0, *[a + 1 for a in order])
        index = tuple(slice(None) if n in factor.scope else None for n in scope)
        total = total + values[(slice(None), *index)]
    assert isinstance(total, Tensor)
    return Factor(tuple(scope), total)
