"""Which measurement next: what a missing column is expected to tell about a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from torchlgm._utils.arrays import as_tensor
from torchlgm._utils.validate import check_choice
from torchlgm.errors import InferenceError
from torchlgm.joint.conditionals import Conditionals
from torchlgm.joint.inputs import Known, Table, column_numbers, names_of
from torchlgm.joint.star import conditionals_of
from torchlgm.posterior import Posterior

MOST_LABELLINGS = 64  # of a group that are gone through; more are drawn instead
PAIRS = 2**14  # of rows and labels whose next step is looked at together


def acquire(
    model: Posterior | Table,
    X: Any,
    *,
    costs: Any = None,
    groups: Mapping[Any, Any] | Sequence[Any] | None = None,
    target: Any = None,
    lookahead: int = 1,
    loss: Any = None,
) -> Tensor:
    """Expected information gain, in nats, of every missing entry about the target.

    With the joint belief P(y, k) = p(x_c = k | seen) p(y | seen, x_c = k), the gain of column c is the entropy of y
    under P less its mean entropy once k is known: the mutual information of both, never negative, 0 where c is known.

    Parameters
    ----------
    model : Posterior or LGMClassifier
        One that has learned what columns say of each other: trained with `JointLikelihood`, or `fill_weight` above 0.
    X : array_like or DataFrame
        Rows `(N, columns)`, or inputs of a `Posterior`, NaN = missing.
    costs : array_like or mapping, optional
        What each option costs, above 0. Then the answer is gain per cost.
    groups : mapping or sequence, optional
        Columns that are bought together, by name or number. Then these are the options, in this order, in place of
        single columns. A group with more than 64 labellings is estimated from 64 draws.
    target : optional
        The class, unless this names a column or several, whose gains add up; a target is worth nothing itself.
    lookahead : {1, 2}
        With 2, an option may be worth it for what it prepares: its value is the gain of it and of the best one after
        it, for each answer that it may give, over what both cost (2, if there are no costs), if that is more than its
        own gain per cost.
    loss : array_like, optional
        `(C, decisions)`, the loss of a decision where a label is true. Then the answer is by how much the least
        expected loss falls, in its units, instead of nats.

    Returns
    -------
    Tensor
        `(N, columns)`, or `(N, groups)`.

    Raises
    ------
    InferenceError
        If no entry is missing, or an argument does not fit the columns.

    Examples
    --------
    >>> import torchlgm as lgm
    >>> posterior = lgm.Posterior(lgm.LGM(lgm.zoo.dense(inputs=3, hidden=[2], classes=2)), lgm.exact())
    >>> gain = acquire(posterior, torch.tensor([[1.0, torch.nan, torch.nan]]))
    >>> gain.shape, gain[0, 0].item(), bool((gain >= 0).all())
    (torch.Size([1, 3]), 0.0, True)
    """
    question = Question.of(model, costs, groups, target, lookahead, loss)
    x = question.inputs(model, X)
    if not bool(x.isnan().any()):
        raise InferenceError("no entry of X is missing, so there is nothing to measure; make what is not known NaN")
    with torch.no_grad():
        return question.values(question.conditionals.known(x))


@dataclass(frozen=True, eq=False)
class Question:
    """The options, what they cost, and what they are worth."""

    conditionals: Conditionals
    options: tuple[tuple[int, ...], ...]  # the columns of each
    names: tuple[Any, ...]
    costs: Tensor | None
    loss: Tensor | None
    lookahead: int = 1

    @classmethod
    def of(cls, model: Posterior | Table, costs: Any, groups: Any, target: Any, lookahead: int, loss: Any) -> Question:
        check_choice("lookahead", lookahead, (1, 2), error=InferenceError)
        conditionals, names, aim = conditionals_for(model, None), names_of(model), None
        posterior = conditionals.posterior
        if target is not None and target != posterior.target:
            aim = tuple(column_numbers(names, target, "target"))
            conditionals = conditionals_for(model, aim)
        if aim == ():
            raise InferenceError("target= is empty; expected one column or several, or None for the class")
        options, chosen = _options(names, groups)
        like = posterior.model.unary[posterior.target]
        device, dtype = like.device, like.dtype
        return cls(
            conditionals,
            tuple(map(tuple, options)),
            tuple(chosen),
            None if costs is None else _costs(costs, chosen).to(device, dtype),
            None if loss is None else _loss(loss, posterior, aim, conditionals).to(device, dtype),
            lookahead,
        )

    @classmethod
    def about_columns(cls, conditionals: Conditionals) -> Question:
        """Each column is an option."""
        columns = range(len(conditionals.nodes.labels))
        return cls(conditionals, tuple((c,) for c in columns), tuple(columns), None, None)

    def inputs(self, model: Posterior | Table, X: Any) -> Tensor:
        """Rows as inputs, checked."""
        return self.conditionals.posterior.checked(X if isinstance(model, Posterior) else model.inputs(X))[0]

    def values(self, known: Known) -> Tensor:
        """`(N, options)`."""
        if self.lookahead == 2:
            return self._two_steps(known)
        gains = self._gains(known)
        return gains if self.costs is None else gains / self.costs

    def _gains(self, known: Known) -> Tensor:
        single = all(len(option) == 1 for option in self.options)
        if not single:
            groups = [torch.tensor(option, device=known.q.device) for option in self.options]
            return torch.stack([self._of_group(known, group) for group in groups], 1)
        wanted = torch.tensor(self.options, device=known.q.device)[:, 0]
        return self._of_columns(known, self._missing(known)[:, wanted], wanted)

    def _missing(self, known: Known) -> Tensor:
        missing = ~known.seen
        if self.conditionals.target is not None:
            missing[:, list(self.conditionals.target)] = False
        return missing

    def _of_columns(self, known: Known, ask: Tensor, wanted: Tensor) -> Tensor:
        rows, options = ask.nonzero(as_tuple=True)
        gains = known.q.new_zeros(ask.shape)
        outcomes = self.conditionals.outcomes(known)
        for i, o in zip(rows.split(PAIRS), options.split(PAIRS), strict=True):
            gains[i, o] = self._gain(*outcomes(i, wanted[o]))
        return gains

    def _of_group(self, known: Known, columns: Tensor) -> Tensor:
        """Groups of rows that lack the same columns of the group, one by one."""
        gains = known.q.new_zeros(len(known.seen))
        missing = self._missing(known)[:, columns]
        patterns, of_row = missing.unique(dim=0, return_inverse=True)
        for number, pattern in enumerate(patterns):
            if bool(pattern.any()):
                rows = (of_row == number).nonzero()[:, 0]
                gains[rows] = self._together(known.take(rows), columns[pattern])
        return gains

    def _together(self, known: Known, columns: Tensor) -> Tensor:
        """The labellings of all columns by the chain rule; drawn where there are many."""
        conditionals, count = self.conditionals, len(known.seen)
        labels = conditionals.nodes.labels[columns]
        weights = known.q.new_ones(count, 1)
        drawn = int(labels.prod()) > MOST_LABELLINGS
        generator = torch.Generator(known.q.device).manual_seed(0)
        if drawn:
            known = known.take(torch.arange(count, device=columns.device).repeat_interleave(MOST_LABELLINGS))
            weights = weights.expand(-1, MOST_LABELLINGS) / MOST_LABELLINGS
        for column, width in zip(columns, labels.tolist(), strict=True):
            p = conditionals.of_missing(known, column)[:, :width]
            at = column.expand(len(p))
            if drawn:
                known = known.set(at, torch.multinomial(p, 1, generator=generator)[:, 0])
                continue
            weights = (weights.flatten().unsqueeze(1) * p).reshape(count, -1)
            known = known.take(torch.arange(len(p), device=at.device).repeat_interleave(width))
            known = known.set(at.repeat_interleave(width), torch.arange(width, device=at.device).repeat(len(p)))
        return self._gain(weights, conditionals.of_target(known).unflatten(0, (count, -1)))

    def _gain(self, chances: Tensor, after: Tensor) -> Tensor:
        """`(n, K)` and log p(y | k) `(n, K, nodes, C)` -> what knowing k is worth, `(n,)`."""
        probs = after.exp()
        mean = torch.einsum("nk,nkyc->nyc", chances, probs)
        risk = self._entropy if self.loss is None else self._least_loss
        return (risk(mean) - torch.einsum("nk,nky->ny", chances, risk(probs))).sum(1).clamp(min=0)

    def _entropy(self, probs: Tensor) -> Tensor:
        return torch.special.entr(probs).sum(-1)

    def _least_loss(self, probs: Tensor) -> Tensor:
        assert self.loss is not None
        return (probs[..., : len(self.loss)] @ self.loss.to(probs)).amin(-1)

    def _two_steps(self, known: Known) -> Tensor:
        """Gain per cost: of an option, or of it and the best one for each answer to it, whichever is more.

        Were it the sum of both gains, what is worth something now could be left for the second step for ever.
        """
        one = replace(self, lookahead=1)
        first = one._gains(known)
        total = first.clone()
        costs = first.new_ones(len(self.options)) if self.costs is None else self.costs
        spent = costs.expand_as(first).clone()
        lacking = self._missing(known)
        outcomes = self.conditionals.outcomes(known)
        labels_of = self.conditionals.nodes.labels.tolist()
        for o, columns in enumerate(self.options):
            if len(columns) != 1:
                raise InferenceError("lookahead=2 looks at pairs of columns; give groups of one column, or lookahead=1")
            (column,) = columns
            width = labels_of[column]
            for rows in lacking[:, column].nonzero()[:, 0].split(max(1, PAIRS // (width * len(self.options)))):
                labels = torch.arange(width, device=rows.device).repeat(len(rows))
                after = known.take(rows.repeat_interleave(width)).set(torch.full_like(labels, column), labels)
                gains = one._gains(after)
                best = (gains / costs).argmax(1, keepdim=True)
                worth, price = gains.gather(1, best), costs[best] * (gains.gather(1, best) > 0)
                p = outcomes(rows, torch.full_like(rows, column))[0][:, :width]
                total[rows, o] += (p * worth.reshape(len(rows), width)).sum(1)
                spent[rows, o] += (p * price.reshape(len(rows), width)).sum(1)
        return torch.maximum(first / costs, total / spent)


def conditionals_for(model: Posterior | Table, target: tuple[int, ...] | None) -> Conditionals:
    if not isinstance(model, Posterior) and not hasattr(type(model), "conditionals"):
        raise InferenceError(f"model is of type {type(model).__name__}; expected a Posterior or a fitted LGMClassifier")
    return conditionals_of(model, target) if isinstance(model, Posterior) else model.conditionals(target)


def _options(names: list[Any], groups: Any) -> tuple[list[list[int]], list[Any]]:
    if groups is None:
        return [[i] for i in range(len(names))], names
    named = list(groups.items()) if isinstance(groups, Mapping) else list(enumerate(groups))
    if not named:
        raise InferenceError("groups= is empty; expected columns that are bought together, such as {'blood': [0, 1]}")
    options = [column_numbers(names, columns, f"group {name!r}") for name, columns in named]
    for (name, _), columns in zip(named, options, strict=True):
        if not columns:
            raise InferenceError(f"group {name!r} names no column; expected names or numbers of columns")
    return options, [name for name, _ in named]


def _costs(costs: Any, names: Sequence[Any]) -> Tensor:
    if isinstance(costs, Mapping):
        lacking = [name for name in names if name not in costs]
        if lacking or len(costs) != len(names):
            other = lacking or [name for name in costs if name not in names]
            raise InferenceError(f"costs= must name each of the {len(names)} options once; look at {other[0]!r}")
        costs = [costs[name] for name in names]
    try:
        values = torch.as_tensor(costs, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InferenceError(f"costs={costs!r}; expected a number for each of {len(names)} options") from error
    if values.shape != (len(names),):
        raise InferenceError(
            f"costs= is shaped {tuple(values.shape)}; expected one cost for each of {len(names)} options"
        )
    if not bool(((values > 0) & values.isfinite()).all()):
        raise InferenceError(f"costs= has {values.min().item():g}; expected finite numbers above 0")
    return values


def _loss(loss: Any, posterior: Posterior, target: tuple[int, ...] | None, conditionals: Conditionals) -> Tensor:
    values = as_tensor("loss=", loss).double()
    labels = {posterior.model.graph.layer(posterior.target).labels}
    if target is not None:
        labels = set(conditionals.nodes.labels[list(target)].tolist())
    if values.dim() != 2 or labels != {len(values)}:
        raise InferenceError(
            f"loss= is shaped {tuple(values.shape)}; expected numbers ({' or '.join(map(str, labels))}, decisions), a "
            "row for each label of the target"
        )
    if not bool(values.isfinite().all()):
        raise InferenceError(f"loss= has {values[~values.isfinite()][0].item():g}; expected finite numbers")
    return values
