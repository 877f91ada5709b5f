"""Files and folders that are written atomically: complete, or not at all."""

from __future__ import annotations

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
    with _moved_to(path) as part:
        part.write_bytes(content)


@contextmanager
def atomic_dir(path: Path) -> Iterator[Path]:
    """A folder that appears at `path`, free till then, when all that belongs into it has been written."""
    with _moved_to(path) as part:
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
        path.parent.mkdir(parents=True, exist_ok=True)
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


def _replace(path: Path, new: Path) -> None:
    for file in new.iterdir():
        with file.open("rb") as handle:
            os.fsync(handle.fileno())
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
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _moved_to(path: Path) -> Iterator[Path]:
    """A name beside `path` for a file or folder that is moved there on success and vanishes on failure."""
    part = _sibling(path.absolute(), f"{secrets.token_hex(4)}.part")
    try:
        yield part
        os.replace(part, path)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
        with suppress(OSError):
            part.unlink()


def _sibling(path: Path, what: str) -> Path:
    return path.with_name(f".{path.name}.{what}")
