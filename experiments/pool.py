"""Several trainings at once, within a budget of time."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from torchlgm.learn.cuda.streams import before_threads, take_stream

STREAMS = 32  # PyTorch has no more on a GPU
GRACE = 30.0  # seconds after the end that a training may take to finish its epoch

T = TypeVar("T")


class TimeUp(Exception):
    """A training ended early because time was up; its state after the last epoch is kept."""


@dataclass
class Budget:
    """The minutes that are left."""

    minutes: float | None = None
    began: float = field(default_factory=time.monotonic)
    stopped: bool = False

    @property
    def spent(self) -> float:
        return time.monotonic() - self.began

    @property
    def over(self) -> bool:
        return self.stopped or (self.minutes is not None and self.spent > 60 * self.minutes)

    @property
    def late(self) -> bool:
        return self.stopped or (self.minutes is not None and self.spent > 60 * self.minutes + GRACE)


class Watch:
    """A reporter that ends a training when time is up: after an epoch, or at once if it is late or stopped."""

    def __init__(self, budget: Budget, after_epoch: Callable[[Mapping[str, Any]], None] = lambda _: None) -> None:
        self.budget, self.after_epoch = budget, after_epoch

    def check(self) -> None:
        if self.budget.late:
            raise TimeUp

    def step(self, epoch: int, epochs: int, done: int, samples: int) -> None:
        self.check()

    def epoch(self, row: Mapping[str, Any]) -> None:
        self.after_epoch(row)
        if self.budget.over:
            raise TimeUp

    def close(self) -> None: ...


def run_all(work: Callable[[T], None], items: Sequence[T], workers: int, device: torch.device, budget: Budget) -> None:
    """`work` on each item until time is up, in threads if workers are several; the first error ends all of them.

    On a GPU each thread has a stream of its own, which captured steps need.
    """

    def work_in_time(item: T) -> None:
        try:
            if not budget.over:
                work(item)
        except BaseException:
            budget.stopped = True
            raise

    if min(workers, len(items)) <= 1:
        for item in items:
            work_in_time(item)
        return
    before_threads(device)
    with ThreadPoolExecutor(workers, initializer=take_stream, initargs=(device,)) as pool:
        futures = [pool.submit(copy_context().run, work_in_time, item) for item in items]
        try:
            for future in as_completed(futures):
                future.result()
        except KeyboardInterrupt:
            budget.stopped = True
            raise
