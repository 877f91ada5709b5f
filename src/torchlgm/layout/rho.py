"""Edge appearance probabilities for tree-reweighted inference.

A spanning tree of the layer graph is drawn uniformly and oriented toward the root; in it, every node picks one of
its neighbours in the parent layer uniformly. The edges picked never form a loop, so each edge's probability of being
picked is a valid rho, on any layer graph: `rho = P(left is child) / degree_left + P(right is child) / degree_right`.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from torchlgm.layout.base import LEFT, RIGHT, Layout
from torchlgm.spec import Graph


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
