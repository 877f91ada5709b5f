"""What can be made at the same time while a graph is captured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import Tensor


class Streams:
    """While a graph is captured: further streams, for what can be computed concurrently.

    A stream waits for what it reads and another has made. Stream None is the current one. `patient` streams let the
    others go first.
    """

    def __init__(self, like: Tensor, patient: Iterable[Hashable] = ()) -> None:
        self.patient = set(patient)
        current = torch.cuda.current_stream(like.device)
        self.streams: dict[Hashable, torch.cuda.Stream] = {None: current}
        self.begin = current.record_event()
        self.writers: dict[int, dict[Hashable, tuple[int, torch.cuda.Event]]] = defaultdict(dict)
        self.count = 0
        self.waited: dict[tuple[Hashable, Hashable], int] = {}  # what of another stream a stream has waited for

    @contextmanager
    def on(self, name: Hashable, makes: Iterable[int], reads: Iterable[int]) -> Iterator[None]:
        """Where to make, or to add to, the slots that it `makes` from those that it `reads`."""
        stream = self._stream(name)
        for other, (number, event) in chain.from_iterable(self.writers[slot].items() for slot in reads):
            if other != name and number > self.waited.get((name, other), 0):
                stream.wait_event(event)
                self.waited[name, other] = number
        with torch.cuda.stream(stream):
            yield
        self.count += 1
        event = torch.cuda.Event()
        stream.record_event(event)
        for slot in makes:
            self.writers[slot][name] = self.count, event

    def _stream(self, name: Hashable) -> torch.cuda.Stream:
        if name not in self.streams:
            priority = -1 if name in self.patient else -2  # not 0, as the streams of other trainings have
            self.streams[name] = torch.cuda.Stream(self.streams[None].device, priority=priority)
            self.streams[name].wait_event(self.begin)
        return self.streams[name]

    def join(self) -> None:
        current, *others = self.streams.values()
        for stream in others:
            current.wait_stream(stream)


def is_capturing(like: Tensor) -> bool:
    """Whether a graph is captured on the device of `like`."""
    return like.is_cuda and torch.cuda.is_current_stream_capturing()
