"""The Dense graph by formulas of its own: belief propagation on a star, and its training for several seeds at once.

With the input observed, hidden nodes with two labels surround one output with ten. Both of its messages are written out
here, apart from the schedules and plans of the library, so that each can show a mistake in the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from experiments.paper.ablations.history import Epoch, stopped
from experiments.paper.cells import Experiment
from experiments.paper.sources import Parts
from experiments.pool import Watch

INPUTS_FIRST, OUTPUT_FIRST = ORDERS = ("inputs first", "output first")
MESSAGES = ("to output", "to hidden")


@dataclass(frozen=True)
class Order:
    """Which end sends first within an iteration, and how many iterations there are.

    With a last belief, evidence counts from the second iteration on, and beliefs are made once more after the last one.
    Without, evidence counts at once, and beliefs are older than the last messages. Either way evidence advances by one
    connection in an iteration, as in the paper's table 1.
    """

    name: str
    iterations: int
    last_belief: bool = True


class Energies(NamedTuple):
    """Compact energies, for S seeds: of label 1 of hidden nodes, and of labels 1 to 9 of the output."""

    hidden: Tensor  # (S, H)
    output: Tensor  # (S, 1, 9)
    inward: Tensor  # (S, pixels, H)
    outward: Tensor  # (S, H, 9)


class Beliefs(NamedTuple):
    hidden: Tensor  # (S, B, H): log-odds of label 1
    output: Tensor  # (S, B, 10): log-probabilities, not normalised
    to_hidden: Tensor  # (S, B, H): the last messages, as log-odds
    to_output: Tensor  # (S, B, 10, H): and as likelihood ratios


def infer(e: Energies, x: Tensor, order: Order) -> Beliefs:
    """Beliefs about hidden nodes and output, given inputs (S, B, pixels)."""
    evidence, factor = -(x @ e.inward), _factor(e)
    unary, rise, one = pad(-e.output, (1, 0)), factor - 1, torch.ones((), dtype=x.dtype)
    to_output = torch.ones((*evidence.shape[:2], *factor.shape[2:]), dtype=x.dtype)
    to_hidden = torch.zeros_like(evidence)

    def beliefs(seen: bool) -> tuple[Tensor, Tensor]:
        return -e.hidden[:, None] + to_hidden + (evidence if seen else 0.0), unary + to_output.log().sum(-1)

    hidden, output = beliefs(seen=not order.last_belief)
    for t in range(order.iterations):
        if t > 0:
            hidden, output = beliefs(seen=True)
        for message in MESSAGES if order.name == INPUTS_FIRST else MESSAGES[::-1]:
            if message == "to output":
                to_output = torch.addcmul(one, torch.sigmoid(hidden - to_hidden)[:, :, None], rise)
            else:
                cavity = output.softmax(-1)[..., None] / to_output
                to_hidden = ((cavity * factor).sum(2) / cavity.sum(2)).log()
    if order.last_belief:
        hidden, output = beliefs(seen=True)
    return Beliefs(hidden, output, to_hidden, to_output)


def _factor(e: Energies) -> Tensor:
    """What label 1 of a hidden node multiplies the output's labels by: (S, 1, 10, H)."""
    return pad(-e.outward, (1, 0)).exp().mT[:, None].contiguous()


