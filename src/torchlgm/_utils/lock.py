"""Folders that one process at a time may write to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout


@contextmanager
def dir_lock(folder: Path, wait: bool = False) -> Iterator[bool]:
    """Lock `folder`. Yields False if another process holds it (unless `wait`) or if it no longer exists.

    The lock is a hidden file beside the folder. It stays, since deleting it could let two waiting processes in, and
    goes with its folder. Where no file can be made beside the folder, there is no lock.
    """
    folder = folder.resolve()
    if not folder.is_dir():
        yield False
        return
    lock = FileLock(folder.with_name(f".{folder.name}.lock"), timeout=-1 if wait else 0)
    try:
        lock.acquire()
    except Timeout:
        yield False
        return
    except OSError:  # such as a read-only folder
        yield True
        return
    try:
        yield folder.is_dir()  # it may have been deleted while we waited
    finally:
        if not folder.exists():
            with suppress(OSError):
                Path(lock.lock_file).unlink()
        lock.release()
