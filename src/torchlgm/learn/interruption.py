"""Ctrl-C while a model is trained."""

from __future__ import annotations

import signal
import threading


class Interruption:
    """Turns Ctrl-C into a request that is met between two steps; a second one stops at once."""

    def __enter__(self) -> Interruption:
        self.asked = False
        self.mine = threading.current_thread() is threading.main_thread()
        if self.mine:
            self.old = signal.signal(signal.SIGINT, self._ask)
        return self

    def _ask(self, number: int, frame: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    def __exit__(self, *error: object) -> None:
        if self.mine:
            signal.signal(signal.SIGINT, self.old)