def analytic_gradient(e: Energies, x: Tensor, y: Tensor, order: Order) -> tuple[Tensor, Energies]:
    """The loss of each seed, and expectations of labels with the output clamped, which are exact, less those
    with it free."""
    free, count = infer(e, x, order), x.shape[1]
    log_probs = free.output.log_softmax(-1)
    target = nn.functional.one_hot(y, log_probs.shape[-1]).to(x.dtype)
    clamped = torch.sigmoid(-e.hidden[:, None] - x @ e.inward + target @ pad(-e.outward, (1, 0)).mT)
    cavity = log_probs.exp()[..., None] / free.to_output  # of the output, without what came from h
    joint = cavity * _factor(e)
    on = torch.sigmoid(free.hidden - free.to_hidden + (joint.sum(2) / cavity.sum(2)).log()) / joint.sum(2)
    hidden = clamped - torch.sigmoid(free.hidden)
    edges = clamped.mT @ target - (joint * on[:, :, None]).sum(1).mT
    gradient = Energies(
        hidden.sum(1) / count,
        (target - log_probs.exp()).sum(1, keepdim=True)[..., 1:] / count,
        x.mT @ hidden / count,
        edges[..., 1:] / count,
    )
    return -(log_probs * target).sum((1, 2)) / count, gradient


def nll(e: Energies, x: Tensor, y: Tensor, order: Order) -> Tensor:
    """Mean negative log-likelihood of each seed."""
    log_probs = infer(e, x, order).output.log_softmax(-1)
    return -log_probs.gather(-1, y[..., None]).mean((1, 2))


def start(seeds: Sequence[int], pixels: int, hidden: int = 100, classes: int = 10) -> Energies:
    """From N(0, 1), as all trainings of this column."""
    shapes = ((hidden,), (1, classes - 1), (pixels, hidden), (hidden, classes - 1))
    draws = [torch.Generator().manual_seed(seed) for seed in seeds]
    return Energies(*(torch.stack([torch.randn(shape, generator=draw) for draw in draws]) for shape in shapes))


def train(
    e: Experiment, order: Order, analytic: bool, seeds: Sequence[int], parts: Parts, watch: Watch
) -> list[list[Epoch]]:
    """The epochs of each seed, until none has a lower validation loss for as many epochs as the patience."""
    train, *held_out = ((part.inputs.flatten(1).cpu(), part.targets.cpu()) for part in parts)
    parameters = [nn.Parameter(part) for part in start(seeds, train[0].shape[1])]
    energies, optimizer = Energies(*parameters), torch.optim.Adam(parameters, e.learning_rate, fused=True)
    draws = [torch.Generator().manual_seed(1000 + seed) for seed in seeds]
    histories: list[list[Epoch]] = [[] for _ in seeds]

    def over(history: list[Epoch]) -> bool:
        losses = [epoch.loss for epoch in history]
        return any(stopped(losses[:count], e.patience) for count in range(1, len(losses) + 1))

    while len(histories[0]) < e.epochs and not all(map(over, histories)):
        shuffled = torch.stack([torch.randperm(len(train[0]), generator=draw) for draw in draws])
        for batch in shuffled.split(e.batch, dim=1):
            watch.check()
            _step(energies, optimizer, train[0][batch], train[1][batch], order, analytic)
        losses, accuracies = (_scores(energies, *part, order) for part in held_out)
        for history, (loss, _), (_, accuracy) in zip(histories, losses, accuracies, strict=True):
            history.append(Epoch(loss, accuracy))
    return histories


def _step(e: Energies, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor, order: Order, analytic: bool) -> None:
    optimizer.zero_grad()
    if analytic:
        with torch.no_grad():
            for parameter, gradient in zip(e, analytic_gradient(e, x, y, order)[1], strict=True):
                parameter.grad = gradient
    else:
        nll(e, x, y, order).sum().backward()
    optimizer.step()


@torch.no_grad()
def _scores(e: Energies, x: Tensor, y: Tensor, order: Order) -> list[tuple[float, float]]:
    """Negative log-likelihood and accuracy of each seed."""
    log_probs = torch.cat(
        [infer(e, part.expand(len(e.hidden), *part.shape), order).output.log_softmax(-1) for part in x.split(500)], 1
    )
    losses = -log_probs.gather(-1, y.expand(len(log_probs), -1)[..., None]).mean((1, 2))
    return list(zip(losses.tolist(), (log_probs.argmax(-1) == y).float().mean(1).tolist(), strict=True))
