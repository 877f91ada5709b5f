"""Asking for one measurement after another, and how good the beliefs are by then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchlgm._utils.arrays import as_tensor
from torchlgm._utils.validate import check_choice, check_int, is_number
from torchlgm.errors import InferenceError
from torchlgm.joint.conditionals import Conditionals
from torchlgm.joint.gain import Question
from torchlgm.joint.inputs import Known, Table, column_numbers, names_of
from torchlgm.posterior import Posterior

ORDERS = ("gain", "static", "random")


class Acquisition:
    """Which option to buy next for a row, until none is worth it.

    Parameters
    ----------
    model : Posterior or LGMClassifier
    costs, groups, lookahead, loss
        As `acquire` takes them.
    stop : float, optional
        Stop when the best option is worth less: in nats per question, or per cost where there are costs.
    budget : float, optional
        Buy nothing that would make the sum of costs exceed this; without `costs` each option costs 1.
    order : {"gain", "static", "random"}
        By gain, row by row; one order for all rows of a `run`, by their mean gain; or at random.
    seed : int
        Seed of the random order.

    Examples
    --------
    >>> import torchlgm as lgm
    >>> posterior = lgm.Posterior(lgm.LGM(lgm.zoo.dense(inputs=3, hidden=[2], classes=2)), lgm.exact())
    >>> doctor = Acquisition(posterior, budget=2)
    >>> doctor.next(torch.tensor([1.0, torch.nan, torch.nan])) in (1, 2)
    True
    >>> x, y = (torch.rand(8, 3) < 0.5).float(), torch.arange(8) % 2
    >>> doctor.run(x, y).curve()["cost"]
    [0.0, 1.0, 2.0]
    """

    def __init__(
        self,
        model: Posterior | Table,
        costs: Any = None,
        stop: float | None = None,
        *,
        budget: float | None = None,
        groups: Mapping[Any, Any] | Sequence[Any] | None = None,
        lookahead: int = 1,
        loss: Any = None,
        order: str = "gain",
        seed: int = 0,
    ) -> None:
        check_choice("order", order, ORDERS, error=InferenceError)
        for name, value in (("stop", stop), ("budget", budget)):
            if value is not None and not (isinstance(value, Real) and value >= 0):
                raise InferenceError(f"{name}={value!r}; expected a number from 0 on, or None")
        self.model, self.stop, self.budget, self.order, self.seed = model, stop, budget, order, seed
        self._question = Question.of(model, costs, groups, None, lookahead, loss)

    def next(self, row: Any, spent: float = 0.0) -> Any:
        """The name of the option to buy for a row `(columns,)`, or a frame of one row; None to stop.

        `spent` is what the row has cost until now, which counts toward `budget`. A column of a `Posterior`, or a group
        without a name, is named by its number.
        """
        if not is_number(spent):
            raise InferenceError(f"spent={spent!r}; expected a number")
        x = self._question.inputs(self.model, _single(row))
        if not bool(x.isnan().any()):
            raise InferenceError("no entry of the row is missing, so there is nothing to measure")
        known = self._question.conditionals.known(x)
        generator = torch.Generator(known.q.device).manual_seed(self.seed)
        with torch.no_grad():
            option = int(self._choose(known, known.q.new_full((1,), spent), self._for_sale(known), generator)[0])
        return None if option < 0 else self._question.names[option]

    def run(self, X: Any, y: Any, questions: int | None = None, start: Any = None) -> AcquisitionRun:
        """Buy option after option for rows of which everything is hidden, but for the columns in `start`.

        `X` are rows with values to reveal; what is NaN cannot be bought. `y` `(N,)` are the true classes.
        """
        if questions is not None:
            check_int("questions", questions, 0, error=InferenceError)
        x, label = self._question.inputs(self.model, X), self._labels(y)
        if len(label) != len(x):
            raise InferenceError(f"X has {len(x)} rows, y has {len(label)}")
        truth = self._question.conditionals.known(x)
        known = _hidden(truth, self._numbers(start))
        generator = torch.Generator(truth.q.device).manual_seed(self.seed)
        most = len(self._question.options) if questions is None else questions
        spent = truth.q.new_zeros(len(x))
        log_probs, asked, costs = [self._log_probs(known)], [], [spent]
        with torch.no_grad():
            for _ in range(most):
                chosen = self._choose(known, spent, self._for_sale(known, truth), generator)
                if not bool((chosen >= 0).any()):
                    break
                known, spent = self._bought(known, truth, chosen), spent + self._costs[chosen] * (chosen >= 0)
                asked.append(chosen)
                log_probs.append(self._log_probs(known))
                costs.append(spent)
        empty = torch.empty(0, len(x), dtype=torch.long, device=spent.device)
        return AcquisitionRun(
            torch.stack(log_probs).cpu(),
            label,
            (torch.stack(asked) if asked else empty).cpu(),
            torch.stack(costs).cpu(),
            self._question.names,
        )

    @property
    def _costs(self) -> Tensor:
        posterior = self._question.conditionals.posterior
        like = posterior.model.unary[posterior.target]
        costs = self._question.costs
        return like.new_ones(len(self._question.options)) if costs is None else costs

    def _choose(self, known: Known, spent: Tensor, for_sale: Tensor, generator: torch.Generator) -> Tensor:
        """An option for each row, -1 for none, `(N,)`."""
        if self.budget is not None:
            for_sale = for_sale & (spent.unsqueeze(1) + self._costs <= self.budget * (1 + 1e-6))
        if self.order == "random":
            values = torch.rand(for_sale.shape, generator=generator, device=for_sale.device)
        else:
            values = self._question.values(known)
        best, option = values.masked_fill(~for_sale, -1).max(1)
        if self.order == "static":
            option = values.mean(0).masked_fill(~for_sale.any(0), -1).argmax().expand(len(values))
            best = values.gather(1, option.unsqueeze(1))[:, 0]
        enough = for_sale.gather(1, option.unsqueeze(1))[:, 0]
        if self.stop is not None and self.order != "random":
            enough = enough & (best >= self.stop)
        return torch.where(enough, option, -1)

    def _for_sale(self, known: Known, truth: Known | None = None) -> Tensor:
        """Options with an entry that is not known, and that can be, `(N, options)`."""
        lacking = ~known.seen if truth is None else ~known.seen & truth.seen
        return torch.stack([lacking[:, list(columns)].any(1) for columns in self._question.options], 1)

    def _bought(self, known: Known, truth: Known, chosen: Tensor) -> Known:
        shown = known.seen.clone()
        for option, columns in enumerate(self._question.options):
            rows, at = (chosen == option).nonzero(), torch.tensor(columns, device=chosen.device)
            shown[rows, at] = truth.seen[rows, at]
        return Known(truth.q * shown.unsqueeze(-1), shown)

    def _log_probs(self, known: Known) -> Tensor:
        with torch.no_grad():
            return self._question.conditionals.of_target(known)[:, 0]

    def _labels(self, y: Any) -> Tensor:
        classes = None if isinstance(self.model, Posterior) else getattr(self.model, "classes_", None)
        if classes is None:
            return _class_numbers(y, self.model)
        numbers = {value: i for i, value in enumerate(classes.tolist())}
        values = y.tolist() if hasattr(y, "tolist") else list(y)
        strange = [value for value in values if value not in numbers]
        if strange:
            raise InferenceError(f"y has the label {strange[0]!r}, which is not among the classes {list(numbers)}")
        return torch.tensor([numbers[value] for value in values])

    def _numbers(self, start: Any) -> list[int]:
        return [] if start is None else column_numbers(names_of(self.model), start, "start")


def asked_for(conditionals: Conditionals, x: Tensor, questions: int) -> Tensor:
    """Which columns are asked for by gain, one after another, `(N, T)`, -1 for none, of checked inputs `x`."""
    with torch.no_grad():
        truth = conditionals.known(x)
        question = Question.about_columns(conditionals)
        known, asked = _hidden(truth, []), []
        rows = torch.arange(len(x), device=truth.seen.device)
        for _ in range(questions):
            for_sale = truth.seen & ~known.seen
            best, column = question.values(known).masked_fill(~for_sale, -1).max(1)
            asked.append(torch.where(best >= 0, column, -1))
            shown = known.seen.clone()
            shown[rows, column] = truth.seen[rows, column]
            known = Known(truth.q * shown.unsqueeze(-1), shown)
    return torch.stack(asked, 1).cpu()


class AcquisitionRun(NamedTuple):
    """What a simulation did: T questions for each of N rows."""

    log_probs: Tensor  # (T + 1, N, C), before the first question and after each
    labels: Tensor  # (N,)
    asked: Tensor  # (T, N): numbers of options, -1 for none
    costs: Tensor  # (T + 1, N)
    names: tuple[Any, ...]  # of the options

    def curve(self) -> dict[str, list[float]]:
        """Means over rows by number of questions: `questions`, `accuracy`, `nll` and `cost`."""
        right = (self.log_probs.argmax(-1) == self.labels).double().mean(1)
        nll = -self.log_probs.gather(-1, self.labels.expand(len(right), -1).unsqueeze(-1)).double().mean((1, 2))
        return {
            "questions": [float(i) for i in range(len(right))],
            "accuracy": right.tolist(),
            "nll": nll.tolist(),
            "cost": self.costs.double().mean(1).tolist(),
        }


def _class_numbers(y: Any, posterior: Any) -> Tensor:
    labels, most = as_tensor("y", y).cpu(), posterior.model.graph.layer(posterior.target).labels - 1
    if not bool(((labels >= 0) & (labels <= most) & (labels == labels.long())).all()):
        raise InferenceError(f"y has other values than the numbers of classes, 0 to {most}")
    return labels.long()


def _single(row: Any) -> Any:
    if hasattr(row, "columns"):
        if len(row) != 1:
            raise InferenceError(f"next() takes one row, got {len(row)}")
        return row
    if hasattr(row, "to_frame"):  # a row of a pandas frame
        return row.to_frame().T.infer_objects()
    if not hasattr(row, "__iter__"):
        raise InferenceError(f"next() takes the values of a row, got {row!r}")
    return row.unsqueeze(0) if isinstance(row, Tensor) else [list(row)]


def _hidden(truth: Known, start: list[int]) -> Known:
    shown = torch.zeros_like(truth.seen)
    shown[:, start] = truth.seen[:, start]
    return Known(truth.q * shown.unsqueeze(-1), shown)
