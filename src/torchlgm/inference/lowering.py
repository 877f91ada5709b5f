"""From a plan to a program for kernels: which tensors each message reads and makes, and how long these are needed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Literal, NamedTuple

from torchlgm.inference.plan import MakeBelief, MakeMessage, Plan
from torchlgm.inference.schedule import Hop
from torchlgm.ops.program import NO_SLOT, CombineStep, Form, MessageStep, Program, Slot, Step, without_unused


class Role(Enum):
    """What a tensor is. All but the last four come from outside, or can."""

    UNARY = auto()  # the energies of a layer
    EVIDENCE = auto()  # the field of a layer
    OBSERVED = auto()  # what is known about the layer that makes the evidence of a layer
    EVIDENCE_TABLE = auto()  # the table that makes the evidence of a layer
    TABLE = auto()  # of a link
    BELIEF = auto()  # a value of the plan
    INFLOW = auto()  # of a message, a value of the plan
    EDGES = auto()
    SENT_INFLOW = auto()  # before damping
    SENT_EDGES = auto()
    NORMS = auto()  # of the edges, for gradients
    SUM = auto()  # of the inflows of a belief but the first


class Operand(NamedTuple):
    """A tensor by what it stands for: of a layer, or of a link or value by its number."""

    role: Role
    layer: str = ""
    number: int = -1


class Traits(NamedTuple):
    """What a program depends on besides the plan."""

    labels: tuple[tuple[int, int], ...]  # of both ends of each link, less one
    evidence: tuple[str, ...]  # the layers that have some
    evidence_sides: tuple[tuple[str, int], ...]  # those whose evidence is a message of the program, out of this side
    damping: float
    mode: Literal["sum", "max"]
    gradients: bool  # so that messages are kept for them
    look_back: bool  # so that edges and norms are, too, where the source has several labels


class Outputs(NamedTuple):
    """Where a message stands among the outputs of a program."""

    value: int
    inflow: int
    edges: int | None


@dataclass(frozen=True, eq=False)
class Lowered:
    """The messages that some steps of a plan make, as a program.

    `inputs` belong to the inputs of the program. `beliefs` are the values that steps make from these messages, and
    that are needed later, as are all `needed` ones.
    """

    program: Program
    inputs: tuple[Operand, ...]
    outputs: tuple[Outputs, ...]
    beliefs: tuple[int, ...]
    needed: frozenset[int]


@lru_cache(maxsize=256)
def lower(plan: Plan, first: int, last: int, traits: Traits) -> Lowered:
    """Steps `first .. last-1` of a plan."""
    return _Lowering(plan, first, last, traits).lowered()


@lru_cache(maxsize=256)
def inner_evidence(plan: Plan) -> tuple[str, ...]:
    """The layers whose evidence is read by messages alone, if all steps are run at once."""
    read: dict[int, str] = {}
    for value, step in enumerate(plan.steps, len(plan.inputs)):
        if isinstance(step, MakeBelief) and step.evidence:
            read[value] = step.layer
    outside = {read[value] for value in plan.outputs if value in read}
    inside = {read[step.belief] for step in plan.steps if isinstance(step, MakeMessage) and step.belief in read}
    return tuple(sorted(inside - outside))


class _Lowering:
    """Numbers the operands of a range of steps and writes down what each message reads and makes."""

    def __init__(self, plan: Plan, first: int, last: int, traits: Traits) -> None:
        self.traits = traits
        self.needed = plan.needed_from(last)
        self.numbers: dict[Operand, int] = {}
        self.forms: list[Slot] = []
        self.outputs_of_steps: set[int] = set()
        self.steps: list[Step] = []
        self.evidence_sides = dict(traits.evidence_sides)
        self.plan = plan
        offset = len(plan.inputs)
        range_steps = dict(enumerate(plan.steps[first:last], offset + first))
        self.messages = {v: step for v, step in range_steps.items() if isinstance(step, MakeMessage)}
        self.layers = {v: step for v, step in range_steps.items() if isinstance(step, MakeBelief)}
        self.read_edges = self._read_edges()
        self.stream_of_last = next((self._table(s.hop) for s in reversed(self.messages.values())), NO_SLOT)
        self.beliefs: dict[int, tuple[int, int, int, int]] = {}
        self.sums: dict[tuple[int, ...], int] = {}
        for value, step in self.messages.items():
            self._lower_message(value, step)

    def _read_edges(self) -> set[int]:
        """The messages whose edges are read, now or later; only they read those of the one that damps them."""
        read: set[int | None] = {*(self.needed & self.messages.keys())}
        read |= {step.reverse for step in self.messages.values()}
        for value, step in reversed(self.messages.items()):
            if value in read:
                read.add(step.old)
        return {value for value in read if value is not None}

    def lowered(self) -> Lowered:
        beliefs = tuple(sorted(self.needed & self.layers.keys()))
        shown = {v for b in beliefs for v in self.layers[b].messages if v in self.messages}
        values = sorted((self.needed & self.messages.keys()) | shown)
        slots, outputs = [], []
        for value in values:
            edges = value in self.needed
            outputs.append(Outputs(value, len(slots), len(slots) + 1 if edges else None))
            slots.append(self._slot(Role.INFLOW, number=value))
            slots += [self._edges(Role.EDGES, value)] if edges else []
        inputs = {operand: slot for operand, slot in self.numbers.items() if slot not in self.outputs_of_steps}
        program = Program(tuple(self.forms), tuple(inputs.values()), tuple(self.steps), tuple(slots))
        kept = {*program.kept} if self.traits.gradients else set()
        steps = without_unused(self.steps, {*slots}, kept)
        program = Program(program.slots, program.inputs, steps, program.outputs)
        return Lowered(program, tuple(inputs), tuple(outputs), beliefs, frozenset(self.needed))

    def _lower_message(self, value: int, step: MakeMessage) -> None:
        table, side = self._table(step.hop), step.hop.side
        stream = None if table == self.stream_of_last else table
        belief = self._belief(step.belief, stream)
        reverse = NO_SLOT if step.reverse is None else self._edges(Role.EDGES, step.reverse)
        keeps, damping = value in self.read_edges, self.traits.damping
        look_back = self.traits.look_back and self.traits.labels[step.hop.link][side] > 1
        inflow = self._slot(Role.SENT_INFLOW if damping else Role.INFLOW, number=value)
        edges = norms = NO_SLOT
        if keeps or look_back:
            edges = self._edges(Role.SENT_EDGES if damping else Role.EDGES, value)
        if look_back and self.traits.mode == "sum":
            norms = self._edges(Role.NORMS, value)
        self._add(MessageStep(table, side, belief, reverse, inflow, edges, norms, look_back, stream))
        if damping:
            self._damp(inflow, self._slot(Role.INFLOW, number=value), step.old, Role.INFLOW, stream)
            if keeps:
                self._damp(edges, self._edges(Role.EDGES, value), step.old, Role.EDGES, stream)

    def _damp(self, sent: int, output: int, old: int | None, role: Role, stream: int | None) -> None:
        terms = [(sent, 1 - self.traits.damping)]
        if old is not None:
            slot = self._slot(role, number=old) if role is Role.INFLOW else self._edges(role, old)
            terms.append((slot, self.traits.damping))
        self._add(CombineStep(tuple(terms), output, stream))

    def _belief(self, value: int, stream: int | None) -> tuple[int, int, int, int]:
        """The parts of a belief: of more than two inflows, all but the first are added up."""
        if value not in self.layers:  # from outside
            return NO_SLOT, self._slot(Role.BELIEF, number=value), NO_SLOT, NO_SLOT
        step = self.layers[value]
        field = self._evidence(step.layer) if step.evidence and step.layer in self.traits.evidence else NO_SLOT
        if value not in self.beliefs:
            inflows = [self._slot(Role.INFLOW, number=v) for v in step.messages]
            if len(inflows) > 2:
                inflows[1:] = [self._sum(tuple(inflows[1:]), stream)]
            first, second = (*inflows, NO_SLOT, NO_SLOT)[:2]
            self.beliefs[value] = self._slot(Role.UNARY, step.layer), field, first, second
        return self.beliefs[value]

    def _sum(self, inflows: tuple[int, ...], stream: int | None) -> int:
        if inflows not in self.sums:
            self.sums[inflows] = self._slot(Role.SUM, number=len(self.sums))
            self._add(CombineStep(tuple((i, 1.0) for i in inflows), self.sums[inflows], stream))
        return self.sums[inflows]

    def _evidence(self, layer: str) -> int:
        """The field of a layer, made right before it is first read, so that what does not need it comes first."""
        operand = Operand(Role.EVIDENCE, layer)
        if layer in self.evidence_sides and operand not in self.numbers:
            observed, table = self._slot(Role.OBSERVED, layer), self._slot(Role.EVIDENCE_TABLE, layer, form=Form.TABLE)
            side, inflow = self.evidence_sides[layer], self._slot(Role.EVIDENCE, layer)
            belief = NO_SLOT, observed, NO_SLOT, NO_SLOT
            self._add(MessageStep(table, side, belief, NO_SLOT, inflow, stream=table))
        return self._slot(Role.EVIDENCE, layer)

    def _table(self, hop: Hop) -> int:
        return self._slot(Role.TABLE, number=hop.link, form=Form.TABLE)

    def _edges(self, role: Role, value: int) -> int:
        table = self._table(self.plan.hop(value))
        return self._slot(role, number=value, form=Form.EDGES, table=table)

    def _slot(
        self, role: Role, layer: str = "", number: int = -1, form: Form = Form.NODES, table: int = NO_SLOT
    ) -> int:
        operand = Operand(role, layer, number)
        if operand not in self.numbers:
            self.numbers[operand] = len(self.forms)
            self.forms.append(Slot(form, table))
        return self.numbers[operand]

    def _add(self, step: Step) -> None:
        self.steps.append(step)
        self.outputs_of_steps.update(step.makes)
        if isinstance(step, MessageStep):
            self.outputs_of_steps.add(step.norms)
