"""What each seen entry adds to an answer: shares that sum to it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchlgm._utils.validate import is_int_at_least
from torchlgm.errors import InferenceError
from torchlgm.joint.explain import odds_of
from torchlgm.joint.inputs import asked, of_one_node
from torchlgm.joint.star import StarConditionals, conditionals_of
from torchlgm.posterior import Posterior

MOST_ENUMERATED = 7  # seen entries
AT_ONCE = 2**23  # numbers of what is asked together

Predict = Callable[[Tensor], Tensor]  # inputs (B, *shape), NaN = missing -> log-probabilities (B, K)


class Attribution(NamedTuple):
    """Log-odds of each label of the target, `log p(k) - log(1 - p(k))`, in nats: what nothing gives, plus the shares of
    the entries, is the answer."""

    values: Tensor  # (N, *shape, K); 0 at missing entries
    base: Tensor  # (N, K), when nothing is seen
    answer: Tensor  # (N, K)


def shapley(predictor: Posterior | Predict, x: Any, orders: int | str = 32, seed: int = 0) -> Attribution:
    """Shapley values of the seen entries for the log-odds of each label of the target.

    Entries are shown in one order after another, and each gets what the log-odds change when it is shown, on average.
    In every order the changes add up to the answer, so the values do as well, however few `orders` there are.

    Parameters
    ----------
    predictor : Posterior or callable
        Whatever maps inputs with missing entries to log-probabilities `(B, K)`: a `Posterior`, an `Ensemble`, a
        network that takes NaN. What it answers is what is explained, a temperature included.
    x : Tensor
        Inputs `(N, *shape)`, NaN = missing.
    orders : int or "all"
        How many orders are drawn for each row, in pairs, one being the reverse of the other; `"all"` goes through all,
        for rows of up to 7 seen entries.
    seed : int
        Seed of the orders.

    Returns
    -------
    Attribution
        With `values` `(N, *shape, K)`, `base` and `answer` `(N, K)`.

    Examples
    --------
    >>> import torchlgm as lgm
    >>> posterior = lgm.Posterior(lgm.LGM(lgm.zoo.dense(inputs=3, hidden=[2], classes=2)), lgm.exact())
    >>> shares = shapley(posterior, torch.tensor([[1.0, 0.0, torch.nan]]), orders="all")
    >>> torch.testing.assert_close(shares.base + shares.values.sum(1), shares.answer)
    """
    if orders != "all" and not is_int_at_least(orders):
        raise InferenceError(f"orders={orders!r}; expected a whole number of at least 1, or 'all'")
    x = asked(predictor, x, "explain")
    predict = _quicker(predictor) if isinstance(predictor, Posterior) else predictor
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        if not len(x):
            none = of_one_node(predict(x)).cpu()
            return Attribution(none.new_zeros(*x.shape, none.shape[1]), none, none)
        parts = [_of_row(predict, row, orders, generator) for row in x]
    values, base, answer = (torch.stack(part).cpu() for part in zip(*parts, strict=True))
    return Attribution(values, base, answer)


def _quicker(posterior: Posterior) -> Predict:
    """The same answers by the closed form, where there is one."""
    conditionals = conditionals_of(posterior)
    if not isinstance(conditionals, StarConditionals):
        return posterior.answer
    return lambda x: conditionals.of_target(conditionals.nodes.known(posterior.encoding(posterior.model, x)))[:, 0]


def _of_row(
    predict: Predict, x: Tensor, orders: int | str, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    seen = (~x.flatten().isnan()).nonzero()[:, 0].cpu()
    order = _orders(seen, orders, generator).to(x.device)  # (orders, seen)
    steps, count = order.shape
    rank = torch.full((steps, x.numel()), count, device=x.device)
    rank.scatter_(1, order, torch.arange(count, device=x.device).expand(steps, -1))
    upto = torch.arange(count + 1, device=x.device).view(1, -1, 1)
    shown = (rank.unsqueeze(1) < upto).flatten(0, 1)  # (orders * (seen + 1), entries)
    shown, again = shown.unique(dim=0, return_inverse=True)  # the same entries in another order
    parts = shown.split(max(1, AT_ONCE // x.numel()))
    answers = [of_one_node(predict(x.masked_fill(~part.reshape(-1, *x.shape), torch.nan))) for part in parts]
    odds = odds_of(torch.log_softmax(torch.cat(answers), -1))[again.to(answers[0].device)]
    odds = odds.unflatten(0, (steps, count + 1))
    changes = odds.diff(dim=1)  # (orders, seen, K)
    values = odds.new_zeros(x.numel(), odds.shape[-1])
    values.index_add_(0, order.flatten().to(values.device), changes.flatten(0, 1) / steps)
    return values.reshape(*x.shape, -1), odds[0, 0], odds[0, -1]


def _orders(seen: Tensor, orders: int | str, generator: torch.Generator) -> Tensor:
    if orders == "all":
        if len(seen) > MOST_ENUMERATED:
            raise InferenceError(f"orders='all' is for rows of up to {MOST_ENUMERATED} seen entries, got {len(seen)}")
        return torch.tensor(list(permutations(seen.tolist())), dtype=torch.long)
    drawn = torch.stack([seen[torch.randperm(len(seen), generator=generator)] for _ in range((int(orders) + 1) // 2)])
    return torch.cat([drawn, drawn.flip(1)])[: int(orders)]
