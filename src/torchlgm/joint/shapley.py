"""What each seen entry adds to an answer: shares that sum to it."""

from __future__ import annotations

from itertools import permutations
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchlgm._utils.validate import is_int_at_least
from torchlgm.errors import InferenceError
from torchlgm.joint.conditionals import Conditionals
from torchlgm.joint.inputs import Known, Table, known_rows, posterior_of
from torchlgm.joint.star import conditionals_of
from torchlgm.posterior import Posterior

MOST_ENUMERATED = 7  # seen entries


class Attribution(NamedTuple):
    """Log-odds of each label of the target, `log p(k) - log(1 - p(k))`, in nats: `base + values.sum(1) == answer`."""

    values: Tensor  # (N, columns, C); 0 at missing entries
    base: Tensor  # (N, C), when nothing is seen
    answer: Tensor  # (N, C)


def shapley(model: Posterior | Table, X: Any, orders: int | str = 32, seed: int = 0) -> Attribution:
    """Shapley values of the seen entries for the log-odds of each label of the target.

    Entries are shown in one order after another, and each gets what the log-odds change when it is shown, on average.
    In every order the changes add up to the answer, so the values do as well, however few `orders` there are. They are
    drawn in pairs, one being the reverse of the other; `orders="all"` goes through all, for rows of up to 7 seen
    entries.

    >>> import torchlgm as lgm
    >>> posterior = lgm.Posterior(lgm.LGM(lgm.zoo.dense(inputs=3, hidden=[2], classes=2)), lgm.exact())
    >>> shares = shapley(posterior, torch.tensor([[1.0, 0.0, torch.nan]]), orders="all")
    >>> torch.testing.assert_close(shares.base + shares.values.sum(1), shares.answer)
    """
    if orders != "all" and not is_int_at_least(orders):
        raise InferenceError(f"orders={orders!r}; expected a whole number of at least 1, or 'all'")
    posterior = posterior_of(model)
    conditionals = conditionals_of(posterior)
    known = known_rows(model, X)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        parts = [
            _of_row(conditionals, known.take(row), orders, generator) for row in torch.arange(len(known.seen)).split(1)
        ]
    values, base, answer = (torch.stack(part).cpu() for part in zip(*parts, strict=True))
    return Attribution(values, base, answer)


def _of_row(
    conditionals: Conditionals, row: Known, orders: int | str, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    seen = row.seen[0].nonzero()[:, 0].cpu()
    order = _orders(seen, orders, generator).to(row.q.device)  # (orders, seen)
    steps, count = order.shape
    rank = torch.full((steps, row.seen.shape[1]), count, device=order.device)
    rank.scatter_(1, order, torch.arange(count, device=order.device).expand(steps, -1))
    shown = rank.unsqueeze(1) < torch.arange(count + 1, device=order.device).view(
        1, -1, 1
    )  # (orders, seen + 1, columns)
    shown, again = shown.flatten(0, 1).unique(dim=0, return_inverse=True)  # the same entries in another order
    odds = _log_odds(conditionals.of_target(Known(row.q * shown.unsqueeze(-1), shown))[:, 0])
    odds = odds[again].unflatten(0, (steps, count + 1))
    changes = odds.diff(dim=1)  # (orders, seen, C)
    values = odds.new_zeros(row.seen.shape[1], odds.shape[-1])
    values.index_add_(0, order.flatten(), changes.flatten(0, 1) / steps)
    return values, odds[0, 0], odds[0, -1]


def _orders(seen: Tensor, orders: int | str, generator: torch.Generator) -> Tensor:
    if orders == "all":
        if len(seen) > MOST_ENUMERATED:
            raise InferenceError(f"orders='all' is for rows of up to {MOST_ENUMERATED} seen entries, got {len(seen)}")
        return torch.tensor(list(permutations(seen.tolist())), dtype=torch.long)
    drawn = torch.stack([seen[torch.randperm(len(seen), generator=generator)] for _ in range((int(orders) + 1) // 2)])
    return torch.cat([drawn, drawn.flip(1)])[: int(orders)]


def _log_odds(log_probs: Tensor) -> Tensor:
    labels = log_probs.shape[-1]
    same = torch.eye(labels, dtype=torch.bool, device=log_probs.device)
    others = log_probs.unsqueeze(-2).expand(-1, labels, -1).masked_fill(same, -torch.inf)
    return log_probs - others.logsumexp(-1)
