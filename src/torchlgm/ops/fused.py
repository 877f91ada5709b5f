"""A program of messages run by kernels, as one differentiable function.

Beliefs are never stored: each message adds up the parts of its source's belief, a field and inflows, itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchlgm.layout import RIGHT
from torchlgm.ops.autograd import call
from torchlgm.ops.backward import Backward
from torchlgm.ops.launch import Launch, Wires, edges_in, edges_out, nodes_in, nodes_out, wires
from torchlgm.ops.program import NO_SLOT, CombineStep, Form, LinkSpec, MessageStep, Program, Step
from torchlgm.ops.send import send_max, send_sum
from torchlgm.ops.triton.streams import Streams, is_capturing


def run(program: Program, launch: Launch, specs: Sequence[LinkSpec], tensors: Sequence[Tensor]) -> list[Tensor]:
    """The outputs. `tensors` are the inputs; `specs` belong to the tables among them, in their order."""
    return call(FusedMessages(program, launch, specs), tensors)


class FusedMessages:
    """A `FusedFunction` that makes the messages of a program."""

    def __init__(self, program: Program, launch: Launch, specs: Sequence[LinkSpec]) -> None:
        self.program, self.launch = program, launch
        self.specs = dict(zip(program.tables, specs, strict=True))
        self.wires: dict[int, Wires] = {}
        self.widths: list[int] = []  # of slots
        self.batch = 1
        self.shapes: list[torch.Size] = []  # of inputs

    def eager(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        slots = dict(zip(self.program.inputs, tensors, strict=True))
        for step in self.program.steps:
            if isinstance(step, CombineStep):
                slots[step.output] = _combined(step, slots)
            else:
                self._send_eagerly(step, slots)
        return [slots[i] for i in self.program.outputs]

    def _send_eagerly(self, step: MessageStep, slots: dict[int, Tensor]) -> None:
        terms = [slots[i] if k else -slots[i] for k, i in enumerate(step.belief) if i != NO_SLOT]
        belief = sum(terms[1:], terms[0])
        reverse = None if step.reverse == NO_SLOT else slots[step.reverse]
        layout, scale, rho, mode, divide_by_rho = self.specs[step.table]
        if mode == "linear":
            slots[step.inflow] = scale * layout.linear(slots[step.table], belief, step.side)
            return
        t = layout.expand(slots[step.table] * scale)
        if rho is not None:
            rho = rho.unsqueeze(-1)
            t = t / rho.unsqueeze(-1) if divide_by_rho else t
        t = t.transpose(-1, -2) if step.side == RIGHT else t
        send = send_max if mode == "max" else send_sum
        edges, slots[step.inflow] = send(layout, step.side, t, rho, belief, reverse)
        if step.edges != NO_SLOT:
            slots[step.edges] = edges

    def forward(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor | None]]:
        program = self.program
        inputs = dict(zip(program.inputs, tensors, strict=True))
        self.shapes = [x.shape for x in tensors]
        self.wires = {i: wires(spec, inputs[i]) for i, spec in self.specs.items()}
        self.batch = max([x.shape[1] for i, x in inputs.items() if i not in self.wires])
        slots: list[Tensor | None] = [None] * (len(program.slots) + 1)
        self.widths = [1] * len(slots)
        for i, x in inputs.items():
            slots[i] = packed = self._packed(i, x)
            self.widths[i] = packed.shape[-1]
        streams = self.streams(tensors[0])
        for step in program.steps:
            if streams is None:
                self._make(step, slots)
                for i in step.unused:
                    slots[i] = None
            else:  # what a stream gives back it takes again at once, while others may still read it
                with streams.on(step.stream, step.makes, step.reads):
                    self._make(step, slots)
        if streams is not None:
            streams.join()
        return [self._unpacked(i, slots[i]) for i in program.outputs], [slots[i] for i in program.kept]

    def _make(self, step: Step, slots: list[Tensor | None]) -> None:
        width = max([self.widths[i] for i in step.reads])
        for i in step.makes:
            self.widths[i] = width
        if isinstance(step, CombineStep):
            slots[step.output] = _combined(step, slots)
            return
        wires, table = self.wires[step.table], slots[step.table]
        assert table is not None
        target, k, edges = wires.incidence.sides[1 - step.side], wires.labels[1 - step.side], wires.incidence.count
        if step.edges != NO_SLOT:
            make = table.new_empty if wires.incidence.complete else table.new_zeros
            slots[step.edges] = make(wires.models, edges, k, width)
        if step.norms != NO_SLOT:
            slots[step.norms] = table.new_empty(wires.models, edges, 1, width)
        slots[step.inflow] = table.new_empty(wires.models, target.nodes, k, width)
        self.launch.send(step, wires, slots, width)

    def backward(
        self, saved: Sequence[Tensor | None], wanted: Sequence[bool], grads: Sequence[Tensor | None]
    ) -> list[Tensor | None]:
        program = self.program
        slots: list[Tensor | None] = [None] * (len(program.slots) + 1)
        for i, x in zip(program.kept, saved, strict=True):
            slots[i] = x
        given = {i: self._packed(i, x) for i, x in zip(program.outputs, grads, strict=True) if x is not None}
        like = next(iter(given.values()))
        backward = Backward(program, self.launch, self.wires, self.widths, slots, wanted)
        gradients = backward.run(given, self.streams(like))
        return [self._gradient(*one) for one in zip(program.inputs, self.shapes, gradients, strict=True)]

    def streams(self, like: Tensor) -> Streams | None:
        """While a graph is captured: evidence is the first to start and its gradients are needed last, so it lets
        messages go first."""
        if not is_capturing(like):
            return None
        return Streams(like, [i for i, spec in self.specs.items() if spec.mode == "linear"])

    def _packed(self, slot: int, x: Tensor) -> Tensor:
        form, table = self.program.slots[slot]
        if form is Form.TABLE:
            return x.detach().flatten(1, -3).contiguous()
        if form is Form.EDGES:
            return edges_in(x, self.wires[table].incidence.shape, self.launch)
        return nodes_in(x, self.launch)

    def _unpacked(self, slot: int, x: Tensor | None) -> Tensor:
        assert x is not None
        form, table = self.program.slots[slot]
        batch = self.batch if x.shape[-1] > 1 else 1
        return edges_out(x, self.wires[table].incidence.shape, batch) if form is Form.EDGES else nodes_out(x, batch)

    def _gradient(self, slot: int, shape: torch.Size, grad: Tensor | None) -> Tensor | None:
        """The gradient of a table was made for each edge, to which the table broadcasts."""
        if grad is None:
            return None
        if slot in self.wires:
            return grad.unflatten(1, self.wires[slot].incidence.shape).sum_to_size(shape)
        return self._unpacked(slot, grad)


def _combined(step: CombineStep, slots: Sequence[Tensor | None] | dict[int, Tensor]) -> Tensor:
    terms = [x if weight == 1 else weight * x for i, weight in step.terms if (x := slots[i]) is not None]
    return sum(terms[1:], terms[0])
