"""A schedule unrolled for T iterations, with everything that cannot reach the answer removed.

A plan is a straight program: each step makes one new value, a belief or a message, from earlier ones. Equal steps are
made once, steps that nothing wanted depends on are dropped. What evidence has not reached yet is the same for every
sample; it needs no step of its own, since such values simply keep a batch axis of 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torchlgm.errors import InferenceError
from torchlgm.inference.schedule import Event, Hop, Update, Wiring


class MakeBelief(NamedTuple):
    layer: str
    evidence: bool
    messages: tuple[int, ...]

    @property
    def needs(self) -> tuple[int, ...]:
        return self.messages


class MakeMessage(NamedTuple):
    hop: Hop
    belief: int
    reverse: int | None  # None: still 0
    old: int | None  # for damping

    @property
    def needs(self) -> tuple[int, ...]:
        return tuple(v for v in (self.belief, self.reverse, self.old) if v is not None)


class JoinMessages(NamedTuple):
    """The message `new` at the target's nodes of one colour, `old` at all others."""

    hop: Hop
    new: int
    old: int | None  # None: still 0
    colour: int

    @property
    def needs(self) -> tuple[int, ...]:
        return (self.new,) if self.old is None else (self.new, self.old)


Step = MakeBelief | MakeMessage | JoinMessages


@dataclass(eq=False)
class Plan:
    """`steps[i]` makes value `len(inputs) + i`; values `0 .. len(inputs)-1` are the messages given at the start."""

    inputs: tuple[Hop, ...]
    steps: tuple[Step, ...]
    beliefs: dict[str, int]
    messages: dict[Hop, int]
    before: dict[Hop, int]  # messages one iteration earlier, where kept

    outputs: frozenset[int] = field(init=False)
    last_uses: tuple[tuple[int, ...], ...] = field(init=False)  # for each step, what nothing needs once it is done

    def __post_init__(self) -> None:
        self.outputs = frozenset({*self.beliefs.values(), *self.messages.values(), *self.before.values()})
        seen, dropped = {*self.outputs}, []
        for step in reversed(self.steps):
            dropped.append(tuple(v for v in set(step.needs) if v not in seen))
            seen.update(step.needs)
        self.last_uses = tuple(dropped[::-1])

    def needed_from(self, step: int) -> frozenset[int]:
        """The values that this step, or a later one, or the answer needs."""
        return self.outputs.union(*(later.needs for later in self.steps[step:]))

    def hop(self, value: int) -> Hop:
        """Over which a message is sent."""
        step = self.steps[value - len(self.inputs)] if value >= len(self.inputs) else None
        if step is None:
            return self.inputs[value]
        assert not isinstance(step, MakeBelief)
        return step.hop


def build(
    wiring: Wiring,
    iterations: Sequence[Iterable[Event]],
    want: Iterable[str] = (),
    keep: bool = False,
    uses_reverse: bool = True,
    damped: bool = False,
    given: Iterable[Hop] = (),
    prune: bool = True,
) -> Plan:
    """The plan that runs `iterations`, lists of events, and then makes the beliefs of the layers in `want`.

    `keep` keeps the final messages and those of one iteration earlier. `uses_reverse` is whether a message depends on
    the one in the other direction, `damped` whether it depends on the one it replaces. The messages over `given` hops
    exist from the start, all others start at 0. `prune=False` keeps every step as the schedule has it.
    """
    program = _Program(wiring, uses_reverse, damped, tuple(given), share=prune)
    before: dict[Hop, int] = {}
    for events in iterations:
        before = dict(program.message)
        for event in events:
            program.run(event)
    want = tuple(want)
    for layer in want:
        program.run(Update(layer))
    beliefs = {layer: program.belief[layer] for layer in want}
    messages = dict(program.message) if keep else {}
    plan = Plan(program.inputs, tuple(program.steps), beliefs, messages, before if keep else {})
    return _pruned(plan) if prune else plan


class _Program:
    """Runs events on slots, one for each belief and message, and writes down the step behind each new value."""

    def __init__(self, wiring: Wiring, uses_reverse: bool, damped: bool, given: tuple[Hop, ...], share: bool) -> None:
        self.wiring = wiring
        self.uses_reverse = uses_reverse
        self.damped = damped
        self.share = share
        self.inputs = given
        self.message: dict[Hop, int] = {hop: i for i, hop in enumerate(self.inputs)}
        self.belief: dict[str, int] = {}
        self.steps: list[Step] = []
        self._known: dict[Step, int] = {}
        for layer in wiring.layers if given else ():
            self.run(Update(layer))

    def run(self, event: Event) -> None:
        if isinstance(event, Update):
            messages = [self.message[h] for h in self.wiring.into(event.layer) if h in self.message]
            self.belief[event.layer] = self._value(MakeBelief(event.layer, event.evidence, tuple(messages)))
            return
        if event.colour is not None and self.uses_reverse:
            raise InferenceError(
                f"the schedule has {event!r}, but messages that are kept on edges are sent to all nodes of a layer; "
                "leave out the colour"
            )
        new = {hop: self._value(self._send(hop)) for hop in event.hops}
        if event.colour is not None:
            new = {h: self._value(JoinMessages(h, v, self.message.get(h), event.colour)) for h, v in new.items()}
        self.message.update(new)

    def _send(self, hop: Hop) -> MakeMessage:
        reverse = self.message.get(hop.back) if self.uses_reverse else None
        old = self.message.get(hop) if self.damped else None
        return MakeMessage(hop, self.belief[hop.source], reverse, old)

    def _value(self, step: Step) -> int:
        if self.share and step in self._known:
            return self._known[step]
        self.steps.append(step)
        value = len(self.inputs) + len(self.steps) - 1
        self._known[step] = value
        return value


def _pruned(plan: Plan) -> Plan:
    first = len(plan.inputs)
    alive = {*plan.outputs}
    for i in range(len(plan.steps) - 1, -1, -1):
        if first + i in alive:
            alive.update(plan.steps[i].needs)
    number = {v: v for v in range(first)}
    steps: list[Step] = []
    for i, step in enumerate(plan.steps):
        if first + i in alive:
            number[first + i] = first + len(steps)
            steps.append(_renumbered(step, number))

    def rename(values: dict) -> dict:
        return {key: number[v] for key, v in values.items()}

    return Plan(plan.inputs, tuple(steps), rename(plan.beliefs), rename(plan.messages), rename(plan.before))


def _renumbered(step: Step, number: dict[int, int]) -> Step:
    if isinstance(step, MakeBelief):
        return step._replace(messages=tuple(number[v] for v in step.messages))
    old = None if step.old is None else number[step.old]
    if isinstance(step, JoinMessages):
        return step._replace(new=number[step.new], old=old)
    reverse = None if step.reverse is None else number[step.reverse]
    return step._replace(belief=number[step.belief], reverse=reverse, old=old)
