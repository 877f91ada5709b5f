"""A stretch of a plan run by the kernels: all its messages in one differentiable step.

Beliefs inside are never stored: each message adds up the parts of its source's belief, a field and inflows, itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchlgm.infer.plan import MakeBelief, Plan
from torchlgm.infer.rules import BeliefPropagation, Message
from torchlgm.infer.schedule import Hop
from torchlgm.mrf import MRF, Link
from torchlgm.ops import fused
from torchlgm.ops.backend import launcher
from torchlgm.ops.program import call

# "unary" or "evidence" and a layer, "belief", "inflow" or "edges" and a value of the plan, "table" and a link
Key = tuple[str, Any]
Slots = dict[Any, Tensor | None]


def run_stretch(
    mrf: MRF, rule: BeliefPropagation, plan: Plan, first: int, last: int, values: Mapping[int, Tensor | Message]
) -> dict[int, Message]:
    """The messages that steps `first .. last-1` make and that are needed by the beliefs they make, or later."""
    stretch = _Stretch(mrf, rule, plan, first, last, values)
    if not stretch.sends:
        return {}
    found = dict(zip(stretch.outputs, call(stretch, stretch.given(values)), strict=True))
    return {v: Message(found.get(("edges", v)), x) for (kind, v), x in found.items() if kind == "inflow"}


class _Parts(NamedTuple):
    """The parts of a belief, see `ops.fused.Belief`."""

    unary: Key | None
    field: Key | None
    inflows: tuple[Key, ...] = ()

    @property
    def keys(self) -> tuple[Key, ...]:
        return tuple(key for key in (self.unary, self.field, *self.inflows) if key)


class _Send(NamedTuple):
    value: int
    hop: Hop
    belief: _Parts
    reverse: Key | None
    keep: bool  # its edges are read again


class _Known(NamedTuple):
    """What the gradients of all messages are made of."""

    slots: Slots
    wires: Mapping[int, fused.Wires]
    unasked: set[Key]  # inputs whose gradients nobody wants
    found: fused.Gradients


class _Stretch:
    """The messages of a part of a plan, as a `Program` from fields, tables and earlier values."""

    def __init__(
        self,
        mrf: MRF,
        rule: BeliefPropagation,
        plan: Plan,
        first: int,
        last: int,
        known: Mapping[int, Tensor | Message],
    ) -> None:
        self.mrf, self.rule = mrf, rule
        self.launch = launcher(mrf.links[0].table)
        beliefs = {v: _Parts(None, ("belief", v)) for v in known if isinstance(known[v], Tensor)}
        sends: list[_Send] = []
        for i, step in enumerate(plan.steps[first:last], len(plan.inputs) + first):
            if isinstance(step, MakeBelief):
                field = ("evidence", step.layer) if step.evidence and step.layer in mrf.evidence else None
                beliefs[i] = _Parts(("unary", step.layer), field, tuple(("inflow", v) for v in step.messages))
            else:
                reverse = None if step.reverse is None else ("edges", step.reverse)
                sends.append(_Send(i, step.hop, beliefs[step.belief], reverse, False))
        made = {send.value for send in sends}
        later = plan.outputs.union(*(step.needs for step in plan.steps[last:])) & {*made, *beliefs}
        shown = {key[1] for v in later - made for key in beliefs[v].keys if key[0] == "inflow"} & made
        read = {send.reverse[1] for send in sends if send.reverse} | (later & made)
        several = {send.value for send in sends if _labels(mrf.links[send.hop.link])[send.hop.side] > 1}
        self.sends = [send._replace(keep=send.value in read | several) for send in sends]
        self.outputs: list[Key] = [("inflow", v) for v in sorted(later & made | shown)]
        self.outputs += [("edges", v) for v in sorted(later & made)]
        self.links = {key: send.hop.link for send in sends for key in (("edges", send.value), send.reverse) if key}
        used = {key for send in sends for key in (*send.belief.keys, send.reverse) if key}
        self.inputs = sorted(key for key in used if key[1] not in made)
        self.inputs += [("table", link) for link in sorted({send.hop.link for send in sends})]

    def given(self, values: Mapping[int, Any]) -> list[Tensor]:
        """The tensors behind `inputs`."""

        def find(kind: str, what: Any) -> Tensor:
            if kind == "table":
                link = self._link((kind, what))
                return link.layout.spread(link.table)
            if kind in ("unary", "evidence"):
                return getattr(self.mrf, kind)[what]
            return values[what] if kind == "belief" else getattr(values[what], kind)

        return [find(*key) for key in self.inputs]

    def eager(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        slots = dict(zip(self.inputs, tensors, strict=True))
        ready = {
            key[1]: self.rule.prepare(self._link(key)._replace(table=table))
            for key, table in slots.items()
            if key[0] == "table"
        }
        for send in self.sends:
            belief = sum(-slots[key] if key[0] == "unary" else slots[key] for key in send.belief.keys)
            reverse = None if send.reverse is None else slots[send.reverse]
            message = self.rule.send(ready[send.hop.link], send.hop.side, belief, reverse)
            slots["edges", send.value], slots["inflow", send.value] = message
        return [slots[key] for key in self.outputs]

    def forward(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor | None]]:
        self.shapes = [x.shape for x in tensors]
        slots: Slots = {key: self._packed(key, x) for key, x in zip(self.inputs, tensors, strict=True)}
        wires = self._wires(slots)
        lanes = fused.Lanes(tensors[0])
        for send in self.sends:
            operands = [key for key in (*send.belief.keys, send.reverse) if key]
            outputs: list[Key] = [("edges", send.value), ("inflow", send.value)]
            with lanes.at(self._lane(send), outputs, operands):
                made = fused.send(self.launch, self._sent(send, wires, slots), send.keep)
            slots.update(zip(outputs, made, strict=True))
        lanes.join()
        self.saved = list(slots)
        return [self._unpacked(key, _there(slots, key)) for key in self.outputs], list(slots.values())

    def backward(
        self, saved: Sequence[Tensor | None], wanted: Sequence[bool], grads: Sequence[Tensor | None]
    ) -> list[Tensor | None]:
        slots: Slots = dict(zip(self.saved, saved, strict=True))
        unasked = {key for key, want in zip(self.inputs, wanted, strict=True) if not want}
        found = fused.Gradients(self.launch)
        for key, grad in zip(self.outputs, grads, strict=True):
            if grad is not None:
                found.add(key, self._packed(key, grad))
        known = _Known(slots, self._wires(slots), unasked, found)
        lanes = fused.Lanes(_there(slots, self.inputs[-1]))
        for send in reversed(self.sends):
            made: list[Key] = [("inflow", send.value), ("edges", send.value)]
            if any(key in found for key in made):
                lane = self._lane(send)
                with lanes.at(lane, [key for key in (*send.belief.keys, send.reverse) if key], made):
                    self._send_back(send, lane, known)
        for lane in dict.fromkeys(map(self._lane, self.sends)):
            with lanes.at(lane, (), ()):
                found.add_up_parts(lane)
        lanes.join()
        return [self._gradient(*one) for one in zip(self.inputs, self.shapes, found.pop_all(self.inputs), strict=True)]

    def _send_back(self, send: _Send, lane: int | None, known: _Known) -> None:
        """From the gradient of a message to those of what it was made of."""
        slots, wires, unasked, found = known
        sent, table = self._sent(send, wires, slots), ("table", send.hop.link)
        batch = sent.width

        def sink(key: Key | None) -> fused.Sink | None:
            if key is None or key in unasked:
                return None
            complete = key[0] != "edges" or wires[self.links[key]].lists.complete
            return found.sink(key, _there(slots, key), batch, complete, lane)

        inflow_grads = found.pop_terms(("inflow", send.value), lane)
        edges_grad = found.pop(("edges", send.value), lane)
        first, *rest = send.belief.inflows or (None,)
        together = None  # of inflows that were added up beforehand
        if len(rest) > 1 and sent.belief.second is not None:
            together = fused.Sink(torch.empty_like(sent.belief.second), False)
        to_belief = [sink(key) for key in (send.belief.unary, send.belief.field, first)]
        to_belief.append(together or (sink(rest[0]) if rest else None))
        to_table = None if table in unasked else found.table_sink(table, sent.wires, batch, lane)
        sinks = fused.Sinks(to_belief, sink(send.reverse), to_table)
        self.launch.send_backward(sent, slots["edges", send.value], inflow_grads, edges_grad, sinks)
        if together is not None:
            for key in rest:
                wide = _there(slots, key).shape[-1] == batch
                found.add(key, together.tensor if wide else together.tensor.sum(-1, keepdim=True), lane)

    def _lane(self, send: _Send) -> int | None:
        """Each connection has its own, so that no two of them write to the same edges or tables."""
        link = send.hop.link
        return None if link == self.sends[-1].hop.link else link

    def _sent(self, send: _Send, wires: Mapping[int, fused.Wires], slots: Slots) -> fused.Sent:
        return fused.Sent.of(wires[send.hop.link], send.hop.side, self._belief(send, slots), slots.get(send.reverse))

    @staticmethod
    def _belief(send: _Send, slots: Slots) -> fused.Belief:
        """Several inflows are added up beforehand, as wide as the message."""
        parts = send.belief
        unary, field, reverse = (slots.get(key) for key in (parts.unary, parts.field, send.reverse))
        inflows = [_there(slots, key) for key in parts.inflows]
        if len(inflows) < 3:
            return fused.Belief(unary, field, *inflows)
        batch = fused.width(unary, field, *inflows, reverse)
        total = sum(inflows[2:], inflows[1])
        return fused.Belief(unary, field, inflows[0], total.expand(*total.shape[:-1], batch).contiguous())

    def _wires(self, slots: Slots) -> dict[int, fused.Wires]:
        mode = "max" if self.rule.maximise else "sum"
        result = {}
        for key, shape in zip(self.inputs, self.shapes, strict=True):
            if key[0] == "table":
                link = self._link(key)
                rho = link.rho if self.rule.reweighted else None
                result[key[1]] = fused.wires(link.layout, _there(slots, key), shape, -link.scale, rho, mode)
        return result

    def _link(self, key: Key) -> Link:
        return self.mrf.links[key[1] if key[0] == "table" else self.links[key]]

    def _edge_shape(self, key: Key) -> tuple[int, ...]:
        return self._link(key).layout.edge_shape

    def _packed(self, key: Key, x: Tensor) -> Tensor:
        if key[0] == "table":
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
        if key[0] == "table":
            return fused.table_gradient(grad, self._edge_shape(key), shape)
        return self._unpacked(key, grad)


def _there(slots: Slots, key: Key) -> Tensor:
    found = slots[key]
    assert found is not None
    return found


def _labels(link: Link) -> tuple[int, int]:
    kl, kr = link.table.shape[-2:]
    return kl, kr
