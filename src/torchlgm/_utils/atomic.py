"""Files and folders that are written atomically: complete, or not at all, whether a process or the machine stops.

What is written is on the disk before it gets its name, and the name is before anything older is deleted.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from torchlgm.errors import CheckpointError, DataError


def atomic_write(path: Path, content: bytes) -> None:
    """Write beside `path` and then move into place; a failure leaves the old file. Links are followed."""
    path = path.resolve()
    if path.exists() and not path.is_file() and not path.is_dir():  # a device or a pipe stays what it is
        path.write_bytes(content)
        return
    with atomic_file(path) as part:
        part.write_bytes(content)


@contextmanager
def atomic_dir(path: Path) -> Iterator[Path]:
    """A folder that appears at `path`, free till then, when all that belongs into it has been written."""
    with atomic_file(path) as part:
        part.mkdir(parents=True)
        yield part


@contextmanager
def replace_dir(path: Path) -> Iterator[Path]:
    """A new folder beside `path` that takes its place on success and vanishes on failure."""
    path = path.resolve()
    if path.exists() and not path.is_dir():
        raise CheckpointError(f"{path} is a file; name a folder to save to")
    new = _sibling(path, "new")
    try:
        _make(path.parent)
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir()
        yield new
        _replace(path, new)
    except OSError as error:
        raise CheckpointError(f"cannot write to {path}: {error}") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def recover_dir(path: Path) -> Path:
    """`path`, or the older folder that `replace_dir` was moving when a crash came between the two renames."""
    old = _sibling(path.resolve(), "old")
    return old if not path.exists() and old.is_dir() else path


def remove_parts(folder: Path) -> None:
    """Delete what processes that were killed had begun to write into `folder`; nobody may write there now."""
    for part in folder.glob(".*.part"):
        _remove(part)


def _make(folder: Path) -> None:
    """A folder that is there even if the machine stops."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync_one(folder.parent)


def _replace(path: Path, new: Path) -> None:
    _sync(new)
    old, replaces = _sibling(path, "old"), path.exists()
    if replaces:
        shutil.rmtree(old, ignore_errors=True)
        path.rename(old)
    try:
        new.rename(path)
    except OSError:
        if replaces:
            old.rename(path)
        raise
    _sync_one(path.parent)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A name beside `path` for a file, or a folder, that is moved there on success and vanishes on failure."""
    part = _sibling(path.absolute(), f"{secrets.token_hex(4)}.part")
    try:
        yield part
        _sync(part)
        os.replace(part, path)
        _sync_one(path.parent)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        _remove(part)


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):
        path.unlink()


def _sync(path: Path) -> None:
    """Have a file, or a folder with all that is in it, written to the disk."""
    if path.is_dir():
        for part in path.iterdir():
            _sync(part)
    _sync_one(path)


def _sync_one(path: Path) -> None:
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:  # a folder, on some systems
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # of a folder, on some file systems
            raise
    finally:
        os.close(handle)


def _sibling(path: Path, what: str) -> Path:
    return path.with_name(f".{path.name}.{what}")
