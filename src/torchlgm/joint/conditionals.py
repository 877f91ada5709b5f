"""Probabilities of a target and of columns, given what is known of rows.

For any graph and method they come from clamped inference. A star of one hidden layer has a closed form, with the same
results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from torchlgm.inference import Exact, solve
from torchlgm.joint.inputs import InputNodes, Known
from torchlgm.posterior import Posterior

MOST_EDGES = 2**22  # of a batch, so that its messages fit into memory

Outcomes = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""What missing entries `rows`, `columns` `(n,)` may turn out to be: probabilities of their labels `(n, K)`, and
log p(target | what is known, column = k) `(n, K, nodes, C)`."""


@dataclass(frozen=True, eq=False)
class Conditionals:
    """By clamped inference. The target consists of nodes with C labels each: those of a layer, or columns."""

    posterior: Posterior
    nodes: InputNodes
    target: tuple[int, ...] | None  # columns; None for the target of the posterior

    def known(self, x: Tensor) -> Known:
        """What inputs say, which are not checked."""
        return self.nodes.known(self.posterior.encoding(self.posterior.model, x))

    def about(self, target: tuple[int, ...]) -> Conditionals:
        """The same about columns as the target."""
        return Conditionals(self.posterior, self.nodes, target)

    @property
    def batch(self) -> int:
        return max(1, MOST_EDGES // max(1, self.posterior.model.graph.edges))

    def of_target(self, known: Known) -> Tensor:
        """log p(target | what is known), `(N, nodes, C)`."""
        return torch.cat([self._of_target(known.take(rows)) for rows in self._parts(known)])

    def _of_target(self, known: Known) -> Tensor:
        posterior = self.posterior
        clamps = self.nodes.evidence(known)
        if self.target is None:
            log_probs = posterior.log_beliefs(posterior.model.condition(clamps), (posterior.target,))[posterior.target]
            return torch.log_softmax(log_probs / posterior.temperature, -1)
        probs = self._of_columns(known)[:, list(self.target)]
        return torch.where(self.nodes.exists[list(self.target)], probs.clamp(min=1e-300), 0).log()

    def of_columns(self, known: Known) -> Tensor:
        """Probabilities of the labels of all columns, `(N, columns, K)`; at seen entries what was seen."""
        return torch.cat([self._of_columns(known.take(rows)) for rows in self._parts(known)])

    def _of_columns(self, known: Known) -> Tensor:
        mrf = self.posterior.model.condition(self.nodes.evidence(known))
        beliefs = solve(mrf, self.posterior.method, None if self._exact else tuple(self.nodes.columns))
        return self.nodes.probs(beliefs)

    def of_missing(self, known: Known, column: Tensor) -> Tensor:
        """Probabilities of the labels of one column that is missing in all rows, `(N, K)`."""
        return self.of_columns(known)[:, column]

    def given(self, known: Known, rows: Tensor, columns: Tensor) -> Tensor:
        """log p(target | what is known, column = k) for each k at entries `rows`, `columns` `(n,)`: `(n, K, nodes, C)`.

        Labels that a column lacks get the answer of another one.
        """
        width = self.nodes.width
        labels = torch.arange(width, device=rows.device).minimum(self.nodes.labels[columns, None] - 1)
        each = known.take(rows.repeat_interleave(width)).set(columns.repeat_interleave(width), labels.flatten())
        return self.of_target(each).unflatten(0, (len(rows), width))

    def outcomes(self, known: Known) -> Outcomes:
        """What entries may turn out to be; what is the same for all of them is computed once."""
        expected = self.of_columns(known)
        return lambda rows, columns: (expected[rows, columns], self.given(known, rows, columns))

    def left_out(self, known: Known, rows: Tensor, columns: Tensor) -> Tensor:
        """Probabilities of the labels of entries `(n,)` given all else that is known of their rows, `(n, K)`."""
        parts = []
        for some, at in zip(rows.split(self.batch), columns.split(self.batch), strict=True):
            probs = self._of_columns(known.take(some).without(at))
            parts.append(probs[torch.arange(len(at), device=at.device), at])
        return torch.cat(parts)

    @property
    def _exact(self) -> bool:
        return isinstance(self.posterior.method, Exact)

    def _parts(self, known: Known) -> Iterator[Tensor]:
        return iter(torch.arange(len(known.seen), device=known.seen.device).split(self.batch))
