"""How much each member counts, by the share of a row's entries that is missing."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim import LBFGS

SHRINKAGE = 0.2  # as strong as so many rows, toward groups that count the same


@dataclass(frozen=True)
class Mixture:
    """Groups of as many members each; the weight of a group is softmax(bias + slope * share missing)."""

    bias: tuple[float, ...]
    slope: tuple[float, ...]
    members: int

    @classmethod
    def even(cls, groups: int, members: int) -> Mixture:
        return cls((0.0,) * groups, (0.0,) * groups, members)

    def suits(self, members: int) -> bool:
        """Whether it gives each of so many members a weight."""
        numbers = [*self.bias, *self.slope]
        return len(self.bias) == len(self.slope) == members / self.members and all(map(math.isfinite, numbers))

    def log_weights(self, missing: Tensor) -> Tensor:
        """Shares missing `(N,)` -> logs of the weights of all members `(M, N)`."""
        bias, slope = (missing.new_tensor(x).unsqueeze(1) for x in (self.bias, self.slope))
        groups = torch.log_softmax(bias + slope * missing, 0)
        return groups.repeat_interleave(self.members, 0) - torch.tensor(self.members).log()

    def mix(self, log_probs: Tensor, missing: Tensor) -> Tensor:
        """Beliefs of the members, as logs `(M, N, C)` -> of all together `(N, C)`."""
        return torch.logsumexp(log_probs + self.log_weights(missing).unsqueeze(-1), 0)


def learn_mixture(log_likelihood: Tensor, missing: Tensor, weight: Tensor, members: int) -> Mixture:
    """The mixture that makes held-out rows most likely, shrunk toward an even one.

    `log_likelihood` `(N, groups)` of the true class of rows with a share of `missing` `(N,)` entries and a `weight`.
    """
    log_likelihood, missing, weight = (x.detach().cpu().double() for x in (log_likelihood, missing, weight))
    free = torch.zeros(2, log_likelihood.shape[1], dtype=torch.float64, requires_grad=True)
    optimizer = LBFGS([free], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        groups = torch.log_softmax(free[0] + free[1] * missing.unsqueeze(1), 1)
        total = -(weight * torch.logsumexp(log_likelihood + groups, 1)).sum()
        total = (total + SHRINKAGE / 2 * free.square().sum()) / len(missing)
        total.backward()
        return total

    optimizer.step(loss)
    bias, slope = free.detach().tolist()
    return Mixture(tuple(bias), tuple(slope), members)
