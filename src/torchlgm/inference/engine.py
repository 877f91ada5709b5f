"""Executing plans on one MRF with one method."""

from __future__ import annotations

import math
from copy import copy
from functools import lru_cache

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from torchlgm.inference.methods import Method
from torchlgm.inference.plan import JoinMessages, MakeBelief, MakeMessage, Plan
from torchlgm.inference.rules import Message, Prepared, damped
from torchlgm.inference.schedule import Hop, Wiring
from torchlgm.inference.values import Values, unflattened
from torchlgm.mrf import MRF
from torchlgm.ops.backend import Backend, backend, chosen, kernels

MESSAGE = 2**11  # what plain PyTorch takes for any message, as entries of tables times samples


def wiring_of(mrf: MRF) -> Wiring:
    ends = tuple([(link.left, link.right) for link in mrf.links])
    colours = tuple([(layer, len(masks)) for layer, masks in mrf.colours.items()])
    return (_wiring.__wrapped__ if torch.compiler.is_compiling() else _wiring)(tuple(mrf.unary), ends, colours)


@lru_cache(maxsize=256)
def _wiring(layers: tuple[str, ...], ends: tuple[tuple[str, str], ...], colours: tuple[tuple[str, int], ...]) -> Wiring:
    hops = []
    for i, (left, right) in enumerate(ends):
        hops += [Hop(i, 0, left, right), Hop(i, 1, right, left)]
    return Wiring(layers, tuple(hops), colours)


class Engine:
    """Executes plans on one MRF with one method.

    Without `include_unary`, a belief in the answer leaves out the layer's unary, which the caller subtracts, and no
    message may read it.
    """

    def __init__(self, mrf: MRF, method: Method, include_unary: bool = True) -> None:
        self.method, self.include_unary = method, include_unary
        self.backend, self.backend_name = _kernels(mrf, method), chosen()
        at_once = method.tolerance is None and method.gradient != "checkpoint"
        self.single_pass = self.backend is not None and at_once
        self.mrf = mrf if self.single_pass else mrf._replace(evidence=dict(mrf.evidence))
        self.links: list[Prepared] = []
        if self.backend is None:
            self.links = [method.rule.prepare(link) for link in mrf.links]

    def on(self, mrf: MRF) -> Engine:
        """An engine for other samples with the same tables."""
        other = copy(self)
        other.mrf = mrf
        return other

    def execute(self, plan: Plan, inputs: list[Message]) -> Values:
        values = Values({}, dict(enumerate(inputs)))
        if self.method.gradient == "checkpoint" and torch.is_grad_enabled():
            return self._checkpointed(plan, 0, len(plan.steps), values)
        return self._range(plan, 0, len(plan.steps), values)

    def _range(self, plan: Plan, first: int, last: int, values: Values) -> Values:
        """Steps `first .. last-1`; drops each value after its last use."""
        if self.backend is not None:
            return self._by_kernels(self.backend, plan, first, last, values)
        beliefs, messages = dict(values.beliefs), dict(values.messages)
        for i in range(first, last):
            step, value = plan.steps[i], len(plan.inputs) + i
            if isinstance(step, MakeBelief):
                beliefs[value] = self._belief(step, messages, self.include_unary or value not in plan.outputs)
            elif isinstance(step, MakeMessage):
                messages[value] = self._message(step, beliefs, messages)
            else:
                messages[value] = self._joined(step, messages)
            for v in plan.last_uses[i]:
                beliefs.pop(v, None)
                messages.pop(v, None)
        return Values(beliefs, messages)

    def _by_kernels(self, backend: Backend, plan: Plan, first: int, last: int, values: Values) -> Values:
        from torchlgm.inference.kernels import run_messages

        lowered, new = run_messages(self.mrf, self.method, backend, plan, first, last, values, self.single_pass)
        beliefs, messages = dict(values.beliefs), values.messages | new
        for value in lowered.beliefs:
            step = plan.steps[value - len(plan.inputs)]
            assert isinstance(step, MakeBelief)
            beliefs[value] = self._belief(step, messages, self.include_unary or value not in plan.outputs)
        return Values(beliefs, messages).only(lowered.needed)

    def _belief(self, step: MakeBelief, messages: dict[int, Message], with_unary: bool) -> Tensor:
        parts = [messages[v].inflow for v in step.messages]
        if step.evidence and step.layer in self.mrf.evidence:
            parts.append(self.mrf.evidence[step.layer])
        unary = self.mrf.unary[step.layer]
        inflow = sum(parts[1:], parts[0]) if parts else torch.zeros_like(unary)
        return inflow - unary if with_unary else inflow

    def _message(self, step: MakeMessage, beliefs: dict[int, Tensor], messages: dict[int, Message]) -> Message:
        reverse = None if step.reverse is None else messages[step.reverse].edges
        new = self.method.rule.send(self.links[step.hop.link], step.hop.side, beliefs[step.belief], reverse)
        if self.method.damping == 0:
            return new
        return damped(new, None if step.old is None else messages[step.old], self.method.damping)

    def _joined(self, step: JoinMessages, messages: dict[int, Message]) -> Message:
        mask = self.mrf.colours[step.hop.target][step.colour].unsqueeze(-1)
        old = None if step.old is None else messages[step.old]
        return Message(None, torch.where(mask, messages[step.new].inflow, 0 if old is None else old.inflow))

    def _checkpointed(self, plan: Plan, first: int, last: int, values: Values) -> Values:
        """By halves: the first one is recomputed when its gradient is due, so only O(log steps) states are stored."""
        if last - first <= 2 * max(1, len(self.mrf.unary)):
            return self._range(plan, first, last, values)
        middle = (first + last) // 2
        needed = plan.needed_from(middle)
        kept = [i for i in range(first, middle) if len(plan.inputs) + i in needed]
        beliefs = [len(plan.inputs) + i for i in kept if isinstance(plan.steps[i], MakeBelief)]
        messages = [len(plan.inputs) + i for i in kept if not isinstance(plan.steps[i], MakeBelief)]

        def first_half(*tensors: Tensor | None) -> tuple[Tensor | None, ...]:
            with backend(self.backend_name):  # gradients may be computed in another thread
                half = self._checkpointed(plan, first, middle, values.like(tensors))
            wanted = Values({v: half.beliefs[v] for v in beliefs}, {v: half.messages[v] for v in messages})
            return tuple(wanted.flat())

        flat = checkpoint(first_half, *values.flat(), use_reentrant=False, preserve_rng_state=False)
        merged = values.only(needed) | unflattened(beliefs, messages, flat)
        return self._checkpointed(plan, middle, last, merged)


def _kernels(mrf: MRF, method: Method) -> Backend | None:
    """The kernels that make the messages; None for plain PyTorch."""
    rule, links = method.rule, mrf.links
    if rule.kernel_mode is None or not links:
        return None
    entries = sum([math.prod((*link.layout.edge_shape, *link.table.shape[-2:])) for link in links])
    rounds = method.iterations if method.tolerance is None else 1  # at once
    work = rounds * (entries * mrf.batch + len(links) * MESSAGE)
    constants = (x for link in links for x in (*link.layout.buffers(), *([link.rho] if rule.reweighted else [])))
    return kernels(links[0].table, work, constants)
