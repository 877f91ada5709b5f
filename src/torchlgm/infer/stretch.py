"""The messages of a part of a plan as data: what each is made of, and what goes in and comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from torchlgm.infer.plan import MakeBelief, Plan
from torchlgm.infer.rules import Message
from torchlgm.mrf import MRF, Absorbed, Deferred, Link
from torchlgm.ops.linear import by_kernel

# "unary", "evidence" or "observed" and a layer, "belief", "inflow", "edges" or "sent" (edges, not damped) and a value
# of the plan, "table" and a link, "absorbed" and the layer whose evidence that table makes out of what is observed
Key = tuple[str, Any]
TABLES = ("table", "absorbed")


class Parts(NamedTuple):
    """The parts of a belief, see `ops.fused.Belief`."""

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
    keep: bool = False  # its edges are read again
    damping: float = 0.0
    old_edges: Key | None = None  # of the message that it is damped by, where there is one
    old_inflow: Key | None = None

    @property
    def sent(self) -> Key:
        return ("sent", self.edges[1]) if self.damping else self.edges

    @property
    def is_evidence(self) -> bool:
        return self.table[0] == "absorbed"

    @property
    def operands(self) -> tuple[Key, ...]:
        return (*self.belief.keys, *(key for key in (self.reverse, self.old_edges, self.old_inflow) if key))


class Stretch:
    """The messages that steps `first .. last-1` make, from fields, tables and values that are `known`."""

    def __init__(
        self,
        mrf: MRF,
        damping: float,
        plan: Plan,
        first: int,
        last: int,
        known: Mapping[int, Tensor | Message],
        at_once: bool,
    ) -> None:
        self.mrf = mrf
        beliefs = {v: Parts(None, ("belief", v)) for v in known if isinstance(known[v], Tensor)}
        sends: list[Send] = []
        for i, step in enumerate(plan.steps[first:last], len(plan.inputs) + first):
            if isinstance(step, MakeBelief):
                field = ("evidence", step.layer) if step.evidence and step.layer in mrf.evidence else None
                beliefs[i] = Parts(("unary", step.layer), field, tuple(("inflow", v) for v in step.messages))
            else:
                reverse = None if step.reverse is None else ("edges", step.reverse)
                table = ("table", step.hop.link)
                send = Send(table, step.hop.side, beliefs[step.belief], reverse, ("edges", i), ("inflow", i))
                old = {} if step.old is None else {"old_edges": ("edges", step.old), "old_inflow": ("inflow", step.old)}
                sends.append(send._replace(damping=damping, **old))
        made = {send.inflow[1] for send in sends}
        later = plan.outputs.union(*(step.needs for step in plan.steps[last:])) & {*made, *beliefs}
        outside = {key for v in later - made for key in beliefs[v].keys}  # beliefs are made of these again
        shown = {key[1] for key in outside if key[0] == "inflow"} & made
        self.links: dict[Key, Link] = {("table", i): link for i, link in enumerate(mrf.links)}
        sends = self._with_edges(sends, {("edges", v) for v in later & made})
        self.outputs: list[Key] = [("inflow", v) for v in sorted(later & made | shown)]
        self.outputs += [("edges", v) for v in sorted(later & made)]
        used = {key for send in sends for key in send.belief.keys}
        self.absorbed = _absorbed(mrf, used - outside) if at_once else {}
        self.links |= {("absorbed", layer): part.link for layer, part in self.absorbed.items()}
        self.sends = self._with_evidence(sends)
        self.links |= {send.edges: self.links[send.table] for send in self.sends}
        self.links |= {
            key: self.links[send.table] for send in self.sends for key in (send.reverse, send.old_edges) if key
        }
        used = {key for send in self.sends for key in send.operands}
        self.inputs = sorted(used - {key for send in self.sends for key in (send.edges, send.inflow)})
        self.inputs += sorted({send.table for send in self.sends})

    def _with_edges(self, sends: Sequence[Send], read: set[Key | None]) -> list[Send]:
        """Those whose edges are read, some of them later, keep theirs, and only these read those of an older one."""
        read |= {send.reverse for send in sends}
        read |= {send.edges for send in sends if self.several(send)}  # by backward
        found = []
        for send in reversed(sends):
            kept = send.edges in read
            found.append(send._replace(keep=kept, old_edges=send.old_edges if kept else None))
            read.add(found[-1].old_edges)
        return found[::-1]

    def several(self, send: Send) -> bool:
        """Whether its source has more than two labels."""
        kl, kr = self.links[send.table].table.shape[-2:]
        return (kl, kr)[send.side] > 1

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


def _absorbed(mrf: MRF, keys: set[Key]) -> dict[str, Absorbed]:
    """What the evidence among `keys` is made of, by layer, where it is deferred and a kernel can make it."""
    found = {}
    for kind, layer in sorted(keys):
        part = mrf.evidence.only(layer) if kind == "evidence" and isinstance(mrf.evidence, Deferred) else None
        if part is not None and by_kernel(part.link.layout, part.link.table, part.q):
            found[layer] = part
    return found
