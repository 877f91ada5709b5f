"""One training step: plain everywhere, or captured once as a CUDA graph and replayed, with the same losses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise, takewhile
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

from torchlgm._utils.torch_private import run_backward
from torchlgm.learn.cuda.adam import SplitAdam
from torchlgm.learn.cuda.capture import capture
from torchlgm.learn.cuda.streams import SideStream
from torchlgm.learn.distributed import Group
from torchlgm.learn.learner import Learner
from torchlgm.learn.samples import Samples, Stream, check_inputs, check_targets, target_size

Mask = Callable[[Tensor, torch.Generator | None], Tensor]


MANY = 5  # steps in the longer of two captured graphs
ALIGNED = 16  # bytes


class Step(Protocol):
    """Takes batches of one epoch's order, the first of which starts at `at`, and moves the weights after each.

    The order is `(N,)`, or `(members, N)` where every member of an ensemble has its own.
    """

    def begin(self, order: Tensor) -> None: ...

    def __call__(self, at: int, counts: Sequence[int]) -> Tensor:
        """The sum over samples of their losses, a scalar; `counts` are the sizes of the batches."""
        ...


class OptimizerStep:
    """Forward, backward and update for one batch, in plain PyTorch."""

    def __init__(
        self,
        learner: Learner,
        optimizer: Optimizer,
        mask: Mask | None,
        clip: float | None,
        group: Group,
        generator: torch.Generator,
        device: torch.device,
    ) -> None:
        self.learner, self.optimizer = learner, optimizer
        self.parameters = list(learner.predictor.parameters())
        self.mask, self.clip, self.group, self.generator, self.device = mask, clip, group, generator, device

    def update(self, learner: Learner, x: Tensor, y: Tensor, complete: Tensor | None, weight: int = 1) -> Tensor:
        """Move the weights by one batch, and return its loss."""
        self.optimizer.zero_grad()
        loss = learner.loss(x, y, complete)
        loss.backward()
        loss = loss.detach()
        if self.group.active:
            grads = [p.grad for p in self.parameters if p.grad is not None]
            self.group.average([*grads, loss], weight=weight)
        self.clip_gradients()
        self.optimizer.step()
        return loss

    def masked(self, x: Tensor, y: Tensor, axes: int = 1) -> tuple[Tensor, Tensor, Tensor | None]:
        """A batch with some inputs masked, and the inputs before; samples have so many `axes`."""
        if self.mask is None:
            return x, y, None
        return self.mask(x.flatten(0, axes - 1), self.generator).unflatten(0, x.shape[:axes]), y, x

    def clip_gradients(self) -> None:
        if self.clip is not None:
            self.learner.clip_gradients(self.clip)


class PlainStep(OptimizerStep):
    """Batches of data in memory, which may live elsewhere than the model."""

    def __init__(
        self,
        learner: Learner,
        optimizer: Optimizer,
        data: tuple[Tensor, Tensor],
        mask: Mask | None,
        clip: float | None,
        group: Group,
        generator: torch.Generator,
        device: torch.device,
    ) -> None:
        super().__init__(learner, optimizer, mask, clip, group, generator, device)
        self.inputs, self.targets = data

    def begin(self, order: Tensor) -> None:
        self.order = order.to(self.inputs.device)

    def __call__(self, at: int, counts: Sequence[int]) -> Tensor:
        ends = list(accumulate(counts, initial=at))
        return sum(self._step(first, last - first) * (last - first) for first, last in pairwise(ends))  # pyright: ignore[reportReturnType]

    def _step(self, at: int, count: int) -> Tensor:
        index, axes = self.order[..., at : at + count], self.order.dim()
        x, y, complete = self.masked(self.taken(self.inputs, index), self.taken(self.targets, index), axes)
        mine = self.group.share(torch.arange(count, device=self.device))
        weight = len(mine)
        if weight == 0:  # a gradient of the right shape, which does not count
            mine = torch.zeros(1, dtype=torch.long, device=self.device)
        if weight < count:
            x, y = x.index_select(axes - 1, mine), y.index_select(axes - 1, mine)
            complete = None if complete is None else complete.index_select(axes - 1, mine)
        return self.update(self.learner, x, y, complete, weight)

    def taken(self, part: Tensor, index: Tensor) -> Tensor:
        """Inputs or targets of the samples in `index`, shaped like it, out of all of them."""
        return part[index.flatten()].to(self.device).unflatten(0, index.shape)


class StreamStep(OptimizerStep):
    """Batches of a stream, of which one at a time is in memory."""

    def __init__(
        self,
        learner: Learner,
        optimizer: Optimizer,
        stream: Stream,
        mask: Mask | None,
        clip: float | None,
        group: Group,
        generator: torch.Generator,
        device: torch.device,
    ) -> None:
        super().__init__(learner, optimizer, mask, clip, group, generator, device)
        self.stream = stream
        self.quick = learner.for_complete_inputs()
        self.target_size: tuple[int, int] | None = None

    def epoch(self, every: int) -> Iterator[tuple[float, int]]:
        """The sum of the losses of `every` so many batches, and how many samples the epoch has had by then."""
        losses, samples = torch.zeros((), device=self.device), 0
        for number, batch in enumerate(self.stream, start=1):
            losses, samples = losses + self._step(batch) * len(batch), samples + len(batch)
            if number % every == 0:
                yield float(losses), samples
                losses = torch.zeros_like(losses)
        yield float(losses), samples

    def _step(self, batch: Samples) -> Tensor:
        check_inputs(self.learner, batch, hides=self.mask is not None)
        self.target_size = self.target_size or target_size(self.learner, batch)
        check_targets(batch, *self.target_size, unknown=True)
        learner = self.learner if self.mask is not None or batch.has_missing else self.quick
        batch = batch.to(self.device)
        return self.update(learner, *self.masked(batch.inputs, batch.targets))


class CapturedStep:
    """The whole step as one CUDA graph: the batch is taken from data on the device, so Python only replays.

    Another graph holds several steps in a row. Batches of another size than the captured one go through `plain`, whose
    optimizer and weights are the same.
    """

    def __init__(self, plain: PlainStep, batch: int) -> None:
        self.plain, self.batch = plain, batch
        device = plain.device
        self.order = torch.empty(0)
        self.span = torch.arange(MANY * batch, device=device)
        self.positions = self.span.clone()  # the next batches in the order
        self.one = torch.ones((), device=device)
        self.losses = torch.zeros((), device=device)
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}

    def begin(self, order: Tensor) -> None:
        self.plain.begin(order)
        self.at = -1
        if self.graphs:
            self.order.copy_(order)
        else:
            self.order = self.plain.order.clone()
            self._capture()

    def __call__(self, at: int, counts: Sequence[int]) -> Tensor:
        full = list(takewhile(lambda count: count == self.batch, counts))
        if at != self.at:
            torch.add(self.span, at, out=self.positions)
        self.losses.zero_()
        many, one = divmod(len(full), MANY)
        for steps, times in ((MANY, many), (1, one)):
            for _ in range(times):
                self.graphs[steps].replay()
        self.at = at + sum(full)
        rest = counts[len(full) :]
        return self.losses * self.batch + (self.plain(self.at, rest) if rest else 0)

    def _work(self, steps: int) -> None:
        """The batches of all steps are taken at once."""
        plain = self.plain
        positions = self.positions[: steps * self.batch].unflatten(0, (steps, self.batch))
        index = self.order[..., positions].movedim(-2, 0)
        side = SideStream(plain.device)
        with side():
            self.positions.add_(steps * self.batch)
            targets = plain.taken(plain.targets, index)
        inputs = plain.taken(plain.inputs, index)
        side.join()
        for batch in zip(inputs, targets, strict=True):
            x, y, complete = plain.masked(*map(_aligned, batch), axes=plain.order.dim())
            plain.optimizer.zero_grad(set_to_none=True)
            if isinstance(plain.optimizer, SplitAdam):
                plain.optimizer.counting = SideStream(plain.device)
            loss = plain.learner.loss(x, y, complete)
            side = SideStream(plain.device)
            with side():
                self.losses.add_(loss.detach())
            run_backward(loss, self.one.to(loss.dtype))
            plain.clip_gradients()
            plain.optimizer.step()
            side.join()

    def _capture(self) -> None:
        """Capture, and put back all that the runs before it moved."""
        saved = [p.detach().clone() for p in self.plain.parameters]
        state = _copied(self.plain.optimizer.state_dict())
        random = self.plain.generator.get_state()
        one = capture(lambda: self._work(1), self.plain.generator, before=self._rewind)
        many = capture(lambda: self._work(MANY), self.plain.generator, warm_up=0, shares_with=one)
        self.graphs = {1: one, MANY: many}
        with torch.no_grad():
            for p, old in zip(self.plain.parameters, saved, strict=True):
                p.copy_(old)
        _restore(self.plain.optimizer, state)
        self.plain.generator.set_state(random)
        self._rewind()

    def _rewind(self) -> None:
        self.positions.copy_(self.span)


def _aligned(x: Tensor) -> Tensor:
    """The kernels for others would have to be compiled while a graph is captured."""
    return x if x.data_ptr() % ALIGNED == 0 else x.clone()


def _copied(state: Any) -> Any:
    if isinstance(state, Tensor):
        return state.clone()
    if isinstance(state, dict):
        return {k: _copied(v) for k, v in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(_copied(v) for v in state)
    return state


def _restore(optimizer: Optimizer, before: dict[str, Any]) -> None:
    """Put optimizer tensors back in place, since the graph holds on to them; what did not exist before was 0."""
    for i, values in optimizer.state_dict()["state"].items():
        for key, value in values.items():
            if isinstance(value, Tensor):
                old = before["state"].get(i, {}).get(key)
                value.zero_() if old is None else value.copy_(old)
