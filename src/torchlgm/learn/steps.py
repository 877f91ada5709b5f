"""One training step: of data in memory, or of batches from a stream. `learn.cuda.captured_step` captures the former."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, count, pairwise
from typing import Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

from torchlgm.errors import TrainingError
from torchlgm.learn.distributed import Group
from torchlgm.learn.fingerprint import checksum
from torchlgm.learn.learner import Learner
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
        self,
        x: Tensor | None,
        y: Tensor | None,
        complete: Tensor | None,
        weight: int = 1,
        masked_in_each: Tensor | None = None,
        learner: Learner | None = None,
    ) -> Tensor:
        """Move the weights by one batch, and return its loss; `learner` may be its form for complete inputs.

        Of several processes each has a part of the batch, with so much `weight`. With none it gives no gradient.
        """
        self.optimizer.zero_grad()
        loss = self.parameters[0].detach().new_zeros(())
        if x is not None and y is not None and weight:
            loss = (learner or self.learner).loss(x, y, complete, masked_in_each)
            loss.backward()
            loss = loss.detach()
        if self.group.active:
            self._average(loss, weight)
        self.clip_gradients()
        self.optimizer.step()
        return loss

    def share(
        self, x: Tensor, y: Tensor, complete: Tensor | None, axes: int = 1, learner: Learner | None = None
    ) -> Tensor:
        """Move the weights by a batch that all processes have, of which each takes its share."""
        whole = x.shape[axes - 1]
        mine = self.group.share(torch.arange(whole, device=self.device))
        if len(mine) == whole:
            return self(x, y, complete, whole, learner=learner)
        in_each = None if complete is None else count_masked(x, complete, axes) / whole
        x, y = x.index_select(axes - 1, mine), y.index_select(axes - 1, mine)
        complete = None if complete is None else complete.index_select(axes - 1, mine)
        return self(x, y, complete, len(mine), in_each, learner)

    def _average(self, loss: Tensor, weight: int) -> None:
        """Over the processes; a parameter may have a gradient in some of them alone."""
        there = loss.new_tensor([float(p.grad is not None) for p in self.parameters])
        for p in self.parameters:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        grads = [p.grad for p in self.parameters if p.grad is not None]
        self.group.average([*grads, loss, there], weight=weight)
        for p, share in zip(self.parameters, there.tolist(), strict=True):
            p.grad = p.grad if share else None

    def hide(self, x: Tensor, y: Tensor, axes: int = 1) -> tuple[Tensor, Tensor, Tensor | None]:
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
        batch = self.taken(self.inputs, index), self.taken(self.targets, index)
        return self.update.share(*self.update.hide(*batch, axes), axes)

    def taken(self, part: Tensor, index: Tensor) -> Tensor:
        """Inputs or targets of the samples in `index`, shaped like it, out of all of them."""
        return part[index.flatten()].to(self.update.device).unflatten(0, index.shape)


class StreamStep:
    """Batches of a stream, of which one at a time is in memory.

    Of several processes, either each reads batches of its own, until none of them has any more, or all read the same
    ones and each takes its share.
    """

    def __init__(self, update: OptimizerStep, stream: Stream, seed: int = 0) -> None:
        self.update, self.group, self.stream, self.seed = update, update.group, stream, seed
        self.quick = update.learner.for_complete_inputs()
        self.target_size: tuple[int, int] | None = None

    def epoch(self, number: int, every: int) -> Iterator[tuple[float, int]]:
        """The sum of the losses of `every` so many batches, and how many samples the epoch has had by then."""
        group, losses, samples = self.group, torch.zeros((), device=self.update.device), 0
        self.stream.begin(number, group.rank, group.size)
        if self.stream.apart:  # every process hides other entries
            seed = (self.seed * 1_000_003 + number) * group.size + group.rank
            self.update.generator.manual_seed(seed % 2**63)
        step = self._own if self.stream.apart else self._common
        batches = iter(self.stream)
        for taken in count(1):
            batch = next(batches, None)
            loss, some = step(None if batch is None else self._checked(batch))
            if some == 0:
                break
            losses, samples = losses + loss * some, samples + some
            if taken % every == 0:
                yield float(losses), samples
                losses = torch.zeros_like(losses)
        yield float(losses), samples

    def _own(self, batch: Samples | None) -> tuple[Tensor, int]:
        """A step by the batches of all processes, and how many samples these have; 0 if there are none left."""
        if batch is None:
            mine, parts, learner = 0, (None, None, None), None
        else:
            mine, parts, learner = len(batch), self._hidden(batch), self._learner(batch)
        masked = 0
        if batch is not None and self.group.size > 1 and parts[2] is not None:
            masked = int(count_masked(parts[0], parts[2]))
        samples, masked = self.group.sums([mine, masked])
        if samples == 0:
            return torch.zeros((), device=self.update.device), 0
        in_each = None
        if self.update.mask is not None and self.group.size > 1:
            in_each = torch.tensor(masked / samples, device=self.update.device)
        return self.update(*parts, mine, in_each, learner), samples

    def _common(self, batch: Samples | None) -> tuple[Tensor, int]:
        """A step by a batch that all processes have, and how many samples it has; 0 if there is none."""
        if self.group.active and not self.group.same(-1 if batch is None else int(checksum(batch))):
            raise TrainingError(
                "the processes read different batches from the stream; have all of them read the same ones, as with "
                "generator=torch.Generator().manual_seed(0) in a DataLoader, or each its own part, by a dataset that "
                "is a torchlgm.data.Shards or by a DistributedSampler"
            )
        if batch is None:
            return torch.zeros((), device=self.update.device), 0
        return self.update.share(*self._hidden(batch), learner=self._learner(batch)), len(batch)

    def _checked(self, batch: Samples) -> Samples:
        check_inputs(self.update.learner, batch, hides=self.update.mask is not None)
        self.target_size = self.target_size or target_size(self.update.learner, batch)
        check_targets(batch, *self.target_size, unknown=True)
        return batch

    def _hidden(self, batch: Samples) -> tuple[Tensor, Tensor, Tensor | None]:
        batch = batch.to(self.update.device)
        return self.update.hide(batch.inputs, batch.targets)

    def _learner(self, batch: Samples) -> Learner:
        return self.update.learner if self.update.mask is not None or batch.has_missing else self.quick


def count_masked(x: Tensor, complete: Tensor, axes: int = 1) -> Tensor:
    """How many entries of a batch were hidden; for each member where samples have two `axes`."""
    return (x.isnan() & ~complete.isnan()).flatten(axes).sum((-1, -2))
