"""What commands read and write; nothing is ever overwritten."""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchlgm._utils.atomic import atomic_write
from torchlgm.errors import CheckpointError, DataError


def write_text(path: Path, text: str) -> None:
    atomic_write(path, text.encode())


def as_json(value: Any) -> str:
    """JSON, which has no number that is not finite: DataError names the place of such a one."""
    try:
        return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        place = _not_finite(value)
        if place is None:
            raise
        raise DataError(
            f"{place} is not a finite number, so nothing was written; the model may have diverged"
        ) from error


def _not_finite(value: Any, place: str = "") -> str | None:
    """Where in nested lists and mappings a number is NaN or infinite."""
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{place} = {value}"
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    return next((found for key, part in pairs if (found := _not_finite(part, f"{place}.{key}".lstrip(".")))), None)


def as_csv(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()


def require_free(path: Path) -> None:
    """Raise unless `path` is an empty folder or nothing yet."""
    try:
        taken = path.exists() and (not path.is_dir() or any(path.iterdir()))
    except OSError as error:
        raise DataError(f"{path}: cannot be looked at ({error.strerror or error})") from error
    if taken:
        raise DataError(f"{path}: already exists, and nothing is ever overwritten; name another folder")


def require_new_file(path: Path) -> None:
    """Raise if there is anything at `path`."""
    if os.path.lexists(path):
        raise DataError(f"{path}: already exists, and nothing is ever overwritten; name another file")


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error})") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: not as torchlgm wrote it")
    return content
