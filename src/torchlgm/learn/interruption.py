"""Ctrl-C, and signals that end a process, while a model is trained."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from types import FrameType

from torchlgm._utils.signals import ENDING, Terminated, handled


class Interruption:
    """Turns a signal into a request that is met between two steps; a second one stops at once."""

    def __enter__(self) -> Interruption:
        self.asked = False
        self.number = int(signal.SIGINT)
        self.stack = ExitStack()
        self.stack.enter_context(handled((signal.SIGINT, *ENDING), self._ask))
        return self

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt if number == signal.SIGINT else Terminated(number)
        self.asked, self.number = True, number

    def stop(self, what: str) -> BaseException:
        """What to raise when the request is met."""
        return KeyboardInterrupt(what) if self.number == signal.SIGINT else Terminated(self.number, what)

    def __exit__(self, *error: object) -> None:
        self.stack.close()
