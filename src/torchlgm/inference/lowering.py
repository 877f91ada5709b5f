"""The messages of a part of a plan as data: what each is made of, and what goes in and comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from torchlgm.inference.plan import MakeBelief, Plan
from torchlgm.inference.rules import Message
from torchlgm.mrf import MRF, Absorbed, Deferred, Link
from torchlgm.ops.linear import linear_kernels

# What is known as what:
#   "unary", "evidence", "observed"  and a layer: its energies, what is seen below it, and that as it was seen
#   "belief", "inflow", "edges"      and a value of the plan; "sent" are edges before damping
#   "table"                          and a link
#   "absorbed"                       and a layer: the table that makes its evidence out of what is observed
Key = tuple[str, Any]
TABLES = ("table", "absorbed")


class Parts(NamedTuple):
    """The parts of a belief, see `ops.launch.Belief`."""

    unary: Key | None
    field: Key | None
    inflows: tuple[Key, ...] = ()

    @property
    def keys(self) -> tuple[Key, ...]:
        return tuple(key for key in (self.unary, self.field, *self.inflows) if key)


class Send(NamedTuple):
    """A message of the plan, or evidence, which is a message that is linear in what is observed."""

    table: Key
    side: int
    belief: Parts
    reverse: Key | None
    edges: Key
    inflow: Key
    damping: float = 0.0
    old_edges: Key | None = None  # of the message that it is damped by
    old_inflow: Key | None = None
    keep: bool = False  # its edges are read again
    look_back: bool = False  # its gradient needs the edges as they were sent

    @property
    def sent(self) -> Key:
        return "sent", self.edges[1]

    @property
    def norms(self) -> Key:
        return "norms", self.edges[1]

    @property
    def is_evidence(self) -> bool:
        return self.table[0] == "absorbed"

    @property
    def operands(self) -> tuple[Key, ...]:
        return (*self.belief.keys, *(key for key in (self.reverse, self.old_edges, self.old_inflow) if key))


class Stretch:
    """The messages that steps `first .. last-1` make, from fields, tables and values that are `known`.

    `look_back` says that gradients of messages out of nodes with several labels need these as they were sent.
    """

    def __init__(
        self,
        mrf: MRF,
        damping: float,
        plan: Plan,
        first: int,
        last: int,
        known: Mapping[int, Tensor | Message],
        at_once: bool,
        look_back: bool,
    ) -> None:
        self.mrf = mrf
        sends, beliefs = _sends(mrf, damping, plan, first, last, known)
        made = {send.inflow[1] for send in sends}
        later = plan.outputs.union(*(step.needs for step in plan.steps[last:])) & {*made, *beliefs}
        outside = {key for v in later - made for key in beliefs[v].keys}  # beliefs are made of these again
        shown = {key[1] for key in outside if key[0] == "inflow"} & made
        self.links: dict[Key, Link] = {("table", i): link for i, link in enumerate(mrf.links)}
        sends = self._with_edges(sends, {("edges", v) for v in later & made}, look_back)
        self.outputs: list[Key] = [("inflow", v) for v in sorted(later & made | shown)]
        self.outputs += [("edges", v) for v in sorted(later & made)]
        used = {key for send in sends for key in send.belief.keys}
        self.absorbed = _absorbed(mrf, used - outside) if at_once else {}
        self.links |= {("absorbed", layer): part.link for layer, part in self.absorbed.items()}
        self.sends = self._with_evidence(sends)
        self.links |= {
            key: self.links[send.table]
            for send in self.sends
            for key in (send.edges, send.reverse, send.old_edges)
            if key
        }
        used = {key for send in self.sends for key in send.operands}
        self.inputs = sorted(used - {key for send in self.sends for key in (send.edges, send.inflow)})
        self.inputs += sorted({send.table for send in self.sends})

    def _with_edges(self, sends: Sequence[Send], read: set[Key | None], look_back: bool) -> list[Send]:
        """Messages whose edges are read, here or later, keep them, and only these read those of an older one."""
        read |= {send.reverse for send in sends}
        found = []
        for send in reversed(sends):
            keep = send.edges in read
            old = send.old_edges if keep else None
            several = self.links[send.table].table.shape[-2:][send.side] > 1
            found.append(send._replace(keep=keep, old_edges=old, look_back=look_back and several))
            read.add(old)
        return found[::-1]

    def last_uses(self) -> list[set[Key]]:
        """For each message what nobody needs once it is sent."""
        seen, result = {*self.outputs}, []
        for send in reversed(self.sends):
            result.append({*send.operands, send.edges, send.inflow} - seen)
            seen |= result[-1]
        return result[::-1]

    def _with_evidence(self, sends: Sequence[Send]) -> list[Send]:
        """Each right before it is first read, so that what does not need it comes first."""
        found, left = [], dict(self.absorbed)
        for send in sends:
            for _, layer in [key for key in send.belief.keys if key[0] == "evidence" and key[1] in left]:
                known, side = Parts(None, ("observed", layer)), left.pop(layer).side
                found.append(Send(("absorbed", layer), side, known, None, ("edges", layer), ("evidence", layer)))
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


def _sends(
    mrf: MRF, damping: float, plan: Plan, first: int, last: int, known: Mapping[int, Tensor | Message]
) -> tuple[list[Send], dict[int, Parts]]:
    """The messages, and the parts of all beliefs."""
    sends: list[Send] = []
    beliefs = {v: Parts(None, ("belief", v)) for v in known if isinstance(known[v], Tensor)}
    for i, step in enumerate(plan.steps[first:last], len(plan.inputs) + first):
        if isinstance(step, MakeBelief):
            field = ("evidence", step.layer) if step.evidence and step.layer in mrf.evidence else None
            beliefs[i] = Parts(("unary", step.layer), field, tuple(("inflow", v) for v in step.messages))
        else:
            reverse = None if step.reverse is None else ("edges", step.reverse)
            old = (None, None) if step.old is None else (("edges", step.old), ("inflow", step.old))
            table, made = ("table", step.hop.link), (("edges", i), ("inflow", i))
            sends.append(Send(table, step.hop.side, beliefs[step.belief], reverse, *made, damping, *old))
    return sends, beliefs


def _absorbed(mrf: MRF, keys: set[Key]) -> dict[str, Absorbed]:
    """What the evidence among `keys` is made of, by layer, where it is deferred and a kernel can make it."""
    found = {}
    for kind, layer in sorted(keys):
        part = mrf.evidence.only(layer) if kind == "evidence" and isinstance(mrf.evidence, Deferred) else None
        if part is not None and linear_kernels(part.link.layout, part.link.table, part.q):
            found[layer] = part
    return found
