"""Folders that one process has for itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def dir_lock(folder: Path, wait: bool = False) -> Iterator[bool]:
    """Hold `folder` till the end; False if someone else does, as far as the system can tell, unless we `wait`, or if it
    is gone."""
    try:
        import fcntl
    except ImportError:  # on Windows
        yield True
        return
    try:
        place = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        yield False
        return
    ours = True
    try:
        fcntl.flock(place, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        ours = False
    except OSError:  # this file system has no locks
        pass
    try:
        yield ours and os.fstat(place).st_nlink > 0  # or it was deleted while we waited
    finally:
        os.close(place)
