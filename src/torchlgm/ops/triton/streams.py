"""What can be made at the same time while a graph is captured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor


class Lanes:
    """While a graph is captured: streams beside the current one, for what can be made at the same time.

    A lane waits for what it reads and another has made. Lane None is the current stream; elsewhere all of them are.
    `patient` lanes let the others go first.
    """

    def __init__(self, like: Tensor, patient: Iterable[Hashable] = ()) -> None:
        self.patient = set(patient)
        self.capturing = like.is_cuda and torch.cuda.is_current_stream_capturing()
        if self.capturing:
            main = torch.cuda.current_stream(like.device)
            self.streams: dict[Hashable, torch.cuda.Stream] = {None: main}
            self.begin = main.record_event()
        self.made: dict[Any, dict[Hashable, tuple[int, Any]]] = defaultdict(dict)
        self.count = 0
        self.known: dict[tuple[Hashable, Hashable], int] = {}  # what of another lane a lane has waited for

    @contextmanager
    def at(self, lane: Hashable, makes: Iterable[Any], reads: Iterable[Any]) -> Iterator[None]:
        """Where to make, or to add to, what is known as `makes` from what is known as `reads`."""
        if not self.capturing:
            yield
            return
        here = self._stream(lane)
        for other, (number, event) in chain.from_iterable(self.made[key].items() for key in reads):
            if other != lane and number > self.known.get((lane, other), 0):
                here.wait_event(event)
                self.known[lane, other] = number
        with torch.cuda.stream(here):
            yield
        self.count += 1
        event = here.record_event()
        for key in makes:
            self.made[key][lane] = self.count, event

    def _stream(self, lane: Hashable) -> torch.cuda.Stream:
        if lane not in self.streams:
            priority = -1 if lane in self.patient else -2  # not 0, as the streams of other trainings have
            self.streams[lane] = torch.cuda.Stream(self.streams[None].device, priority=priority)
            self.streams[lane].wait_event(self.begin)
        return self.streams[lane]

    def join(self) -> None:
        if self.capturing:
            main, *others = self.streams.values()
            for stream in others:
                main.wait_stream(stream)
