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
from torchlgm.mrf import MRF, Absorbed, Deferred, Link
from torchlgm.ops import fused
from torchlgm.ops.backend import launcher
from torchlgm.ops.lanes import Lanes
from torchlgm.ops.linear import by_kernel
from torchlgm.ops.program import call

# "unary", "evidence" or "observed" and a layer, "belief", "inflow" or "edges" and a value of the plan, "table" and a
# link, "absorbed" and the layer whose evidence that table makes out of what is observed
Key = tuple[str, Any]
Slots = dict[Any, Tensor | None]
TABLES = ("table", "absorbed")


def run_stretch(
    mrf: MRF,
    rule: BeliefPropagation,
    plan: Plan,
    first: int,
    last: int,
    values: Mapping[int, Tensor | Message],
    at_once: bool,
) -> dict[int, Message]:
    """The messages that steps `first .. last-1` make and that are needed by the beliefs they make, or later.

    `at_once` says that these are all steps of the run, so that deferred evidence can be made among its messages.
    """
    stretch = _Stretch(mrf, rule, plan, first, last, values, at_once)
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
    """A message of the plan, or evidence, which is a message that is linear in what is observed."""

    table: Key
    side: int
    belief: _Parts
    reverse: Key | None
    edges: Key
    inflow: Key
    keep: bool = False  # its edges are read again

    @property
    def is_evidence(self) -> bool:
        return self.table[0] == "absorbed"

    @property
    def operands(self) -> tuple[Key, ...]:
        return (*self.belief.keys, self.reverse) if self.reverse else self.belief.keys


