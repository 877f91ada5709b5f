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

import numpy as np
import torch
from torch import Tensor

from torchlgm.learn import Reporter, Samples
from torchlgm.learn.distributed import Group, require_same
from torchlgm.learn.fingerprint import checksum
from torchlgm.model import LGM
from torchlgm.ops.star import ALL, Draws
from torchlgm.sklearn.descent import Descent
from torchlgm.sklearn.encoding import Plan
from torchlgm.sklearn.mixture import Mixture, learn_mixture
from torchlgm.sklearn.slots import Slots, even, whole
from torchlgm.sklearn.stack import Stack

FOLDS = 8  # each member holds out one of them
CHECKS = 25  # of the held-out rows
MOST_HELD_OUT = 4000  # rows that are looked at in a check
WARM_UP = 20  # steps
MOST_NOISE = 2**25  # bytes that are drawn at once
NEVER = 255  # noise of an entry that is not asked for
BY_POLICY = 0.5  # share of the rows with holes that show what a policy would have asked for


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
    threads: int = 1
    asked: np.ndarray | None = None  # (courses, T): which columns a policy asks for, one after another, -1 for none


class Trained(NamedTuple):
    models: list[LGM]
    mixture: Mixture
    losses: list[float]  # the mean of each pass


def train_members(
    start: LGM, plan: Plan, samples: Samples, course: Course, reporter: Reporter, group: Group
) -> Trained:
    """Train members that begin with the unaries of `start`; each process trains some of them and gets all."""
    if group.active:
        require_same(group, int(checksum(samples)), "rows")
    return _Training(start, plan, samples, course, group).run(reporter)


