"""Messages as a program for kernels: pure data. Every tensor has a slot, and each step names those it reads and makes.

What a program computes with is given later: a tensor for each input, a `LinkSpec` for each table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from torch import Tensor

from torchlgm.layout import Layout

NO_SLOT = -1  # where a step may read or make a tensor but does not: lists of slots end with a None


class Form(Enum):
    NODES = "nodes"  # (models, batch or 1, nodes, k)
    EDGES = "edges"  # (models, batch or 1, *edge, k)
    TABLE = "table"  # (models, *edge or what broadcasts to it, kl, kr)


class Slot(NamedTuple):
    form: Form
    table: int = NO_SLOT  # of the link whose edges these are


@dataclass(frozen=True)
class MessageStep:
    """A message out of the side `side` of a link, and its sum at the nodes of the other side."""

    table: int
    side: int
    belief: tuple[int, int, int, int]  # of the source: minus the first, a unary, plus a field and two inflows
    reverse: int  # the edges of the message that came back
    inflow: int  # made
    edges: int = NO_SLOT  # made if anyone reads them
    norms: int = NO_SLOT  # made for the gradient: for each edge the log of the sum over the labels of its source
    look_back: bool = False  # the gradient reads `edges` and `norms`
    stream: int | None = None  # for steps that may run concurrently in a captured graph; None for the current stream
    unused: tuple[int, ...] = ()  # slots that nothing reads afterwards

    @cached_property
    def reads(self) -> tuple[int, ...]:
        return tuple([i for i in (*self.belief, self.reverse) if i != NO_SLOT])

    @cached_property
    def makes(self) -> tuple[int, ...]:
        return (self.inflow,) if self.edges == NO_SLOT else (self.inflow, self.edges)


@dataclass(frozen=True)
class CombineStep:
    """A weighted sum of nodes or of edges: of inflows, or of a message and the one that damps it."""

    terms: tuple[tuple[int, float], ...]  # slots and weights
    output: int
    stream: int | None = None
    unused: tuple[int, ...] = ()

    @cached_property
    def reads(self) -> tuple[int, ...]:
        return tuple(slot for slot, _ in self.terms)

    @cached_property
    def makes(self) -> tuple[int, ...]:
        return (self.output,)


Step = MessageStep | CombineStep


@dataclass(frozen=True, eq=False)
class Program:
    slots: tuple[Slot, ...]
    inputs: tuple[int, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]

    @cached_property
    def tables(self) -> tuple[int, ...]:
        return tuple(i for i in self.inputs if self.slots[i].form is Form.TABLE)

    @cached_property
    def kept(self) -> tuple[int, ...]:
        """The slots that gradients read."""
        kept = {*self.tables}
        for step in self.steps:
            if isinstance(step, MessageStep):
                kept |= {*step.reads, *((step.edges, step.norms) if step.look_back else ())}
        return tuple(sorted(kept - {NO_SLOT}))


def without_unused(steps: list[Step], outputs: set[int], kept: set[int]) -> tuple[Step, ...]:
    """The same steps, which drop what is neither read later nor among the `outputs` nor `kept`."""
    seen, result = {*outputs, *kept, NO_SLOT}, []
    for step in reversed(steps):
        touched = {*step.reads, *step.makes}
        result.append(replace(step, unused=tuple(sorted(touched - seen))))
        seen |= touched
    return tuple(reversed(result))


class LinkSpec(NamedTuple):
    """How messages over one link are made: they take its table times `scale`, and over rho if they `divide_by_rho`."""

    layout: Layout
    scale: float
    rho: Tensor | None = None  # None: 1
    mode: str = "linear"  # or "sum", "max"
    divide_by_rho: bool = True
