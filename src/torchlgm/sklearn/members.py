"""Training the members of a classifier side by side, each with other rows held out, and weighing them by what they say
of those rows.

Members are models of one graph, a star (`torchlgm.inference.star`). Groups of them are trained in different ways: on
mostly complete rows, on rows with entries hidden, and the latter with a penalty on large energies. Rows that no member
of a fold was trained on say when to stop, and how much each group counts for a row with a given share of entries
missing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim import Adam

from torchlgm.learn import Reporter, Samples
from torchlgm.model import LGM
from torchlgm.sklearn.encoding import Plan
from torchlgm.sklearn.mixture import Mixture, learn_mixture
from torchlgm.sklearn.stack import Slots, Stack

FOLDS = 8  # each member holds out one of them
CHECKS = 25  # of the held-out rows
MOST_HELD_OUT = 4000  # rows that are looked at in a check
WARM_UP = 20  # steps


class Regime(NamedTuple):
    """How a group of members is trained."""

    complete: float  # share of the rows that are left as they are
    low: float  # the others keep a share of their entries, uniform between this
    high: float  # and this
    penalty: float = 0.0  # weight of the squared energies of all edges, over the number of rows


@dataclass(frozen=True)
class Course:
    """What a training does."""

    regimes: tuple[Regime, ...]
    members: int  # of each regime
    steps: int
    batch_size: int
    learning_rate: float
    patience: int | None  # checks without a lower loss; None trains to the end on all rows
    seed: int


class Trained(NamedTuple):
    models: list[LGM]
    mixture: Mixture
    losses: list[float]  # the mean of each pass


def train_members(start: LGM, plan: Plan, samples: Samples, course: Course, reporter: Reporter) -> Trained:
    """Train members that begin with the unaries of `start`."""
    return _Training(start, plan, samples, course).run(reporter)


class _Training:
    def __init__(self, start: LGM, plan: Plan, samples: Samples, course: Course) -> None:
        device = start.unary[plan.target].device
        self.start, self.plan, self.course = start, plan, course
        self.slots = Slots(plan.places, plan.ordered().to(device))
        self.hidden = start.graph.layer_names[-2]
        self.groups, self.members = len(course.regimes), course.members
        count = self.groups * self.members
        self.q, self.seen = self.slots.read(samples.inputs.flatten(1).to(device, torch.float32))
        targets = samples.targets[:, 0].to(device)
        self.weight, self.label = targets.sum(1), targets.argmax(1)
        self.random = torch.Generator(device).manual_seed(course.seed)
        self.stack = Stack(self.slots, start, count, self.hidden, plan.target, course.seed)
        each = torch.tensor(course.regimes, device=device, dtype=torch.float32).repeat_interleave(self.members, 0)
        self.complete, self.low, self.high, _ = each[..., None, None].unbind(1)
        self._split()

    def _split(self) -> None:
        """Folds with like shares of the classes. Where rows are few, all are trained on and looked at."""
        n, count = len(self.label), self.groups
        order = torch.randperm(n, generator=self.random, device=self.label.device)
        order = order[self.label[order].argsort(stable=True)]
        self.holds_out = self.course.patience is not None and n >= 2 * FOLDS
        fold = torch.empty_like(order)
        fold[order] = torch.arange(n, device=order.device) % max(FOLDS, self.members)
        rows = torch.arange(n, device=order.device)
        parts = [fold == m if self.holds_out else torch.zeros_like(fold, dtype=torch.bool) for m in range(self.members)]
        self.train_rows = _even([rows[~part] for part in parts]).repeat(count, 1)
        most = max(1, MOST_HELD_OUT // self.members)
        held_out = _even([rows[part][:most] if self.holds_out else rows[:most] for part in parts]).repeat(count, 1)
        self.checked = self.label[held_out], self.weight[held_out]
        q, seen = self.q[held_out], self.seen[held_out]
        some = seen[: self.members]  # the same rows with the same holes for each group
        holes = (some * (self._draw(some.shape) < self._draw((*some.shape[:2], 1)))).repeat(count, 1, 1)
        self.checks = [self.slots.rows(q, seen), self.slots.rows(q, holes)]
        self.missing = torch.cat([1 - x[: self.members].mean(2).flatten() for x in (seen, holes)])

    def _draw(self, shape: Sequence[int]) -> Tensor:
        """Uniform numbers from 0 to 1."""
        return torch.rand(shape, generator=self.random, device=self.label.device, dtype=torch.float32)

    def run(self, reporter: Reporter) -> Trained:
        course, rows = self.course, self.train_rows.shape[1]
        batch = min(course.batch_size, rows)
        steps_of_pass = max(1, rows // batch)
        every = max(1, course.steps // CHECKS)
        optimizer = Adam(self.stack.parameters(), lr=course.learning_rate, fused=True)
        best = _Best(self.groups, self.members, self.stack.parameters())
        losses, order = [], self.train_rows
        for step in range(course.steps):
            if step % steps_of_pass == 0:
                shuffled = self._draw(order.shape).argsort(1)
                order = self.train_rows.gather(1, shuffled)
            first = step % steps_of_pass * batch
            losses.append(self._step(optimizer, order[:, first : first + batch], step))
            if (step + 1) % every == 0 or step + 1 == course.steps:
                likelihoods, right = self._look()
                held_out = self._losses(likelihoods)
                best.update(held_out, likelihoods, self.stack.parameters())
                train_loss = float(torch.stack(losses[-every:]).mean())
                epoch = step // steps_of_pass + 1
                reporter.step(epoch, -(-course.steps // steps_of_pass), first + batch, rows)
                figures = {"train_loss": train_loss, "valid_loss": float(held_out.mean()), "valid_accuracy": right}
                reporter.epoch({"epoch": epoch, **figures})
                if course.patience is not None and best.since >= course.patience:
                    break
        return self._finished(best, losses, steps_of_pass)

    def _step(self, optimizer: Adam, index: Tensor, step: int) -> Tensor:
        course, shape = self.course, (*index.shape, 1)
        shown = (self.low + (self.high - self.low) * self._draw(shape)).masked_fill(
            self._draw(shape) < self.complete, 2.0
        )
        seen = self.seen[index]
        seen *= self._draw(seen.shape) < shown
        log_probs = self.stack.log_probs(self.slots.rows(self.q[index], seen))
        picked = log_probs.gather(1, self.label[index].unsqueeze(1)).squeeze(1)
        loss = -(picked * self.weight[index]).mean(1)
        optimizer.zero_grad()
        loss.sum().backward()
        for g, regime in enumerate(course.regimes):
            if regime.penalty:
                members = slice(g * self.members, (g + 1) * self.members)
                self.stack.shrink(members, regime.penalty / len(self.label))
        rate = 0.5 * (1 + math.cos(math.pi * step / course.steps)) * min(1.0, (step + 1) / WARM_UP)
        for group in optimizer.param_groups:
            group["lr"] = course.learning_rate * rate
        optimizer.step()
        return loss.detach().mean()

    @torch.no_grad()
    def _look(self) -> tuple[list[Tensor], float]:
        """The log-likelihoods of the classes of held-out rows `(M, rows)`, as they are and with entries hidden, and how
        often the most probable class of the former is right."""
        label = self.checked[0].unsqueeze(1)
        log_probs = [self.stack.log_probs(rows) for rows in self.checks]
        right = float((log_probs[0].argmax(1, keepdim=True) == label).double().mean())
        return [x.gather(1, label).squeeze(1) for x in log_probs], right

    def _losses(self, likelihoods: list[Tensor]) -> Tensor:
        """Of each regime `(groups,)`, on rows like those that it is trained on."""
        weight = self.checked[1]
        on_complete, on_holes = (-(x * weight).unflatten(0, (self.groups, -1)).mean((1, 2)) for x in likelihoods)
        complete = self.complete.flatten()[:: self.members]
        return complete * on_complete + (1 - complete) * on_holes

    def _finished(self, best: _Best, losses: list[Tensor], steps_of_pass: int) -> Trained:
        mixture = Mixture.even(self.groups, self.members)
        if self.holds_out:
            for parameter, kept in zip(self.stack.parameters(), best.parameters, strict=True):
                parameter.data.copy_(kept)
            mixture = self._mixture(best)
        models = [self.stack.model(m, self.start, self.plan, self.hidden) for m in range(self.groups * self.members)]
        passes = [
            float(torch.stack(losses[i : i + steps_of_pass]).mean()) for i in range(0, len(losses), steps_of_pass)
        ]
        return Trained(models, mixture, passes)

    def _mixture(self, best: _Best) -> Mixture:
        likelihoods = torch.stack([torch.cat([x.flatten() for x in group]) for group in best.likelihoods], 1)
        weight = self.checked[1][: self.members].flatten().repeat(len(self.checks))
        return learn_mixture(likelihoods, self.missing, weight, self.members)


class _Best:
    """For each group, the parameters with the lowest loss on held-out rows, and the likelihoods of those rows."""

    def __init__(self, groups: int, members: int, parameters: Sequence[Tensor]) -> None:
        self.groups, self.members = groups, members
        self.loss = [math.inf] * groups
        self.checks_since = [0] * groups
        self.parameters = [p.detach().clone() for p in parameters]
        self.likelihoods: list[list[Tensor]] = [[] for _ in range(groups)]

    @property
    def since(self) -> int:
        return min(self.checks_since)

    def update(self, losses: Tensor, likelihoods: Sequence[Tensor], parameters: Sequence[Tensor]) -> None:
        for g, loss in enumerate(losses.tolist()):
            self.checks_since[g] += 1
            if loss >= self.loss[g]:
                continue
            self.loss[g], self.checks_since[g] = loss, 0
            members = slice(g * self.members, (g + 1) * self.members)
            self.likelihoods[g] = [x[members].clone() for x in likelihoods]
            for kept, p in zip(self.parameters, parameters, strict=True):
                kept[members] = p.detach()[members]


def _even(parts: Sequence[Tensor]) -> Tensor:
    """Lists of rows as one tensor, cut to the length of the shortest."""
    length = min(map(len, parts))
    return torch.stack([part[:length] for part in parts])