class _Training:
    def __init__(self, start: LGM, plan: Plan, samples: Samples, course: Course, group: Group) -> None:
        self.group = group
        device = start.unary[plan.target].device
        self.start, self.plan, self.course = start, plan, course
        self.hidden = start.graph.layer_names[-2]
        self.groups, self.members = len(course.regimes), course.members
        self.random = np.random.Generator(np.random.SFC64(course.seed))
        targets = samples.targets[:, 0].cpu().numpy()
        self.slots = Slots(plan.places, plan.ordered().numpy(), device)
        self.rows = self.slots.encode(samples.inputs.flatten(1).cpu().numpy(), targets.argmax(1), targets.sum(1))
        self.stack = Stack(self.slots, start, self.groups * self.members, self.hidden, plan.target, course.seed)
        self.ranks = None
        if course.asked is not None:
            order = [j for place in plan.places for j in place.columns]
            asked = course.asked[(course.asked >= 0).any(1)]
            self.ranks, self.questions = ranks_of(asked, len(order))[:, order], (asked >= 0).sum(1)
        self.complete, self.low, self.high, penalty = np.repeat(np.array(course.regimes), self.members, 0).T
        self._split()
        self.batch = min(course.batch_size, self.train_rows.shape[1])
        self.mine = group.part(self.groups * self.members)
        work = self.stack.flat.numel() * self.batch
        mine, penalty = self.stack.some(self.mine), penalty[self.mine] / len(self.rows.label)
        self.descent = Descent(mine, self.rows, penalty, work, course.threads)

    def _split(self) -> None:
        """Folds with like shares of the classes. Where rows are few, all are trained on and looked at."""
        label = self.rows.label
        n, columns = self.rows.slot.shape
        order = self.random.permutation(n)
        order = order[label[order].argsort(kind="stable")]
        self.holds_out = self.course.patience is not None and n >= 2 * FOLDS
        fold = np.empty(n, int)
        fold[order] = np.arange(n) % max(FOLDS, self.members)
        parts = [fold == m if self.holds_out else np.zeros(n, bool) for m in range(self.members)]
        self.train_rows = np.tile(even([np.flatnonzero(~part) for part in parts]), (self.groups, 1))
        most = max(1, MOST_HELD_OUT // self.members)
        held_out = even([np.flatnonzero(part)[:most] if self.holds_out else np.arange(n)[:most] for part in parts])
        complete = whole(held_out, columns)
        shown = self.random.random(complete.shown.shape) * ALL
        noise = np.frombuffer(self.random.bytes(complete.noise.size), np.uint8).reshape(complete.noise.shape)
        holes = self._as_asked(complete._replace(shown=shown.astype(np.uint16), noise=noise.copy()))
        self.missing = np.concatenate([1 - self.slots.seen(self.rows, x).mean(-1).ravel() for x in (complete, holes)])
        self.checks = [
            Draws(*(np.tile(a, (1, self.groups) + (1,) * (a.ndim - 2)) for a in x)) for x in (complete, holes)
        ]
        chosen = self.checks[0].rows[0]
        self.label, self.weight = (
            torch.as_tensor(self.rows.label[chosen]).long(),
            torch.as_tensor(self.rows.weight[chosen]),
        )

    def run(self, reporter: Reporter) -> Trained:
        course, rows = self.course, self.train_rows.shape[1]
        steps_of_pass = max(1, rows // self.batch)
        every = max(1, course.steps // CHECKS)
        best = _Best(self.groups, self.members, self.stack.flat)
        losses: list[float] = []
        while len(losses) < course.steps:
            first, steps = len(losses), min(every, course.steps - len(losses))
            losses += self._advance(first, steps, steps_of_pass)
            likelihoods, right = self._look()
            held_out = self._losses(likelihoods)
            best.update(held_out, likelihoods, self.stack.flat)
            epoch = (len(losses) - 1) // steps_of_pass + 1
            taken = ((len(losses) - 1) % steps_of_pass + 1) * self.batch
            reporter.step(epoch, -(-course.steps // steps_of_pass), taken, rows)
            figures = {"train_loss": float(np.mean(losses[first:])), "valid_loss": float(held_out.mean())}
            reporter.epoch({"epoch": epoch, **figures, "valid_accuracy": right})
            if course.patience is not None and best.since >= course.patience:
                break
        return self._finished(best, losses, steps_of_pass)

    def _advance(self, first: int, steps: int, steps_of_pass: int) -> list[float]:
        """The mean losses of some steps, in parts whose draws fit into memory."""
        course, numbers = self.course, self.batch * self.rows.slot.shape[1] * self.groups * self.members
        losses: list[float] = []
        while len(losses) < steps:
            start, some = first + len(losses), min(steps - len(losses), max(1, MOST_NOISE // numbers))
            index = np.stack([self._batch(step, steps_of_pass) for step in range(start, start + some)])
            shown = self.low[:, None] + (self.high - self.low)[:, None] * self.random.random(index.shape, np.float32)
            shown[self.random.random(index.shape, np.float32) < self.complete[:, None]] = 1
            size = *index.shape, self.rows.slot.shape[1]
            noise = np.frombuffer(bytearray(self.random.bytes(math.prod(size))), np.uint8).reshape(size)
            draws = self._mine(self._as_asked(Draws(index, (shown * ALL).round().astype(np.uint16), noise)))
            at = np.arange(start, start + some)
            rates = 0.5 * (1 + np.cos(np.pi * at / course.steps)) * np.minimum(1.0, (at + 1) / WARM_UP)
            losses += self._of_all(self.descent.advance(draws, course.learning_rate * rates).T).mean(0).tolist()
        return losses

    def _as_asked(self, draws: Draws) -> Draws:
        """Some rows with holes show what a policy would have asked for first: the number is drawn, few more often.

        Each time they show what it asked some row for. If a row always showed its own course, the few entries in it
        would be learned by heart.
        """
        if self.ranks is None or not len(self.ranks):
            return draws
        chosen = (self.random.random(draws.rows.shape, np.float32) < BY_POLICY) & (draws.shown < ALL)
        course = self.random.integers(len(self.ranks), size=int(chosen.sum()))
        count = (self.questions[course] + 1.0) ** self.random.random(len(course))
        draws.shown[chosen], draws.noise[chosen] = count.astype(np.uint16), self.ranks[course]
        return draws

    def _mine(self, draws: Draws) -> Draws:
        """What is drawn for the members of this process."""
        return Draws(*(np.ascontiguousarray(x[:, self.mine]) for x in draws))

    def _of_all(self, mine: np.ndarray) -> np.ndarray:
        """Of the members of all processes, out of `(members, ...)` of this one."""
        return self.group.gathered(torch.from_numpy(np.ascontiguousarray(mine)), self.groups * self.members).numpy()

    def _batch(self, step: int, steps_of_pass: int) -> np.ndarray:
        """The rows `(M, batch)` of a step; each pass has an order of its own."""
        if step % steps_of_pass == 0:
            self.order = self.random.permuted(self.train_rows, axis=1)
        first = step % steps_of_pass * self.batch
        return self.order[:, first : first + self.batch]

    def _look(self) -> tuple[list[Tensor], float]:
        """The log-likelihoods of the classes of held-out rows `(M, rows)`, as they are and with entries hidden, and how
        often the most probable class of the former is right."""
        label = self.label[self.mine]
        log_probs = [self.descent.log_probs(self._mine(rows)).cpu() for rows in self.checks]
        right = (log_probs[0].argmax(2) == label).float()
        mine = torch.stack([right, *(x.gather(2, label.unsqueeze(2)).squeeze(2) for x in log_probs)], 1)
        right, *likelihoods = self.group.gathered(mine, self.groups * self.members).unbind(1)
        return likelihoods, float(right.double().mean())

    def _losses(self, likelihoods: list[Tensor]) -> Tensor:
        """Of each regime `(groups,)`, on rows like those that it is trained on."""
        on_complete, on_holes = (-(x * self.weight).unflatten(0, (self.groups, -1)).mean((1, 2)) for x in likelihoods)
        complete = torch.as_tensor(self.complete[:: self.members])
        return complete * on_complete + (1 - complete) * on_holes

    def _finished(self, best: _Best, losses: list[float], steps_of_pass: int) -> Trained:
        mixture = Mixture.even(self.groups, self.members)
        if self.holds_out:
            self.stack.flat.data.copy_(best.parameters)
        flat = self.stack.flat.detach()
        flat.copy_(self.group.gathered(flat[self.mine], len(flat)))
        if self.holds_out:
            mixture = self._mixture(best)
        models = self.stack.models(self.start.graph, self.plan, self.hidden)
        passes = [float(np.mean(losses[i : i + steps_of_pass])) for i in range(0, len(losses), steps_of_pass)]
        return Trained(models, mixture, passes)

    def _mixture(self, best: _Best) -> Mixture:
        likelihoods = torch.stack([torch.cat([x.flatten() for x in group]) for group in best.likelihoods], 1)
        weight = self.weight[: self.members].flatten().repeat(len(self.checks))
        return learn_mixture(likelihoods, torch.as_tensor(self.missing), weight, self.members)


def ranks_of(asked: np.ndarray, columns: int) -> np.ndarray:
    """When each column is asked for, `(courses, columns)`, `NEVER` where it is not."""
    ranks = np.full((len(asked), columns + 1), NEVER, np.uint8)
    for time in range(asked.shape[1]):
        ranks[np.arange(len(asked)), asked[:, time]] = time
    return ranks[:, :-1]  # the last one stands for none


class _Best:
    """For each group, the parameters with the lowest loss on held-out rows, and the likelihoods of those rows."""

    def __init__(self, groups: int, members: int, parameters: Tensor) -> None:
        self.groups, self.members = groups, members
        self.loss = [math.inf] * groups
        self.checks_since = [0] * groups
        self.parameters = parameters.detach().clone()
        self.likelihoods: list[list[Tensor]] = [[] for _ in range(groups)]

    @property
    def since(self) -> int:
        return min(self.checks_since)

    def update(self, losses: Tensor, likelihoods: Sequence[Tensor], parameters: Tensor) -> None:
        for g, loss in enumerate(losses.tolist()):
            self.checks_since[g] += 1
            if loss >= self.loss[g]:
                continue
            self.loss[g], self.checks_since[g] = loss, 0
            members = slice(g * self.members, (g + 1) * self.members)
            self.likelihoods[g] = [x[members].clone() for x in likelihoods]
            self.parameters[members] = parameters.detach()[members]
