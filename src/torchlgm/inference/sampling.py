"""Block Gibbs sampling: nodes of a layer with no edge between them are independent given all others, and drawn at
once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from torchlgm.layout import LEFT, RIGHT
from torchlgm.mrf import MRF, check_labels
from torchlgm.ops.compact import full, one_hot
from torchlgm.ops.linear import linear


def gibbs(
    mrf: MRF, generator: torch.Generator | None = None, start: Mapping[str, Tensor] | None = None
) -> Iterator[dict[str, Tensor]]:
    """Sample block by block without end, yielding labels after each sweep over the layers.

    Parameters
    ----------
    mrf : MRF
        A batch of models over their free nodes.
    generator : torch.Generator, optional
        PyTorch's default generator if None.
    start : mapping, optional
        Labels to start from. None draws each node independently from its unary and evidence.

    Yields
    ------
    dict
        Labels `(B, nodes)` of the free layers by name.
    """
    if start is not None:
        check_labels(mrf, start)
    state = dict(start) if start else {n: draw(mrf.field(n).expand(mrf.batch, -1, -1), generator) for n in mrf.unary}
    while True:
        for layer in mrf.unary:
            for part in mrf.parts(layer):
                drawn = draw(conditional(mrf, layer, state), generator)
                state[layer] = drawn if part is None else torch.where(part, drawn, state[layer])
        yield dict(state)


def conditional(mrf: MRF, layer: str, labels: Mapping[str, Tensor]) -> Tensor:
    """Log-odds of each node of `layer` given the labels of all other nodes: `(B, nodes, K-1)`."""
    belief = mrf.field(layer)
    for link in mrf.links:
        for side, source, target in ((LEFT, link.left, link.right), (RIGHT, link.right, link.left)):
            if target == layer:
                k = mrf.unary[source].shape[-1]
                q = one_hot(labels[source], k, belief.dtype)
                belief = belief - linear(link.layout, link.table, q, side, link.scale)
    return belief.expand(mrf.batch, -1, -1)


def draw(belief: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """One label for each node from log-odds `(B, nodes, K-1)` -> `(B, nodes)`."""
    if belief.shape[-1] == 1:
        p = torch.sigmoid(belief.squeeze(-1))
        return (torch.rand(p.shape, generator=generator, dtype=p.dtype, device=p.device) < p).long()
    p = torch.softmax(full(belief), -1)
    cumulative = p.cumsum(-1)
    u = torch.rand(p.shape[:-1], generator=generator, dtype=p.dtype, device=p.device).unsqueeze(-1)
    return (u * cumulative[..., -1:] >= cumulative).sum(-1).clamp(max=p.shape[-1] - 1)
