"""What the steps of a plan have made so far: beliefs and messages by the number of the value."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from torch import Tensor

from torchlgm.inference.rules import Message


class Values(NamedTuple):
    beliefs: dict[int, Tensor]  # log-odds (1 or B, nodes, K-1)
    messages: dict[int, Message]

    def only(self, wanted: Collection[int]) -> Values:
        return Values(
            {v: x for v, x in self.beliefs.items() if v in wanted},
            {v: x for v, x in self.messages.items() if v in wanted},
        )

    def __or__(self, other: Values) -> Values:
        return Values(self.beliefs | other.beliefs, self.messages | other.messages)

    def flat(self) -> list[Tensor | None]:
        """All tensors; messages without edges have a None there."""
        return [*self.beliefs.values(), *(x for message in self.messages.values() for x in message)]

    def like(self, flat: Sequence[Tensor | None]) -> Values:
        """The same values with other tensors."""
        return unflattened(tuple(self.beliefs), tuple(self.messages), flat)


def unflattened(beliefs: Sequence[int], messages: Sequence[int], flat: Sequence[Tensor | None]) -> Values:
    """Values by their numbers from what `Values.flat` gave."""
    tensors = iter(flat)
    made_beliefs = {v: _given(next(tensors)) for v in beliefs}
    return Values(made_beliefs, {v: Message(next(tensors), _given(next(tensors))) for v in messages})


def _given(x: Tensor | None) -> Tensor:
    assert x is not None
    return x
