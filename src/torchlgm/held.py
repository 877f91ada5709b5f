"""Folders that one process has for itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def held(folder: Path, wait: bool = False) -> Iterator[bool]:
    """Hold `folder` till the end; False if someone else does, as far as the system can tell, unless we `wait`."""
    try:
        import fcntl
    except ImportError:  # on Windows
        yield True
        return
    place, ours = os.open(folder, os.O_RDONLY), True
    try:
        fcntl.flock(place, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        ours = False
    except OSError:  # this file system has no locks
        pass
    try:
        yield ours
    finally:
        os.close(place)
