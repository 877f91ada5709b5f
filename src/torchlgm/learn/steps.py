"""One training step: plain everywhere, or captured once as a CUDA graph and replayed, with the same losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from torchlgm.learn.distributed import Group
from torchlgm.learn.objectives import Objective

Hide = Callable[[Tensor, torch.Generator | None], Tensor]


class Step(Protocol):
    """Takes the batch of one epoch's order that starts at `at`, moves the weights, returns the loss, a scalar."""

    def begin(self, order: Tensor) -> None: ...

    def __call__(self, at: int, count: int) -> Tensor: ...


class PlainStep:
    """Forward, backward, update in plain PyTorch; data may live elsewhere than the model."""

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        optimiser: Optimizer,
        data: tuple[Tensor, Tensor],
        hide: Hide | None,
        clip: float | None,
        group: Group,
        generator: torch.Generator,
        device: torch.device,
    ) -> None:
        self.model, self.objective, self.optimiser = model, objective, optimiser
        self.inputs, self.targets = data
        self.hide, self.clip, self.group, self.generator, self.device = hide, clip, group, generator, device

    def begin(self, order: Tensor) -> None:
        self.order = order.to(self.inputs.device)

    def __call__(self, at: int, count: int) -> Tensor:
        index = self.order[at : at + count]
        x, y = self.inputs[index].to(self.device), self.targets[index].to(self.device)
        whole = x
        if self.hide is not None:
            x = self.hide(x, self.generator)
        mine = self.group.share(torch.arange(count, device=self.device))
        weight = len(mine)
        if weight == 0:  # a gradient of the right shape, which does not count
            x, y, whole, mine = x[:1], y[:1], whole[:1], slice(None)
        self.optimiser.zero_grad()
        truth = None if self.hide is None else whole[mine]
        loss = self.objective.loss(self.model, x[mine], y[mine], truth)
        loss.backward()
        loss = loss.detach()
        if self.group.active:
            grads = [p.grad for p in self.model.parameters() if p.grad is not None]
            self.group.average([*grads, loss], weight=weight)
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimiser.step()
        return loss


class CapturedStep:
    """The whole step as one CUDA graph: the batch is taken from data on the device, so Python only replays.

    Batches of another size than the captured one go through `plain`, whose optimiser and weights are the same.
    """

    def __init__(self, plain: PlainStep, batch: int) -> None:
        self.plain, self.batch = plain, batch
        device = plain.device
        self.order = torch.zeros(len(plain.inputs), dtype=torch.long, device=device)
        self.cursor = torch.zeros(1, dtype=torch.long, device=device)
        self.span = torch.arange(batch, device=device)
        self.loss = torch.zeros((), device=device)
        self.graph: torch.cuda.CUDAGraph | None = None

    def begin(self, order: Tensor) -> None:
        self.order.copy_(order)
        self.plain.begin(order)
        self.at = -1
        if self.graph is None:
            self._capture()

    def __call__(self, at: int, count: int) -> Tensor:
        if count != self.batch:
            return self.plain(at, count)
        if at != self.at:
            self.cursor.fill_(at)
        assert self.graph is not None
        self.graph.replay()
        self.at = at + count
        return self.loss.clone()

    def _work(self) -> None:
        plain = self.plain
        index = self.order[self.cursor + self.span]
        x, y, whole = plain.inputs[index], plain.targets[index], None
        if plain.hide is not None:
            x, whole = plain.hide(x, plain.generator), x
        plain.optimiser.zero_grad(set_to_none=True)
        loss = plain.objective.loss(plain.model, x, y, whole)
        loss.backward()
        if plain.clip is not None:
            nn.utils.clip_grad_norm_(plain.model.parameters(), plain.clip)
        plain.optimiser.step()
        self.loss.copy_(loss.detach())
        self.cursor.add_(self.batch)

    def _capture(self) -> None:
        """Warm up on a side stream, as capture requires, and put back all that this moved."""
        saved = [p.detach().clone() for p in self.plain.model.parameters()]
        state = _copied(self.plain.optimiser.state_dict())
        random = self.plain.generator.get_state()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.cursor.zero_()
                self._work()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.plain.generator)
        with torch.cuda.graph(graph, stream=stream):  # of its own: graphs on one stream share cuBLAS workspace
            self._work()
        self.graph = graph
        with torch.no_grad():
            for p, old in zip(self.plain.model.parameters(), saved, strict=True):
                p.copy_(old)
        _restore(self.plain.optimiser, state)
        self.plain.generator.set_state(random)
        self.cursor.zero_()


def _copied(state: Any) -> Any:
    if isinstance(state, Tensor):
        return state.clone()
    if isinstance(state, dict):
        return {k: _copied(v) for k, v in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(_copied(v) for v in state)
    return state


def _restore(optimiser: Optimizer, before: dict[str, Any]) -> None:
    """Put optimiser tensors back in place, since the graph holds on to them; what did not exist before was 0."""
    for i, values in optimiser.state_dict()["state"].items():
        for key, value in values.items():
            if isinstance(value, Tensor):
                old = before["state"].get(i, {}).get(key)
                value.zero_() if old is None else value.copy_(old)
