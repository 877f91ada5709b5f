"""What this machine has: devices, memory, names of files."""

from __future__ import annotations

import math
import os
from pathlib import Path

import torch


def usable_device(device: object, error: type[Exception]) -> torch.device:
    """A device by name, or `error` if PyTorch cannot use it on this machine."""
    try:
        found = torch.device(device)  # pyright: ignore[reportArgumentType, reportCallIssue]
        torch.empty(0, device=found)
    except (AssertionError, RuntimeError, TypeError, NotImplementedError) as reason:
        raise error(
            f"device={device!r} cannot be used here; expected 'cpu', or a device that this machine and this build of "
            f"PyTorch have ({str(reason).splitlines()[0]})"
        ) from reason
    return found


def physical_memory() -> float:
    """In bytes; infinite where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return math.inf


def as_path(path: object, error: type[Exception]) -> Path:
    """A path that the system can look at, whether or not anything is there; else `error`."""
    if not isinstance(path, str | os.PathLike):
        raise error(f"expected a path, got {type(path).__name__}")
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return Path(path)
    except (OSError, ValueError, TypeError) as reason:
        shown = repr(os.fspath(path))
        shown = shown if len(shown) < 100 else f"{shown[:80]}...{shown[-10:]}"
        why = reason.strerror if isinstance(reason, OSError) else reason
        raise error(f"{shown}: not a path that can be used ({why})") from reason
    return Path(path)
