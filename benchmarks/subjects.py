"""What is timed: the paper's three models and networks of the same shape, and their training steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy

import torch
from torch import Tensor, nn

import torchlgm as lgm
from torchlgm.baselines import network
from torchlgm.learn import Likelihood, Settings
from torchlgm.learn.cuda.captured_step import CapturedStep
from torchlgm.learn.distributed import Group
from torchlgm.learn.learner import Learner
from torchlgm.learn.steps import OptimizerStep, PlainStep
from torchlgm.ops.backend import backend

KINDS = ("local", "conv", "dense")
METHOD = lgm.trw(iterations=5, schedule="sequential")
ONE_SWEEP = lgm.lbp(1)
REFERENCE_CHUNK = 256  # samples of the float64 reference at once
RATE = 1e-3
LIKELIHOOD = Likelihood()
MakeOptimizer = Callable[[Iterable[nn.Parameter], torch.device], torch.optim.Optimizer]


class Incorrect(Exception):
    """An answer that differs from the reference: there is nothing to time."""


def graph(kind: str) -> lgm.Graph:
    return lgm.zoo.dense((1, 28, 28)) if kind == "dense" else lgm.zoo.windows(kind)


def lgm_predictor(kind: str | lgm.Graph, method: lgm.Method = METHOD, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    model = lgm.LGM(graph(kind) if isinstance(kind, str) else kind)
    return lgm.Posterior(model, method).for_complete_inputs()


def network_predictor(kind: str) -> nn.Module:
    torch.manual_seed(0)
    return network(kind)


def images(count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Random inputs and targets, dark for the most part as images of digits are."""
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(count, 1, 28, 28, generator=draw)
    return x.masked_fill(x < 0.7, 0).to(device), torch.randint(0, 10, (count,), generator=draw).to(device)


def our_adam(parameters: Iterable[nn.Parameter], device: torch.device) -> torch.optim.Optimizer:
    """As the trainer has it."""
    return Settings(learning_rate=RATE).make_optimizer(parameters, device)


def usual_adam(parameters: Iterable[nn.Parameter], device: torch.device) -> torch.optim.Optimizer:
    """As anybody would write it who trains a network by PyTorch."""
    cuda = device.type == "cuda"
    rate = torch.tensor(RATE, device=device) if cuda else RATE
    return torch.optim.Adam(parameters, lr=rate, fused=True, capturable=cuda)


def plain_step(work: nn.Module, data: tuple[Tensor, Tensor], device: torch.device, adam: MakeOptimizer) -> PlainStep:
    """A training step launched from Python."""
    model = work.to(device)
    optimizer = adam(model.parameters(), device)
    return PlainStep(OptimizerStep(Learner(work), optimizer, Group(device)), *data)


class Training:
    """Steps of the trainer, captured on a GPU: `training(count)` takes the next `count` and returns their mean loss."""

    def __init__(
        self,
        work: nn.Module,
        data: tuple[Tensor, Tensor],
        batch: int,
        device: torch.device,
        capture: bool = True,
        adam: MakeOptimizer = our_adam,
    ) -> None:
        plain = plain_step(work, data, device, adam)
        self.step = CapturedStep(plain, batch) if capture and device.type == "cuda" else plain
        self.step.begin(torch.arange(len(data[0])))
        self.batch, self.samples, self.at = batch, len(data[0]), 0

    def __call__(self, count: int = 1) -> Tensor:
        total, left = torch.zeros(()), count
        while left:
            self.at = 0 if self.at + self.batch > self.samples else self.at
            now = min(left, (self.samples - self.at) // self.batch)
            total = total + self.step(self.at, [self.batch] * now)
            self.at, left = self.at + now * self.batch, left - now
        return total / (count * self.batch)


def gradient(work: nn.Module, x: Tensor, y: Tensor) -> tuple[float, dict[str, Tensor]]:
    """Loss and gradients, of parameters that have one."""
    work.zero_grad()
    loss = Learner(work).loss(x, y)
    loss.backward()
    found = {name: p.grad.double() for name, p in work.named_parameters() if p.grad is not None}
    work.zero_grad()
    return loss.item(), found


def reference(work: nn.Module, x: Tensor, y: Tensor) -> tuple[float, dict[str, Tensor]]:
    """The same by plain PyTorch in float64."""
    work = deepcopy(work).double()
    loss, grads = 0.0, {}
    with backend("eager"):
        for part, target in zip(x.double().split(REFERENCE_CHUNK), y.split(REFERENCE_CHUNK), strict=True):
            share = len(part) / len(x)
            value, found = gradient(work, part, target)
            loss += share * value
            grads = {name: share * g + grads.get(name, 0) for name, g in found.items()}
    return loss, grads


def check_training(work: nn.Module, x: Tensor, y: Tensor, tolerance: float = 1e-4) -> dict[str, float]:
    """Relative errors of loss and gradients against the reference; raises `Incorrect` where they are too large.

    The gradient of a single parameter may be off by ten times as much as the gradient as a whole.
    """
    loss, grads = gradient(work, x, y)
    true_loss, true_grads = reference(work, x, y)
    if grads.keys() != true_grads.keys():
        raise Incorrect(f"gradients of {sorted(grads.keys() ^ true_grads.keys())} on one side only")
    errors = {
        "loss error": abs(loss - true_loss) / abs(true_loss),
        "gradient error": distance(grads.values(), true_grads.values()),
        "worst gradient error": max(distance([grads[k]], [true_grads[k]]) for k in grads),
    }
    if not max(errors["loss error"], errors["gradient error"], errors["worst gradient error"] / 10) < tolerance:
        raise Incorrect(f"loss and gradients differ from float64 by {errors}")
    return errors


def distance(found: Iterable[Tensor], true: Iterable[Tensor]) -> float:
    """Norm of the difference over the norm."""
    found, true = (torch.cat([x.double().flatten() for x in side]) for side in (found, true))
    return ((found - true).norm() / true.norm().clamp(min=1e-30)).item()
