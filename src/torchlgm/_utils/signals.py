"""Signals that ask a process to end: what is under way is cleaned up or saved first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], None]

# of the operator or a scheduler of jobs, and of a terminal that was closed
ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Terminated(SystemExit):
    """The process was asked to end by a signal; its exit status will be 128 plus the number of that."""

    def __init__(self, number: int, what: str = "") -> None:
        super().__init__(128 + number)
        self.number = number
        self.what = what or f"stopped by {signal.Signals(number).name}"

    def __str__(self) -> str:
        return self.what


@contextmanager
def handled(numbers: tuple[int, ...], handler: Handler) -> Iterator[None]:
    """Call `handler` on these signals, but for those that are ignored, as by nohup. Only in the main thread."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {n: old for n in numbers if (old := signal.getsignal(n)) not in (signal.SIG_IGN, None)}
    for number in before:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def end(number: int, frame: FrameType | None) -> None:
    """A handler that lets what is under way clean up."""
    raise Terminated(number)
