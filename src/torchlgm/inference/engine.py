"""Executing plans on one MRF with one method."""

from __future__ import annotations

import math
from copy import copy
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from torchlgm.inference.methods import Method
from torchlgm.inference.plan import MakeBelief, Plan
from torchlgm.inference.rules import Message, Prepared, damped
from torchlgm.inference.schedule import Hop, Wiring
from torchlgm.mrf import MRF
from torchlgm.ops.backend import Backend, backend, chosen, kernels

Value = Any  # a belief or a Message, whichever the step of the plan makes
MESSAGE = 2**11  # what plain PyTorch takes for any message, as entries of tables times samples


def wiring_of(mrf: MRF) -> Wiring:
    hops = []
    for i, link in enumerate(mrf.links):
        hops += [Hop(i, 0, link.left, link.right), Hop(i, 1, link.right, link.left)]
    return Wiring(tuple(mrf.unary), tuple(hops))


class Engine:
    """Executes plans on one MRF with one method.

    Without `own`, a belief that is asked for leaves out the layer's own energies, which the caller subtracts, and no
    message may read it.
    """

    def __init__(self, mrf: MRF, method: Method, own: bool = True) -> None:
        self.method, self.own = method, own
        self.backend, self.choice = _kernels(mrf, method), chosen()
        self.at_once = self.by_kernels and method.tolerance is None and method.gradient != "checkpoint"
        self.mrf = mrf if self.at_once else mrf.computed()  # what is run in parts must not compute evidence in each
        self.links: list[Prepared] = [] if self.by_kernels else [method.rule.prepare(link) for link in mrf.links]

    @property
    def by_kernels(self) -> bool:
        return self.backend is not None

    def on(self, mrf: MRF) -> Engine:
        """An engine for other samples with the same tables."""
        other = copy(self)
        other.mrf = mrf
        return other

    def execute(self, plan: Plan, inputs: list[Message]) -> dict[int, Value]:
        values: dict[int, Value] = dict(enumerate(inputs))
        if self.method.gradient == "checkpoint" and torch.is_grad_enabled():
            return self._checkpointed(plan, 0, len(plan.steps), values)
        return self._range(plan, 0, len(plan.steps), values)

    def _range(self, plan: Plan, first: int, last: int, values: dict[int, Value]) -> dict[int, Value]:
        """Steps `first .. last-1`; drops each value after its last use."""
        values = dict(values)
        if self.by_kernels:
            return self._by_kernels(plan, first, last, values)
        done = plan.last_uses()
        for i in range(first, last):
            values[len(plan.inputs) + i] = self._make(plan, i, values)
            for v in done[i]:
                del values[v]
        return values

    def _by_kernels(self, plan: Plan, first: int, last: int, values: dict[int, Value]) -> dict[int, Value]:
        from torchlgm.inference.kernel_executor import run_stretch

        values = values | run_stretch(self.mrf, self.method, self.backend, plan, first, last, values, self.at_once)
        later = plan.outputs.union(*(step.needs for step in plan.steps[last:]))
        for i in range(first, last):
            v = len(plan.inputs) + i
            if v in later and v not in values:
                values[v] = self._make(plan, i, values)
        return {v: value for v, value in values.items() if v in later}

    def _make(self, plan: Plan, i: int, values: dict[int, Value]) -> Value:
        step = plan.steps[i]
        if isinstance(step, MakeBelief):
            parts = [values[v].inflow for v in step.messages]
            if step.evidence and step.layer in self.mrf.evidence:
                parts.append(self.mrf.evidence[step.layer])
            unary = self.mrf.unary[step.layer]
            inflow = sum(parts[1:], parts[0]) if parts else torch.zeros_like(unary)
            return inflow - unary if self.own or len(plan.inputs) + i not in plan.outputs else inflow
        reverse = None if step.reverse is None else values[step.reverse].edges
        new = self.method.rule.send(self.links[step.hop.link], step.hop.side, values[step.belief], reverse)
        if self.method.damping == 0:
            return new
        return damped(new, None if step.old is None else values[step.old], self.method.damping)

    def _checkpointed(self, plan: Plan, first: int, last: int, values: dict[int, Value]) -> dict[int, Value]:
        """By halves: the first one is recomputed when its gradient is due, so only O(log steps) states are stored."""
        if last - first <= 2 * max(1, len(self.mrf.unary)):
            return self._range(plan, first, last, values)
        middle = (first + last) // 2
        later = {v for step in plan.steps[middle:] for v in step.needs} | plan.outputs
        keys = sorted(values)
        made = [v for v in range(len(plan.inputs) + first, len(plan.inputs) + middle) if v in later]

        def first_half(*tensors: Tensor | None) -> tuple[Tensor | None, ...]:
            with backend(self.choice):  # gradients may be computed in another thread
                here = self._checkpointed(plan, first, middle, _unflatten(keys, tensors))
            return _flatten([here[v] for v in made])

        flat = checkpoint(
            first_half, *_flatten([values[k] for k in keys]), use_reentrant=False, preserve_rng_state=False
        )
        known = {v: value for v, value in values.items() if v in later}
        return self._checkpointed(plan, middle, last, known | _unflatten(made, flat))


def _kernels(mrf: MRF, method: Method) -> Backend | None:
    """The kernels that make the messages; None for plain PyTorch."""
    rule = method.rule
    if rule.kernel_mode is None or not mrf.links:
        return None
    entries = sum(math.prod((*link.layout.edge_shape, *link.table.shape[-2:])) for link in mrf.links)
    rounds = method.iterations if method.tolerance is None else 1  # at once
    work = rounds * (entries * mrf.batch + len(mrf.links) * MESSAGE)
    constants = [x for link in mrf.links for x in (*link.layout.buffers(), *([link.rho] if rule.reweighted else []))]
    return kernels(mrf.links[0].table, work, constants)


def _flatten(values: list[Value]) -> tuple[Tensor | None, ...]:
    """Two places for each value: a belief has no inflow."""
    return tuple(t for v in values for t in (v if isinstance(v, Message) else (v, None)))


def _unflatten(keys: list[int], flat: tuple[Tensor | None, ...]) -> dict[int, Value]:
    pairs = zip(keys, flat[::2], flat[1::2], strict=True)
    return {k: a if b is None else Message(a, b) for k, a, b in pairs}
