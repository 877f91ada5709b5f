"""A training step captured once as a CUDA graph and replayed, with the same losses as a plain one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from torchlgm._utils.torch_private import run_backward
from torchlgm.learn.cuda.adam import SplitAdam
from torchlgm.learn.cuda.capture import capture
from torchlgm.learn.cuda.streams import SideStream
from torchlgm.learn.steps import PlainStep

MANY = 5  # steps in the longer of two captured graphs
ALIGNED = 16  # bytes


class CapturedStep:
    """The whole step as one CUDA graph: the batch is taken from data on the device, so Python only replays.

    Another graph holds several steps in a row. Batches of another size than the captured one go through `plain`, whose
    optimizer and weights are the same.
    """

    def __init__(self, plain: PlainStep, batch: int) -> None:
        self.plain, self.batch = plain, batch
        device = plain.update.device
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
        plain, update = self.plain, self.plain.update
        positions = self.positions[: steps * self.batch].unflatten(0, (steps, self.batch))
        index = self.order[..., positions].movedim(-2, 0)
        side = SideStream(update.device)
        with side():
            self.positions.add_(steps * self.batch)
            targets = plain.taken(plain.targets, index)
        inputs = plain.taken(plain.inputs, index)
        side.join()
        for batch in zip(inputs, targets, strict=True):
            x, y, complete = update.hide(*map(_aligned, batch), axes=plain.order.dim())
            update.optimizer.zero_grad(set_to_none=True)
            if isinstance(update.optimizer, SplitAdam):
                update.optimizer.counting = SideStream(update.device)
            loss = update.learner.loss(x, y, complete)
            side = SideStream(update.device)
            with side():
                self.losses.add_(loss.detach())
            run_backward(loss, self.one.to(loss.dtype))
            update.clip_gradients()
            update.optimizer.step()
            side.join()

    def _capture(self) -> None:
        """Capture, and put back all that the runs before it moved."""
        update = self.plain.update
        saved = [p.detach().clone() for p in update.parameters]
        state = _copied(update.optimizer.state_dict())
        random = update.generator.get_state()
        one = capture(lambda: self._work(1), update.generator, before=self._rewind)
        many = capture(lambda: self._work(MANY), update.generator, warm_up=0, shares_with=one)
        self.graphs = {1: one, MANY: many}
        with torch.no_grad():
            for p, old in zip(update.parameters, saved, strict=True):
                p.copy_(old)
        _restore(update.optimizer, state)
        update.generator.set_state(random)
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
