"""Contrastive divergence for two connected layers.

Two connected layers are a restricted Boltzmann machine `p(v, h) ~ exp(-E(v, h))`, whatever the connection: the field
that one layer puts on the other is `layout.linear` with the energies, in either direction. The gradient of
`-log p(v)` is that of `F(v) = -log sum_h exp(-E(v, h))` at the data minus its mean under the model, which is
estimated from a Gibbs chain.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from torchlgm.errors import TrainingError
from torchlgm.inference.sampling import draw
from torchlgm.layout import LEFT, RIGHT
from torchlgm.model import LGM
from torchlgm.ops.compact import log_norm, one_hot, probs


class Pair:
    """Two connected layers of a model as a machine of their own: `lower` is visible, `upper` hidden.

    Values are probabilities `(B, nodes, K-1)` of the labels 1 .. K-1. `bias` replaces the unary of the lower layer.
    """

    def __init__(self, model: LGM, lower: str, upper: str, bias: nn.Parameter | None = None) -> None:
        self.model, self.lower, self.upper = model, lower, upper
        self.hops = [
            (c.name, LEFT if c.left == lower else RIGHT)
            for c in model.graph.connections
            if {c.left, c.right} == {lower, upper}
        ]
        inside = [c.name for c in model.graph.connections if c.is_lateral and c.left in (lower, upper)]
        if inside:
            raise TrainingError(
                f"connection '{inside[0]}' joins nodes of one layer, but contrastive divergence draws a layer at once; "
                "train this graph by Likelihood or JointLikelihood"
            )
        if not self.hops:
            raise TrainingError(f"layers '{lower}' and '{upper}' are not connected")
        self.bias = model.unary[lower] if bias is None else bias

    @property
    def parameters(self) -> list[nn.Parameter]:
        return [self.bias, self.model.unary[self.upper], *[self.model.table[name] for name, _ in self.hops]]

    def _field(self, unary: Tensor, q: Tensor, upward: bool) -> Tensor:
        total = -unary
        for name, side in self.hops:
            layout: Any = self.model.layouts[name]
            total = total - layout.linear(self.model.energies(name), q, side if upward else 1 - side)
        return total

    def up(self, v: Tensor) -> Tensor:
        """Log-odds of the upper layer given the lower one."""
        return self._field(self.model.unary[self.upper], v, upward=True)

    def down(self, h: Tensor) -> Tensor:
        """Log-odds of the lower layer given the upper one: the transposed operation."""
        return self._field(self.bias, h, upward=False)

    def free_energy(self, v: Tensor) -> Tensor:
        """`F(v) = -log sum_h exp(-E(v, h))`: `(B,)`."""
        return (self.bias * v).sum((1, 2)) - log_norm(self.up(v)).sum((1, 2))

    def gibbs(self, v: Tensor, k: int, generator: torch.Generator) -> Tensor:
        """The lower layer after `k` Gibbs steps, up from `v` and down again, as indicators of its labels."""
        with torch.no_grad():
            for _ in range(k):
                h = _drawn(self.up(v), generator)
                v = _drawn(self.down(h), generator)
        return v

    def reconstruction_error(self, v: Tensor) -> Tensor:
        """Mean squared distance of `v` to its mean-field image."""
        with torch.no_grad():
            return (probs(self.down(probs(self.up(v)))) - v).square().mean()


def _drawn(belief: Tensor, generator: torch.Generator) -> Tensor:
    return one_hot(draw(belief, generator), belief.shape[-1], belief.dtype)


class ContrastiveDivergence:
    """A loss whose gradient estimates that of `-log p(v)`. Its value is meaningless.

    CD-k starts its Gibbs chains at each batch of data; persistent ones go on where they ended.
    """

    def __init__(self, pair: Pair, generator: torch.Generator, k: int = 1, persistent: bool = False) -> None:
        if k < 1:
            raise TrainingError(f"k={k}; expected at least one Gibbs step")
        self.pair, self.generator, self.k, self.persistent = pair, generator, k, persistent
        self.chains: Tensor | None = None  # (chains, nodes, K-1)

    def loss(self, v: Tensor) -> Tensor:
        """`v` `(B, nodes, K-1)` -> a scalar."""
        begin = v if self.chains is None else self.chains
        end = self.pair.gibbs(begin, self.k, self.generator)
        if self.persistent:
            self.chains = end
        return self.pair.free_energy(v).mean() - self.pair.free_energy(end).mean()
