"""Edge appearance probabilities for tree-reweighted inference.

A spanning tree of the layer graph is drawn uniformly and oriented toward the root; in it, every node picks one of
its neighbours in the parent layer uniformly. The edges picked never form a loop, so each edge's probability of being
picked is a valid rho, on any layer graph: `rho = P(left is child) / degree_left + P(right is child) / degree_right`.

Where layers have edges inside, a spanning tree of the nodes is drawn uniformly instead; in graphs too large for that,
every node picks one of its neighbours before it, from the root on.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from torchlgm.layout.base import LEFT, RIGHT, Layout, edge_list
from torchlgm.spec import Graph

MOST_NODES = 2048  # of a graph whose nodes' spanning trees are drawn: a matrix of nodes x nodes is inverted


def child_probabilities(graph: Graph) -> dict[str, tuple[float, float]]:
    """For each connection, the probability that its left (right) layer is the child of the other in the tree.

    With G the inverse of the layer graph's Laplacian grounded at the root, p is a child of q over one connection with
    probability `G[p, p] - G[q, p]` (the matrix-tree theorem, differentiated).
    """
    names = [name for name in graph.layer_names if name != graph.root]
    at = {name: i for i, name in enumerate(names)}
    laplacian = torch.zeros(len(names), len(names), dtype=torch.float64, device="cpu")
    for c in graph.connections:
        for p, q in ((c.left, c.right), (c.right, c.left)):
            if p in at:
                laplacian[at[p], at[p]] += 1
                if q in at:
                    laplacian[at[p], at[q]] -= 1
    inverse = torch.linalg.inv(laplacian)

    def child_of(p: str, q: str) -> float:
        if p not in at:
            return 0.0
        through = inverse[at[q], at[p]] if q in at else 0.0
        return float(inverse[at[p], at[p]] - through)

    return {c.name: (child_of(c.left, c.right), child_of(c.right, c.left)) for c in graph.connections}


def appearance(graph: Graph, layouts: Mapping[str, Layout]) -> dict[str, Tensor]:
    """rho of each connection, broadcastable to `edge_shape`, float64 on the CPU; 1 where there is no edge."""
    if any(c.is_lateral for c in graph.connections):
        with torch.device("cpu"):
            return _of_nodes(graph, layouts)
    result = {}
    for name, shares in child_probabilities(graph).items():
        layout = layouts[name].on_cpu()
        rho = torch.zeros((), dtype=torch.float64, device="cpu")
        for side, share in zip((LEFT, RIGHT), shares, strict=True):
            if share > 0:
                pick = share / layout.degree(side).clamp(min=1)
                rho = rho + layout.gather(pick[None, :, None], side)[0, ..., 0]
        if layout.mask is not None:
            rho = torch.where(layout.mask.bool(), rho, 1.0)
        result[name] = rho.clamp(max=1.0)
    return result


def _of_nodes(graph: Graph, layouts: Mapping[str, Layout]) -> dict[str, Tensor]:
    """From the edges between nodes, which are numbered from the root on, layers in reverse order."""
    first, nodes = {}, 0
    for name in (graph.root, *[name for name in graph.layer_names[::-1] if name != graph.root]):
        first[name], nodes = nodes, nodes + graph.layer(name).nodes
    lists = {c.name: edge_list(layouts[c.name]) for c in graph.connections}
    starts = [torch.tensor([[first[c.left]], [first[c.right]]]) for c in graph.connections]
    ends = torch.cat([e + start for (e, _), start in zip(lists.values(), starts, strict=True)], 1)
    values = (_in_spanning_trees if nodes <= MOST_NODES else _picked)(nodes, ends).clamp(max=1.0)
    result = {}
    for (name, (_, at)), own in zip(lists.items(), values.split([len(at) for _, at in lists.values()]), strict=True):
        rho = torch.ones(layouts[name].edge_shape, dtype=torch.float64).flatten()
        result[name] = rho.index_copy(0, at, own).view(layouts[name].edge_shape)
    return result


def _in_spanning_trees(nodes: int, ends: Tensor) -> Tensor:
    """The probability of each edge to be in a uniform spanning tree, or forest where not all nodes are connected.

    With G the inverse of the Laplacian grounded at one node of each part, it is `G[i, i] + G[j, j] - 2 G[i, j]`.
    """
    free = _least_connected(nodes, ends) != torch.arange(nodes)
    one = torch.ones(ends.shape[1], dtype=torch.float64)
    laplacian = torch.zeros(nodes, nodes, dtype=torch.float64)
    for i, j in (ends, ends.flip(0)):
        laplacian.index_put_((i, i), one, accumulate=True)
        laplacian.index_put_((i, j), -one, accumulate=True)
    grounded = torch.where(free & free[:, None], laplacian, torch.eye(nodes, dtype=torch.float64))
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(grounded)) * free
    (i, j), own = ends, inverse.diagonal()
    return own[i] + own[j] - inverse[i, j] - inverse[j, i]


def _least_connected(nodes: int, ends: Tensor) -> Tensor:
    """For each node the least one that a path leads to."""
    least, before = torch.arange(nodes), None
    while before is None or not torch.equal(least, before):
        before = least
        for i, j in (ends, ends.flip(0)):
            least = least.scatter_reduce(0, i, least[j], "amin")
        least = least[least]
    return least


def _picked(nodes: int, ends: Tensor) -> Tensor:
    """The probability of each edge if every node picks one of its neighbours before it: these form no loop."""
    later = ends.amax(0)
    return 1 / later.bincount(minlength=nodes)[later].double()
