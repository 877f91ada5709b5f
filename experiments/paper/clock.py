"""Time: when to leave, and how much of the machine each training had."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

GRACE = 30.0  # seconds after the end that a training may take to finish its epoch


class Left(Exception):
    """A training was left before its end; its state after the last epoch is kept."""


class Watch:
    """A reporter that leaves a training when time is up: after an epoch, or at once if asked to or if it is late."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def look(self) -> None:
        if self.clock.stopped or self.clock.late:
            raise Left

    def step(self, epoch: int, epochs: int, done: int, samples: int) -> None:
        self.look()

    def epoch(self, row: Mapping[str, Any]) -> None:
        if self.clock.stopped or self.clock.over:
            raise Left

    def close(self) -> None: ...


@dataclass
class Clock:
    """The time that is left, and how it is shared by the trainings under way."""

    minutes: float | None
    began: float = field(default_factory=time.monotonic)
    stopped: bool = False
    shares: dict[int, float] = field(default_factory=dict)
    looked: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def spent(self) -> float:
        return time.monotonic() - self.began

    @property
    def over(self) -> bool:
        return self.minutes is not None and self.spent > 60 * self.minutes

    @property
    def late(self) -> bool:
        return self.minutes is not None and self.spent > 60 * self.minutes + GRACE

    def enter(self, number: int) -> None:
        with self.lock:
            self._share()
            self.shares[number] = 0.0

    def leave(self, number: int) -> float:
        """The seconds that are a training's own: those under way at the same time share them alike."""
        with self.lock:
            self._share()
            return self.shares.pop(number, 0.0)

    def _share(self) -> None:
        now = time.monotonic()
        for number in self.shares:
            self.shares[number] += (now - self.looked) / len(self.shares)
        self.looked = now
