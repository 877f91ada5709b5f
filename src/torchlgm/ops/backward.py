"""The gradients of a program of messages: its steps in reverse, each by a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from torchlgm.ops.gradients import Gradients
from torchlgm.ops.launch import Launch, Sink, Sinks, Slots, Wires, added_up, narrowed
from torchlgm.ops.program import NO_SLOT, CombineStep, MessageStep, Program
from torchlgm.ops.triton.streams import Streams


class Backward:
    """One pass over a program. `wires` are those of its tables, `widths` and `slots` those of the forward pass."""

    def __init__(
        self,
        program: Program,
        launch: Launch,
        wires: Mapping[int, Wires],
        widths: Sequence[int],
        slots: Slots,
        wanted: Sequence[bool],
    ) -> None:
        self.program, self.launch = program, launch
        self.wires, self.widths, self.slots = wires, widths, slots
        self.gradients = Gradients(launch)
        self.wanted = [False] * len(slots)  # by slot: whether anyone wants its gradient
        for i, want in zip(program.inputs, wanted, strict=True):
            self.wanted[i] = want
        for step in program.steps:
            read = step.reads if isinstance(step, CombineStep) else (*step.reads, step.table)
            want = any(map(self.wanted.__getitem__, read))
            for i in step.makes:
                self.wanted[i] = want

    def run(self, grads: Mapping[int, Tensor], streams: Streams | None) -> list[Tensor | None]:
        """From the gradients of outputs, by slot, to those of all inputs."""
        for i, grad in grads.items():
            self.gradients.add(i, grad)
        for step in reversed(self.program.steps):
            if not any(map(self.gradients.has, step.makes)):
                continue
            if streams is None:
                self._through(step, self._table_sink(step))
                continue
            with streams.on(step.stream, (), ()):  # zeros that wait for no gradient
                table = self._table_sink(step)
            with streams.on(step.stream, step.reads, step.makes):
                self._through(step, table)
        if streams is not None:
            streams.join()
        return self.gradients.pop_all(self.program.inputs)

    def _through(self, step: MessageStep | CombineStep, table: Sink | None) -> None:
        """From the gradients of what a step made to those of what it read."""
        if isinstance(step, CombineStep):
            self._through_sum(step)
            return
        gradients, stream, width = self.gradients, step.stream, self.widths[step.inflow]
        inflow_grads = gradients.pop(step.inflow, stream)
        edges_grad = None if step.edges == NO_SLOT else next(iter(gradients.pop(step.edges, stream, 1)), None)
        parts = self.launch.blocks(width)
        sinks = [
            self._sink(i, 1 if self.widths[i] == width else parts, stream) if self.wanted[i] else None
            for i in (*step.belief, step.reverse)
        ]
        *belief, reverse = sinks
        self.launch.send_backward(
            step, self.wires[step.table], self.slots, width, inflow_grads, edges_grad, Sinks(belief, reverse, table)
        )

    def _through_sum(self, step: CombineStep) -> None:
        total = added_up(self.gradients.pop(step.output, step.stream))
        for i, weight in step.terms:
            if self.wanted[i]:
                share = total if weight == 1 else weight * total
                self.gradients.add(i, narrowed(share, self.widths[i]), step.stream)

    def _sink(self, slot: int, parts: int, stream: int | None) -> Sink:
        like, table = self.slots[slot], self.program.slots[slot].table
        assert like is not None
        complete = table == NO_SLOT or self.wires[table].incidence.complete
        return self.gradients.sink(slot, like, like.shape, parts, complete, stream)

    def _table_sink(self, step: MessageStep | CombineStep) -> Sink | None:
        """For the gradient of a table, written for each edge."""
        if isinstance(step, CombineStep) or not self.wanted[step.table]:
            return None
        wires, like, parts = (
            self.wires[step.table],
            self.slots[step.table],
            self.launch.blocks(self.widths[step.inflow]),
        )
        assert like is not None
        shape = wires.models, wires.incidence.count, *wires.labels
        return self.gradients.sink(step.table, like, shape, parts, wires.incidence.complete, step.stream)
