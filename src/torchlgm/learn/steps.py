"""One training step: of data in memory, or of batches from a stream. `learn.cuda.captured_step` captures the former."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

from torchlgm.learn.distributed import Group
from torchlgm.learn.learner import Learner
from torchlgm.learn.objectives import masked_in_each
from torchlgm.learn.samples import Samples, Stream, check_inputs, check_targets, target_size

Mask = Callable[[Tensor, torch.Generator | None], Tensor]


class Step(Protocol):
    """Takes batches of one epoch's order, the first of which starts at `at`, and moves the weights after each.

    The order is `(N,)`, or `(members, N)` where every member of an ensemble has its own.
    """

    def begin(self, order: Tensor) -> None: ...

    def __call__(self, at: int, counts: Sequence[int]) -> Tensor:
        """The sum over samples of their losses, a scalar; `counts` are the sizes of the batches."""
        ...


class OptimizerStep:
    """Forward, backward and update for one batch, in plain PyTorch, on the device of the `group`."""

    def __init__(
        self,
        learner: Learner,
        optimizer: Optimizer,
        group: Group,
        mask: Mask | None = None,
        clip: float | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        self.learner, self.optimizer, self.group, self.mask, self.clip = learner, optimizer, group, mask, clip
        self.device = group.device
        self.generator = torch.Generator(self.device) if generator is None else generator
        self.parameters = list(learner.predictor.parameters())

    def __call__(
        self, x: Tensor, y: Tensor, complete: Tensor | None, weight: int = 1, learner: Learner | None = None
    ) -> Tensor:
        """Move the weights by one batch, and return its loss; `learner` may be its form for complete inputs."""
        self.optimizer.zero_grad()
        loss = (learner or self.learner).loss(x, y, complete)
        loss.backward()
        loss = loss.detach()
        if self.group.active:
            self._average(loss, weight)
        self.clip_gradients()
        self.optimizer.step()
        return loss

    def _average(self, loss: Tensor, weight: int) -> None:
        """Over the processes; a parameter may have a gradient in some of them alone."""
        there = loss.new_tensor([float(p.grad is not None) for p in self.parameters])
        for p in self.parameters:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        grads = [p.grad for p in self.parameters if p.grad is not None]
        self.group.average([*grads, loss, there], weight=weight)
        for p, share in zip(self.parameters, there.tolist(), strict=True):
            p.grad = p.grad if share else None

    def masked(self, x: Tensor, y: Tensor, axes: int = 1) -> tuple[Tensor, Tensor, Tensor | None]:
        """A batch with some inputs masked, and the inputs before; samples have so many `axes`."""
        if self.mask is None:
            return x, y, None
        return self.mask(x.flatten(0, axes - 1), self.generator).unflatten(0, x.shape[:axes]), y, x

    def clip_gradients(self) -> None:
        if self.clip is not None:
            self.learner.clip_gradients(self.clip)


class PlainStep:
    """Batches of data in memory, which may live elsewhere than the model."""

    def __init__(self, update: OptimizerStep, inputs: Tensor, targets: Tensor) -> None:
        self.update, self.inputs, self.targets = update, inputs, targets

    def begin(self, order: Tensor) -> None:
        self.order = order.to(self.inputs.device)

    def __call__(self, at: int, counts: Sequence[int]) -> Tensor:
        ends = list(accumulate(counts, initial=at))
        return sum(self._step(first, last - first) * (last - first) for first, last in pairwise(ends))  # pyright: ignore[reportReturnType]

    def _step(self, at: int, count: int) -> Tensor:
        index, axes = self.order[..., at : at + count], self.order.dim()
        x, y, complete = self.update.masked(self.taken(self.inputs, index), self.taken(self.targets, index), axes)
        mine, whole = self.update.group.share(torch.arange(count, device=self.update.device)), x
        weight = len(mine)
        complete_of_batch = complete
        if weight == 0:  # a gradient of the right shape, which does not count
            mine = torch.zeros(1, dtype=torch.long, device=self.update.device)
        if weight < count:
            x, y = x.index_select(axes - 1, mine), y.index_select(axes - 1, mine)
            complete = None if complete is None else complete.index_select(axes - 1, mine)
        if weight == count or complete_of_batch is None or axes > 1:
            return self.update(x, y, complete, weight)
        with masked_in_each((whole.isnan() & ~complete_of_batch.isnan()).sum() / count):
            return self.update(x, y, complete, weight)

    def taken(self, part: Tensor, index: Tensor) -> Tensor:
        """Inputs or targets of the samples in `index`, shaped like it, out of all of them."""
        return part[index.flatten()].to(self.update.device).unflatten(0, index.shape)


class StreamStep:
    """Batches of a stream, of which one at a time is in memory."""

    def __init__(self, update: OptimizerStep, stream: Stream) -> None:
        self.update, self.stream = update, stream
        self.quick = update.learner.for_complete_inputs()
        self.target_size: tuple[int, int] | None = None

    def epoch(self, every: int) -> Iterator[tuple[float, int]]:
        """The sum of the losses of `every` so many batches, and how many samples the epoch has had by then."""
        losses, samples = torch.zeros((), device=self.update.device), 0
        for number, batch in enumerate(self.stream, start=1):
            losses, samples = losses + self._step(batch) * len(batch), samples + len(batch)
            if number % every == 0:
                yield float(losses), samples
                losses = torch.zeros_like(losses)
        yield float(losses), samples

    def _step(self, batch: Samples) -> Tensor:
        update = self.update
        check_inputs(update.learner, batch, hides=update.mask is not None)
        self.target_size = self.target_size or target_size(update.learner, batch)
        check_targets(batch, *self.target_size, unknown=True)
        learner = update.learner if update.mask is not None or batch.has_missing else self.quick
        batch = batch.to(update.device)
        return update(*update.masked(batch.inputs, batch.targets), learner=learner)