class _Known(NamedTuple):
    """What the gradients of all messages are made of."""

    slots: Slots
    wires: Mapping[Key, fused.Wires]
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
        at_once: bool,
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
                table = ("table", step.hop.link)
                sends.append(_Send(table, step.hop.side, beliefs[step.belief], reverse, ("edges", i), ("inflow", i)))
        made = {send.inflow[1] for send in sends}
        later = plan.outputs.union(*(step.needs for step in plan.steps[last:])) & {*made, *beliefs}
        outside = {key for v in later - made for key in beliefs[v].keys}  # beliefs are made of these again
        shown = {key[1] for key in outside if key[0] == "inflow"} & made
        self.links: dict[Key, Link] = {("table", i): link for i, link in enumerate(mrf.links)}
        read = {send.reverse for send in sends} | {("edges", v) for v in later & made}
        several = {send.edges for send in sends if _labels(self.links[send.table])[send.side] > 1}
        sends = [send._replace(keep=send.edges in read | several) for send in sends]
        self.outputs: list[Key] = [("inflow", v) for v in sorted(later & made | shown)]
        self.outputs += [("edges", v) for v in sorted(later & made)]
        used = {key for send in sends for key in send.belief.keys}
        self.absorbed = _absorbed(mrf, used - outside) if at_once else {}
        self.links |= {("absorbed", layer): part.link for layer, part in self.absorbed.items()}
        self.sends = self._with_evidence(sends)
        self.links |= {send.edges: self.links[send.table] for send in self.sends}
        self.links |= {send.reverse: self.links[send.table] for send in self.sends if send.reverse}
        used = {key for send in self.sends for key in send.operands}
        self.inputs = sorted(used - {key for send in self.sends for key in (send.edges, send.inflow)})
        self.inputs += sorted({send.table for send in self.sends})

    def _with_evidence(self, sends: Sequence[_Send]) -> list[_Send]:
        """Each right before it is first read, so that what does not need it comes first."""
        found, left = [], dict(self.absorbed)
        for send in sends:
            for _, layer in [key for key in send.belief.keys if key[0] == "evidence" and key[1] in left]:
                known, side = _Parts(None, ("observed", layer)), left.pop(layer).side
                found.append(_Send(("absorbed", layer), side, known, None, ("edges", layer), ("evidence", layer)))
            found.append(send)
        return found

    def given(self, values: Mapping[int, Any]) -> list[Tensor]:
        """The tensors behind `inputs`."""

        def find(kind: str, what: Any) -> Tensor:
            if kind in TABLES:
                link = self.links[kind, what]
                return link.layout.spread(link.table)
            if kind == "observed":
                return self.absorbed[what].q
            if kind in ("unary", "evidence"):
                return getattr(self.mrf, kind)[what]
            return values[what] if kind == "belief" else getattr(values[what], kind)

        return [find(*key) for key in self.inputs]

    def eager(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        slots = dict(zip(self.inputs, tensors, strict=True))
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
            belief = sum(-slots[key] if key[0] == "unary" else slots[key] for key in send.belief.keys)
            reverse = None if send.reverse is None else slots[send.reverse]
            slots[send.edges], slots[send.inflow] = self.rule.send(ready[send.table], send.side, belief, reverse)
        return [slots[key] for key in self.outputs]

    def forward(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor | None]]:
        self.shapes = [x.shape for x in tensors]
        slots: Slots = {key: self._packed(key, x) for key, x in zip(self.inputs, tensors, strict=True)}
        wires = self._wires(slots)
        lanes = self._lanes(tensors[0])
        for send in self.sends:
            with lanes.at(self._lane(send), [send.edges, send.inflow], send.operands):
                made = fused.send(self.launch, self._sent(send, wires, slots), send.keep)
            slots[send.edges], slots[send.inflow] = made
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

    def _send_back(self, send: _Send, lanes: Lanes, known: _Known) -> None:
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
            inflow_grads = found.pop_terms(send.inflow, lane)
            edges_grad = found.pop(send.edges, lane)
            first, *rest = send.belief.inflows or (None,)
            together = None  # of inflows that were added up beforehand
            if len(rest) > 1 and sent.belief.second is not None:
                together = fused.Sink(torch.empty_like(sent.belief.second), False)
            to_belief = [sink(key) for key in (send.belief.unary, send.belief.field, first)]
            to_belief.append(together or (sink(rest[0]) if rest else None))
            sinks = fused.Sinks(to_belief, sink(send.reverse), to_table)
            self.launch.send_backward(sent, slots[send.edges], inflow_grads, edges_grad, sinks)
            if together is not None:
                for key in rest:
                    wide = _there(slots, key).shape[-1] == sent.width
                    found.add(key, together.tensor if wide else together.tensor.sum(-1, keepdim=True), lane)

    def _lanes(self, like: Tensor) -> Lanes:
        """Evidence is the first to start and its gradients are needed last, so it lets messages go first."""
        return Lanes(like, patient=[send.table for send in self.sends if send.is_evidence])

    def _lane(self, send: _Send) -> Key | None:
        """Each connection has its own, so that no two of them write to the same edges or tables."""
        return None if send.table == self.sends[-1].table else send.table

    def _sent(self, send: _Send, wires: Mapping[Key, fused.Wires], slots: Slots) -> fused.Sent:
        return fused.Sent.of(wires[send.table], send.side, self._belief(send, slots), slots.get(send.reverse))

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

    def _wires(self, slots: Slots) -> dict[Key, fused.Wires]:
        result = {}
        for key, shape in zip(self.inputs, self.shapes, strict=True):
            if key[0] in TABLES:
                link = self.links[key]
                mode = "linear" if key[0] == "absorbed" else "max" if self.rule.maximise else "sum"
                rho = link.rho if self.rule.reweighted and mode != "linear" else None  # cancels in what is linear
                result[key] = fused.wires(link.layout, _there(slots, key), shape, -link.scale, rho, mode)
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


def _absorbed(mrf: MRF, keys: set[Key]) -> dict[str, Absorbed]:
    """What the evidence among `keys` is made of, by layer, where it is deferred and a kernel can make it."""
    found = {}
    for kind, layer in sorted(keys):
        part = mrf.evidence.only(layer) if kind == "evidence" and isinstance(mrf.evidence, Deferred) else None
        if part is not None and by_kernel(part.link.layout, part.link.table, part.q):
            found[layer] = part
    return found


def _there(slots: Slots, key: Key) -> Tensor:
    found = slots[key]
    assert found is not None
    return found


def _labels(link: Link) -> tuple[int, int]:
    kl, kr = link.table.shape[-2:]
    return kl, kr
