"""Training members side by side to fill in: entries of rows are hidden, and predicted from those left.

The graph is a layer of hidden nodes between columns, without a class. Given what is seen of a row, hidden nodes have
log-odds a_h, to which a missing column adds m_ch and label k of a seen one t_ckh; then

    p(c = k) is proportional to exp(u_ck + sum_h softplus(a_h - m_ch + t_ckh))

for a missing column c: one sweep of belief propagation, the same as `infer(model, evidence, lbp(1))`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim import Adam

from torchlgm.learn import Reporter
from torchlgm.model import LGM
from torchlgm.ops.softplus import softplus_sum
from torchlgm.sklearn.encoding import Plan
from torchlgm.sklearn.slots import Slots

INPUT_STD = 1.5  # of the initial energies, shared by the columns
FOLDS = 10  # each member holds out one of them
CHECKS = 40  # of the held-out rows
PATIENCE = 5  # checks without a lower loss
MOST_HELD_OUT = 400  # rows of a member that are looked at in a check
WARM_UP = 20  # steps
LOW, HIGH = 0.3, 1.0  # shares of the entries that stay visible
PRIOR = 0.5  # added to how often each label occurs


@dataclass(frozen=True)
class FillCourse:
    """What a training does."""

    members: int
    steps: int
    batch_size: int
    learning_rate: float
    early_stopping: bool
    seed: int


class Filled(NamedTuple):
    models: list[LGM]
    losses: list[float]  # the mean of each stretch between two checks


def train_to_fill(plan: Plan, rows: Tensor, weights: Tensor, course: FillCourse, reporter: Reporter) -> Filled:
    """Members trained on rows `(N, nodes)` in [0, 1], NaN = missing, with weights `(N,)`."""
    return _Training(plan, rows, weights, course).run(reporter)


class FillStack:
    """The parameters of all members, as they are trained: minus the energies."""

    def __init__(self, slots: Slots, often: Tensor, members: int, hidden: int, seed: int) -> None:
        """`often` `(slots,)` is how often each label occurs."""
        generator, device = torch.Generator().manual_seed(seed), often.device
        drawn = torch.randn(members, len(often), hidden, generator=generator, dtype=torch.float32)
        self.slots = slots
        self.inputs = drawn.to(device) * (INPUT_STD / math.sqrt(len(slots.first)))
        share = often / self._by_column(often.unsqueeze(-1), 0).squeeze(-1)[slots.column]
        self.unary = share.log().expand(members, -1).clone()
        mean = (share.unsqueeze(-1) * slots.values(self.inputs)).sum(1)
        self.hidden = -mean.unsqueeze(-1)  # so that an average row has log-odds of 0
        for parameter in self.parameters():
            parameter.requires_grad_(True)

    def parameters(self) -> list[Tensor]:
        return [self.inputs, self.hidden, self.unary]

    def _by_column(self, x: Tensor, axis: int) -> Tensor:
        """Sums over the slots of each column."""
        shape = [*x.shape]
        shape[axis] = len(self.slots.first)
        return x.new_zeros(shape).index_add(axis, self.slots.column, x)

    def log_probs(self, q: Tensor, seen: Tensor) -> Tensor:
        """log of the beliefs about all labels of missing columns `(M, slots, B)`; of seen ones they mean nothing.

        `q` `(M, B, slots)` are the probabilities of labels, `seen` `(M, B, columns)` is 1 or 0.
        """
        column, values = self.slots.column, self.slots.values(self.inputs)
        unary = self.unary - self._by_column(self.unary.exp(), 1).log()[:, column]
        each = unary.exp().unsqueeze(-1) * values.clamp(max=60).exp()
        absent = self._by_column(each, 1).clamp(min=1e-30).log()
        table = torch.cat([values, absent], 1).transpose(1, 2)
        known = torch.cat([q * seen.index_select(2, column), 1 - seen], 2)
        odds = torch.baddbmm(self.hidden, table, known.transpose(1, 2))
        spoken = softplus_sum(odds, (values - absent[:, column]).transpose(1, 2)) + unary.unsqueeze(-1)
        shape = (spoken.shape[0], len(self.slots.first), spoken.shape[2])
        index = column.view(1, -1, 1).expand_as(spoken)
        most = spoken.detach().new_full(shape, -torch.inf).scatter_reduce(1, index, spoken.detach(), "amax")
        total = self._by_column((spoken - most[:, column]).exp(), 1).log() + most
        return spoken - total[:, column]

    def loss(self, q: Tensor, there: Tensor, seen: Tensor, weight: Tensor) -> Tensor:
        """Of each member `(M,)`: the mean over entries that are there but not seen, each weighted by its row."""
        asked = (there - seen) * weight.unsqueeze(-1)
        wanted = q * asked.index_select(2, self.slots.column)
        return -(self.log_probs(q, seen).transpose(1, 2) * wanted).sum((1, 2)) / asked.sum((1, 2)).clamp(min=1e-6)

    def model(self, member: int, plan: Plan) -> LGM:
        """One member as a model of the graph: its energies leave label 0 at 0."""
        model, hidden = LGM(plan.graph, "zero", dtype=torch.float32), plan.graph.root
        links = {c.left: c.name for c in plan.graph.connections}
        values, unary = self.slots.values(self.inputs)[member], self.unary[member]
        with torch.no_grad():
            start, shift = 0, self.hidden[member, :, 0].clone()
            for place in self.slots.places:
                stop = start + len(place.columns) * place.labels
                here = values[start:stop].unflatten(0, (-1, place.labels))
                weights = unary[start:stop].unflatten(0, (-1, place.labels))
                table = (here[:, :1] - here[:, 1:]).transpose(1, 2).unsqueeze(-1)
                model.table[links[place.layer]].copy_(table)
                model.unary[place.layer].copy_(weights[:, :1] - weights[:, 1:])
                shift += here[:, 0].sum(0)
                start = stop
            model.unary[hidden].copy_(-shift.unsqueeze(1))
        return model


class _Training:
    def __init__(self, plan: Plan, rows: Tensor, weights: Tensor, course: FillCourse) -> None:
        self.plan, self.course, self.weight = plan, course, weights
        self.slots = Slots(plan.places, plan.ordered().cpu().numpy(), rows.device)
        self.q, self.there = _read(self.slots, rows)
        self.random = torch.Generator(rows.device).manual_seed(course.seed)
        often = (self.q * weights.unsqueeze(1)).sum(0) + PRIOR
        hidden = plan.graph.layer(plan.graph.root).nodes
        self.stack = FillStack(self.slots, often, course.members, hidden, course.seed)
        self._split()

    def _split(self) -> None:
        """Each member holds out another part of the rows; where these are few, all are trained on and looked at."""
        n, members = len(self.q), self.course.members
        self.holds_out = self.course.early_stopping and n >= 2 * FOLDS
        fold = torch.randperm(n, generator=self.random, device=self.q.device) % max(FOLDS, members)
        out = [(fold == m) & self.holds_out for m in range(members)]
        self.train_rows = _even([(~part).nonzero().squeeze(1) for part in out])
        held = _even([part.nonzero().squeeze(1) if self.holds_out else torch.arange(n) for part in out])
        self.checked = held[:, :MOST_HELD_OUT]
        self.shown = self._visible(self.there[self.checked])

    def _visible(self, there: Tensor) -> Tensor:
        share = LOW + (HIGH - LOW) * self._draw((*there.shape[:2], 1))
        return there * (self._draw(there.shape) < share)

    def _draw(self, shape: tuple[int, ...] | torch.Size) -> Tensor:
        return torch.rand(shape, generator=self.random, device=self.q.device, dtype=torch.float32)

    def run(self, reporter: Reporter) -> Filled:
        course, rows = self.course, self.train_rows.shape[1]
        batch = min(course.batch_size, rows)
        per_pass, every = max(1, rows // batch), max(1, course.steps // CHECKS)
        optimizer = Adam(self.stack.parameters(), lr=course.learning_rate, fused=True)
        best, since, kept = math.inf, 0, [p.detach().clone() for p in self.stack.parameters()]
        losses: list[float] = []
        stretch: list[Tensor] = []
        order = self.train_rows
        for step in range(course.steps):
            if step % per_pass == 0:
                order = self.train_rows.gather(1, self._draw(self.train_rows.shape).argsort(1))
            first = step % per_pass * batch
            stretch.append(self._step(optimizer, order[:, first : first + batch], step))
            if (step + 1) % every == 0 or step + 1 == course.steps:
                losses.append(float(torch.stack(stretch).mean()))
                stretch.clear()
                held_out = self._look()
                since += 1
                if held_out < best or not self.holds_out:
                    best, since, kept = held_out, 0, [p.detach().clone() for p in self.stack.parameters()]
                epoch, epochs = step // per_pass + 1, -(-course.steps // per_pass)
                reporter.step(epoch, epochs, first + batch, rows)
                figures = {"train_loss": losses[-1], "valid_loss": held_out, "valid_accuracy": math.nan}
                reporter.epoch({"epoch": epoch, **figures})
                if since >= PATIENCE:
                    break
        for parameter, value in zip(self.stack.parameters(), kept, strict=True):
            parameter.data.copy_(value)
        return Filled([self.stack.model(m, self.plan) for m in range(course.members)], losses)

    def _step(self, optimizer: Adam, index: Tensor, step: int) -> Tensor:
        there = self.there[index]
        loss = self.stack.loss(self.q[index], there, self._visible(there), self.weight[index])
        optimizer.zero_grad()
        loss.sum().backward()
        rate = 0.5 * (1 + math.cos(math.pi * step / self.course.steps)) * min(1.0, (step + 1) / WARM_UP)
        for group in optimizer.param_groups:
            group["lr"] = self.course.learning_rate * rate
        optimizer.step()
        return loss.detach().mean()

    @torch.no_grad()
    def _look(self) -> float:
        at = self.checked
        return float(self.stack.loss(self.q[at], self.there[at], self.shown, self.weight[at]).mean())


def _read(slots: Slots, x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows `(N, columns)` in [0, 1] -> probabilities of the labels `(N, slots)`, 0 where missing, and which entries
    are there, `(N, columns)`, 1 or 0."""
    parts, there = [], []
    for place in slots.places:
        at = x[:, list(place.columns)]
        here = (~at.isnan()).to(x.dtype)
        labels = torch.arange(place.labels, device=x.device, dtype=x.dtype)
        near = 1 - (at.nan_to_num().unsqueeze(-1) * (place.labels - 1) - labels).abs()
        parts.append((near.clamp(min=0) * here.unsqueeze(-1)).flatten(1))
        there.append(here)
    return torch.cat(parts, 1), torch.cat(there, 1)


def _even(parts: list[Tensor]) -> Tensor:
    """Lists of rows as one tensor, cut to the length of the shortest."""
    length = min(map(len, parts))
    return torch.stack([part[:length] for part in parts])
