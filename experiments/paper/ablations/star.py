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

ORDERS = ("inputs first", "output first")


@dataclass(frozen=True)
class Order:
    """Which message of an iteration is sent first, and how many iterations there are."""

    name: str
    iterations: int


class Energies(NamedTuple):
    """Compact energies, for S seeds: of label 1 of hidden nodes, and of labels 1 to 9 of the output."""

    hidden: Tensor  # (S, H)
    output: Tensor  # (S, 1, 9)
    inward: Tensor  # (S, pixels, H)
    outward: Tensor  # (S, H, 9)


class Beliefs(NamedTuple):
    hidden: Tensor  # (S, B, H): log-odds of label 1
    output: Tensor  # (S, B, 10): log-probabilities, not normalised
    cavity_hidden: Tensor  # (S, B, H): without what came from the output
    cavity_output: Tensor  # (S, B, H, 10): without what came from h


def infer(e: Energies, x: Tensor, order: Order) -> Beliefs:
    """Beliefs about hidden nodes and output, given inputs (S, B, pixels); evidence counts from the second iteration."""
    evidence = -(x @ e.inward)
    table, unary = pad(-e.outward, (1, 0))[:, None], pad(-e.output, (1, 0))  # (S, 1, H, 10), (S, 1, 10)
    factor = table.exp()
    to_output = torch.ones((*evidence.shape, table.shape[-1]), dtype=x.dtype)  # likelihood ratios
    to_hidden = torch.zeros_like(evidence)  # log-odds

    def beliefs(seen: bool) -> tuple[Tensor, Tensor]:
        return -e.hidden[:, None] + to_hidden + (evidence if seen else 0.0), unary + to_output.log().sum(2)

    hidden, output = beliefs(seen=False)
    for t in range(order.iterations):
        if t > 0:
            hidden, output = beliefs(seen=True)
        for message in ("output", "hidden") if order.name == ORDERS[0] else ("hidden", "output"):
            if message == "output":
                to_output = 1 + torch.sigmoid(hidden - to_hidden)[..., None] * (factor - 1)
            else:
                cavity = output.softmax(-1)[:, :, None] / to_output
                to_hidden = ((cavity * factor).sum(-1) / cavity.sum(-1)).log()
    hidden, output = beliefs(seen=True)
    return Beliefs(hidden, output, hidden - to_hidden, output[:, :, None] - to_output.log())


def analytic_gradient(e: Energies, x: Tensor, y: Tensor, order: Order) -> tuple[Tensor, Energies]:
    """The loss of each seed, and expectations of labels with the output clamped, which are exact, less those
    with it free."""
    free, count = infer(e, x, order), x.shape[1]
    log_probs = free.output.log_softmax(-1)
    target = nn.functional.one_hot(y, log_probs.shape[-1]).to(x.dtype)
    table = pad(-e.outward, (1, 0))
    clamped = torch.sigmoid(-e.hidden[:, None] - x @ e.inward + target @ table.mT)
    joint = free.cavity_output.softmax(-1) * table[:, None].exp()
    ratio = joint.sum(-1)
    on = torch.sigmoid(free.cavity_hidden + ratio.log()) / ratio  # times joint: of hidden label 1 and each label beside
    hidden = clamped - torch.sigmoid(free.hidden)
    edges = torch.einsum("sbh,sbk->shk", clamped, target) - torch.einsum("sbh,sbhk->shk", on, joint)
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
    while len(histories[0]) < e.epochs and not all(stopped([x.loss for x in h], e.patience) for h in histories):
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
