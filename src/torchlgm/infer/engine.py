"""Executing plans on one MRF with one method."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from torchlgm.infer.methods import Method
from torchlgm.infer.plan import MakeBelief, Plan
from torchlgm.infer.rules import Message, Prepared
from torchlgm.infer.schedule import Hop, Wiring
from torchlgm.mrf import MRF

Value = Tensor | Message


class Outcome(NamedTuple):
    """Raw results: beliefs as log-odds `(1 or B, nodes, K-1)`, and the messages where everything was asked for."""

    beliefs: dict[str, Tensor]
    messages: dict[Hop, Message]
    iterations: Tensor  # (B,)
    residual: Tensor | None  # (B,); None where messages were not kept


def wiring_of(mrf: MRF) -> Wiring:
    hops = []
    for i, link in enumerate(mrf.links):
        hops += [Hop(i, 0, link.left, link.right), Hop(i, 1, link.right, link.left)]
    return Wiring(tuple(mrf.unary), tuple(hops))


class Engine:
    """Executes plans on one MRF with one method."""

    def __init__(self, mrf: MRF, method: Method) -> None:
        self.mrf = mrf
        self.method = method
        self.links: list[Prepared] = [method.rule.prepare(link) for link in mrf.links]

    def on(self, mrf: MRF) -> Engine:
        """The same tables with other samples."""
        other = object.__new__(Engine)
        other.mrf, other.method, other.links = mrf, self.method, self.links
        return other

    def execute(self, plan: Plan, inputs: list[Message]) -> dict[int, Value]:
        values: dict[int, Value] = dict(enumerate(inputs))
        if self.method.gradient == "checkpoint" and torch.is_grad_enabled():
            return self._checkpointed(plan, 0, len(plan.steps), values)
        return self._range(plan, 0, len(plan.steps), values)

    def _range(self, plan: Plan, first: int, last: int, values: dict[int, Value]) -> dict[int, Value]:
        """Steps `first .. last-1`; drops each value after its last use."""
        values = dict(values)
        done = plan.last_uses()
        for i in range(first, last):
            values[len(plan.inputs) + i] = self._make(plan, i, values)
            for v in done[i]:
                del values[v]
        return values

    def _make(self, plan: Plan, i: int, values: dict[int, Value]) -> Value:
        step = plan.steps[i]
        if isinstance(step, MakeBelief):
            belief = self.mrf.field(step.layer) if step.evidence else -self.mrf.unary[step.layer]
            for v in step.messages:
                belief = belief + values[v].inflow
            return belief
        reverse = None if step.reverse is None else values[step.reverse].edges
        new = self.method.rule.send(self.links[step.hop.link], step.hop.side, values[step.belief], reverse)
        if self.method.damping == 0:
            return new
        return _damped(new, None if step.old is None else values[step.old], self.method.damping)

    def _checkpointed(self, plan: Plan, first: int, last: int, values: dict[int, Value]) -> dict[int, Value]:
        """By halves: the first one is recomputed when its gradient is due, so only O(log steps) states are stored."""
        if last - first <= 2 * max(1, len(self.mrf.unary)):
            return self._range(plan, first, last, values)
        middle = (first + last) // 2
        later = {v for step in plan.steps[middle:] for v in step.needs} | plan.outputs
        keys = sorted(values)
        made = [v for v in range(len(plan.inputs) + first, len(plan.inputs) + middle) if v in later]

        def first_half(*tensors: Tensor | None) -> tuple[Tensor | None, ...]:
            here = self._checkpointed(plan, first, middle, _unflatten(keys, tensors))
            return _flatten([here[v] for v in made])

        flat = checkpoint(
            first_half, *_flatten([values[k] for k in keys]), use_reentrant=False, preserve_rng_state=False
        )
        known = {v: value for v, value in values.items() if v in later}
        return self._checkpointed(plan, middle, last, known | _unflatten(made, flat))


def _flatten(values: list[Value]) -> tuple[Tensor | None, ...]:
    """Two places for each value: a belief has no inflow."""
    return tuple(t for v in values for t in (v if isinstance(v, Message) else (v, None)))


def _unflatten(keys: list[int], flat: tuple[Tensor | None, ...]) -> dict[int, Value]:
    pairs = zip(keys, flat[::2], flat[1::2], strict=True)
    return {k: a if b is None else Message(a, b) for k, a, b in pairs}


def _damped(new: Message, old: Message | None, damping: float) -> Message:
    def mix(a: Tensor, b: Tensor | None) -> Tensor:
        return (1 - damping) * a if b is None else (1 - damping) * a + damping * b

    edges = None if new.edges is None else mix(new.edges, None if old is None else old.edges)
    return Message(edges, mix(new.inflow, None if old is None else old.inflow))
