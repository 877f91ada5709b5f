"""What every benchmark shares: timing, a description of the machine, a table and a JSON file."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any


def machine(*packages: str) -> dict[str, Any]:
    """Processor, cores, Python and package versions; nothing that names the host."""
    versions = {name: metadata.version(name) for name in packages}
    return {"cpu": _cpu_model(), "cores": os.cpu_count(), "python": platform.python_version(), **versions}


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def milliseconds(
    call: Callable[[], object], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Times of `repeats` calls, sorted."""
    times = []
    for _ in range(repeats):
        start = clock()
        call()
        times.append(1000 * (clock() - start))
    return sorted(times)


def table(rows: list[dict[str, Any]]) -> str:
    """The rows, all with the same keys, as a Markdown table."""
    head = list(rows[0])
    cells = [head, *[[_cell(row[key]) for key in head] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in cells]
    return "\n".join([lines[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *lines[1:]])


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def save(file: Path | None, section: str, result: dict[str, Any]) -> None:
    """Put `result` under `section` into a JSON file, beside what other benchmarks have put there."""
    if file is None:
        return
    known = json.loads(file.read_text()) if file.exists() else {}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**known, section: result}, indent=2) + "\n")
