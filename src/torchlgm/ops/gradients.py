"""Sums of gradients while they are being made, in the kernels' form."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from torch import Tensor

from torchlgm.ops.launch import Launch, Sink, added_up


class Gradients:
    """Sums of gradients by slot, added to by one kernel after another of the same stream."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self._terms: dict[int, dict[tuple[int | None, int], Tensor]] = defaultdict(dict)  # by stream and parts
        self._kept: list[Tensor] = []

    def sink(
        self,
        slot: int,
        like: Tensor,
        shape: Sequence[int],
        parts: int,
        complete: bool = True,
        stream: int | None = None,
    ) -> Sink:
        """For a gradient of this shape in so many parts, written by a kernel; all of it, if it is `complete`."""
        terms = self._terms[slot]
        if (stream, parts) in terms:
            return Sink(terms[stream, parts], True)
        if parts == 1:  # added to the first part of several
            for (owner, count), more in terms.items():
                if owner == stream and count > 1:
                    return Sink(more[:1], True)
        make = like.new_empty if complete else like.new_zeros
        terms[stream, parts] = make(parts, *shape)
        return Sink(terms[stream, parts], not complete)

    def add(self, slot: int, grad: Tensor, stream: int | None = None) -> None:
        """A gradient that belongs to somebody else: kernels do not add to it."""
        terms = self._terms[slot]
        terms[stream, 0] = grad.unsqueeze(0) if (stream, 0) not in terms else terms[stream, 0] + grad

    def has(self, slot: int) -> bool:
        return bool(self._terms.get(slot))

    def pop(self, slot: int, stream: int | None = None, most: int = 2) -> list[Tensor]:
        """At most so many tensors, in parts, that add up to the gradient.

        Memory of other streams is not given back before they are joined: they would take it again at once.
        """
        if slot not in self._terms:
            return []
        popped = self._terms.pop(slot)
        self._kept += [x for (owner, _), x in popped.items() if owner != stream]
        terms = list(popped.values())
        return terms if len(terms) <= most else [*terms[: most - 1], added_up(terms[most - 1 :]).unsqueeze(0)]

    def pop_all(self, slots: Sequence[int]) -> list[Tensor | None]:
        """Gradients shaped like what they belong to; all that are in parts are added up at once."""
        terms = [self.pop(slot) for slot in slots]
        in_parts = [len(of_slot) > 1 or max(map(len, of_slot), default=0) > 1 for of_slot in terms]
        sums = iter(self.launch.add_up([of_slot for of_slot, several in zip(terms, in_parts, strict=True) if several]))
        return [
            next(sums) if several else of_slot[0].squeeze(0) if of_slot else None
            for of_slot, several in zip(terms, in_parts, strict=True)
        ]
