"""A stretch of a plan run by the kernels: all its messages in one differentiable step.

Beliefs inside are never stored: each message adds up the parts of its source's belief, a field and inflows, itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchlgm.inference.lowering import TABLES, Key, Send, Stretch
from torchlgm.inference.methods import Method
from torchlgm.inference.plan import Plan
from torchlgm.inference.rules import Message, Rule, damped
from torchlgm.mrf import MRF
from torchlgm.ops import launch as fused
from torchlgm.ops.autograd import call
from torchlgm.ops.backend import Backend
from torchlgm.ops.triton.streams import Lanes

Slots = dict[Any, Tensor | None]


def run_stretch(
    mrf: MRF,
    method: Method,
    backend: Backend,
    plan: Plan,
    first: int,
    last: int,
    values: Mapping[int, Tensor | Message],
    at_once: bool,
) -> dict[int, Message]:
    """The messages that steps `first .. last-1` make and that are needed by the beliefs they make, or later.

    `at_once` says that these are all steps of the run, so that deferred evidence can be made among its messages.
    """
    launch = backend.launcher()
    look_back = launch.looks_back and torch.is_grad_enabled()
    stretch = Stretch(mrf, method.damping, plan, first, last, values, at_once, look_back)
    if not stretch.sends:
        return {}
    made = call(_ByKernels(stretch, method.rule, launch), stretch.given(values))
    found = dict(zip(stretch.outputs, made, strict=True))
    return {v: Message(found.get(("edges", v)), x) for (kind, v), x in found.items() if kind == "inflow"}


class _Known(NamedTuple):
    """What the gradients of all messages are made of."""

    slots: Slots
    wires: Mapping[Key, fused.Wires]
    unasked: set[Key]  # inputs whose gradients nobody wants
    found: fused.Gradients


class _ByKernels:
    """A stretch as a `Program`."""

    def __init__(self, stretch: Stretch, rule: Rule, launch: fused.Launch) -> None:
        self.rule, self.launch = rule, launch
        self.mrf, self.links, self.sends = stretch.mrf, stretch.links, stretch.sends
        self.inputs, self.outputs = stretch.inputs, stretch.outputs
        self.over = [set() for _ in self.sends] if torch.is_grad_enabled() else stretch.last_uses()

    def eager(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        slots: dict[Key, Any] = dict(zip(self.inputs, tensors, strict=True))
        ready = {
            key: self.rule.prepare(self.links[key]._replace(table=table))
            for key, table in slots.items()
            if key[0] == "table"
        }
        for send in self.sends:
            if send.is_evidence:
                link, observed = self.links[send.table], slots[send.belief.keys[0]]
                slots[send.inflow] = -link.scale * link.layout.linear(slots[send.table], observed, send.side)
                continue
            belief: Any = sum(-slots[key] if key[0] == "unary" else slots[key] for key in send.belief.keys)
            reverse = None if send.reverse is None else slots[send.reverse]
            sent = self.rule.send(ready[send.table], send.side, belief, reverse)
            slots[send.edges], slots[send.inflow] = _damped(send, sent, slots)
        return [slots[key] for key in self.outputs]

    def forward(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor | None]]:
        self.shapes = [x.shape for x in tensors]
        slots: Slots = {key: self._packed(key, x) for key, x in zip(self.inputs, tensors, strict=True)}
        wires = self._wires(slots)
        lanes = self._lanes(tensors[0])
        for send, over in zip(self.sends, self.over, strict=True):
            with lanes.at(self._lane(send), [send.edges, send.inflow], send.operands):
                sent = self._sent(send, wires, slots)
                edges, norms, inflow = fused.send(self.launch, sent, send.keep, send.look_back)
                if send.look_back:
                    slots[send.sent], slots[send.norms] = edges, norms
                made = _damped(send, Message(edges if send.keep else None, inflow), slots)
            slots[send.edges], slots[send.inflow] = made
            if not lanes.capturing:  # what a lane gives back it takes again at once, while others may still read it
                for key in over:
                    slots.pop(key)
        lanes.join()
        self.saved = list(slots)
        return [self._unpacked(key, _there(slots, key)) for key in self.outputs], list(slots.values())

    def backward(
        self, saved: Sequence[Tensor | None], wanted: Sequence[bool], grads: Sequence[Tensor | None]
    ) -> list[Tensor | None]:
        slots: Slots = dict(zip(self.saved, saved, strict=True))
        unasked = {key for key, want in zip(self.inputs, wanted, strict=True) if not want}
        unasked |= {send.inflow for send in self.sends if send.is_evidence and unasked >= {send.table, *send.operands}}
        found = fused.Gradients(self.launch)
        for key, grad in zip(self.outputs, grads, strict=True):
            if grad is not None:
                found.add(key, self._packed(key, grad))
        known = _Known(slots, self._wires(slots), unasked, found)
        lanes = self._lanes(_there(slots, self.inputs[-1]))
        for send in reversed(self.sends):
            if send.inflow in found or send.edges in found:
                self._send_back(send, lanes, known)
        lanes.join()
        return [self._gradient(*one) for one in zip(self.inputs, self.shapes, found.pop_all(self.inputs), strict=True)]

    def _send_back(self, send: Send, lanes: Lanes, known: _Known) -> None:
        """From the gradient of a message to those of what it was made of."""
        slots, wires, unasked, found = known
        lane = self._lane(send)
        with lanes.at(lane, (), ()):  # zeros and sums that wait for no gradient
            sent = self._sent(send, wires, slots)
            to_table = None
            if send.table not in unasked:
                to_table = found.table_sink(send.table, sent.wires, sent.width, lane)

        def sink(key: Key | None) -> fused.Sink | None:
            if key is None or key in unasked:
                return None
            complete = key[0] != "edges" or self.links[key].layout.mask is None
            return found.sink(key, _there(slots, key), sent.width, complete, lane)

        with lanes.at(lane, send.operands, [send.inflow, send.edges]):
            inflow_grads, edges_grads = found.pop_terms(send.inflow, lane), found.pop_terms(send.edges, lane, 1)
            if send.damping:
                inflow_grads = self._undamped(send, inflow_grads, send.old_inflow, sent.width, known)
                edges_grads = self._undamped(send, edges_grads, send.old_edges, sent.width, known)
            first, *rest = send.belief.inflows or (None,)
            together = None  # of inflows that were added up beforehand
            if len(rest) > 1 and sent.belief.second is not None:
                together = fused.Sink(torch.empty_like(sent.belief.second), False)
            to_belief = [sink(key) for key in (send.belief.unary, send.belief.field, first)]
            to_belief.append(together or (sink(rest[0]) if rest else None))
            sinks = fused.Sinks(to_belief, sink(send.reverse), to_table)
            edges_grad = next(iter(edges_grads), None)
            self.launch.send_backward(
                sent, slots.get(send.sent), slots.get(send.norms), inflow_grads, edges_grad, sinks
            )
            if together is not None:
                for key in rest:
                    found.add(key, _as_wide(together.tensor, _there(slots, key).shape[-1]), lane)

    def _undamped(
        self, send: Send, grads: Sequence[Tensor], old: Key | None, width: int, known: _Known
    ) -> list[Tensor]:
        """Gradients of a message before it was damped by `old`, which gets its share."""
        if not grads:
            return []
        total = fused.added_up(grads)
        if old is not None and old not in known.unasked:
            share = _as_wide(send.damping * total, _there(known.slots, old).shape[-1])
            known.found.add(old, share, self._lane(send))
        return [_as_wide((1 - send.damping) * total, width).unsqueeze(0)]

    def _lanes(self, like: Tensor) -> Lanes:
        """Evidence is the first to start and its gradients are needed last, so it lets messages go first."""
        return Lanes(like, patient=[send.table for send in self.sends if send.is_evidence])

    def _lane(self, send: Send) -> Key | None:
        """Each connection has its own, so that no two of them write to the same edges or tables."""
        return None if send.table == self.sends[-1].table else send.table

    def _sent(self, send: Send, wires: Mapping[Key, fused.Wires], slots: Slots) -> fused.Sent:
        return fused.Sent.of(wires[send.table], send.side, self._belief(send, slots), slots.get(send.reverse))

    @staticmethod
    def _belief(send: Send, slots: Slots) -> fused.Belief:
        """Several inflows are added up beforehand, as wide as the message."""
        parts = send.belief
        unary, field, reverse = (slots.get(key) for key in (parts.unary, parts.field, send.reverse))
        inflows = [_there(slots, key) for key in parts.inflows]
        if len(inflows) < 3:
            return fused.Belief(unary, field, *inflows)
        batch = fused.width(unary, field, *inflows, reverse)
        total = sum(inflows[2:], inflows[1])
        return fused.Belief(unary, field, inflows[0], total.expand(*total.shape[:-1], batch).contiguous())

    def _wires(self, slots: Slots) -> dict[Key, fused.Wires]:
        result = {}
        for key, shape in zip(self.inputs, self.shapes, strict=True):
            if key[0] in TABLES:
                link = self.links[key]
                mode = "linear" if key[0] == "absorbed" else self.rule.kernel_mode
                rho = link.rho if self.rule.reweighted and mode != "linear" else None  # cancels in what is linear
                divided = self.rule.divide_by_rho
                result[key] = fused.wires(link.layout, _there(slots, key), shape, -link.scale, rho, mode, divided)
        return result

    def _edge_shape(self, key: Key) -> tuple[int, ...]:
        return self.links[key].layout.edge_shape

    def _packed(self, key: Key, x: Tensor) -> Tensor:
        if key[0] in TABLES:
            return x.detach().flatten(1, -3).contiguous()
        if key[0] == "edges":
            return fused.edges_in(x, self._edge_shape(key), self.launch)
        return fused.nodes_in(x, self.launch)

    def _unpacked(self, key: Key, x: Tensor) -> Tensor:
        batch = self.mrf.batch if x.shape[-1] > 1 else 1
        return fused.edges_out(x, self._edge_shape(key), batch) if key[0] == "edges" else fused.nodes_out(x, batch)

    def _gradient(self, key: Key, shape: Any, grad: Tensor | None) -> Tensor | None:
        if grad is None:
            return None
        if key[0] in TABLES:
            return fused.table_gradient(grad, self._edge_shape(key), shape)
        return self._unpacked(key, grad)


def _damped(send: Send, sent: Message, slots: Slots) -> Message:
    if not send.damping:
        return sent
    old = None if send.old_inflow is None else Message(slots.get(send.old_edges), _there(slots, send.old_inflow))
    return damped(sent, old, send.damping)


def _as_wide(grad: Tensor, width: int) -> Tensor:
    """A gradient of what was broadcast to all samples, where `width` is 1."""
    return grad if grad.shape[-1] == width else grad.sum(-1, keepdim=True)


def _there(slots: Slots, key: Key) -> Tensor:
    found = slots[key]
    assert found is not None
    return found
