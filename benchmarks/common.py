"""What every benchmark shares: timing, a description of the machine, a table and a JSON file."""

from __future__ import annotations

import gc
import json
import os
import platform
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

import torch

SIZES = (1, 5, 10, 20, 40, 80, 160, 320, 640, 1280)  # of groups that are timed at once


def machine(*packages: str) -> dict[str, Any]:
    """Processors, Python and the versions of packages that are installed; nothing that names the host."""
    found = {"cpu": _cpu_model(), "cores": os.cpu_count(), "python": platform.python_version()}
    if torch.cuda.is_available():
        gpu = torch.cuda.get_device_properties(0)
        found |= {"gpu": gpu.name, "gpu memory": f"{gpu.total_memory / 2**30:.0f} GiB", "cuda": torch.version.cuda}
    return found | {name: version for name in packages if (version := version_of(name))}


def version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


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


def steady(call: Callable[[], object], device: torch.device, repeats: int = 10) -> float:
    """Median milliseconds of a call, after a warm-up."""

    def several(count: int) -> None:
        for _ in range(count):
            call()

    return steady_run(several, device, repeats)


def steady_run(run: Callable[[int], object], device: torch.device, repeats: int = 10, least: float = 50.0) -> float:
    """Median milliseconds of one of the things that `run(count)` does `count` times, after a warm-up.

    They are timed in groups that take at least `least` milliseconds, with the device idle before and after each.
    """

    def group(count: int) -> Callable[[], None]:
        def timed() -> None:
            run(count)
            idle(device)

        return timed

    milliseconds(group(5), 1)
    count = next((n for n in SIZES if milliseconds(group(n), 1)[0] >= least), SIZES[-1])
    return median(milliseconds(group(count), repeats)) / count


def idle(device: torch.device) -> None:
    """Wait until the device has nothing left to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def fresh(device: torch.device) -> int:
    """Give back what is not used any more; the bytes that are still in use, from which the peak is counted again."""
    gc.collect()
    if device.type != "cuda":
        return 0
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as a Markdown table; a row may lack columns."""
    head = list(dict.fromkeys(key for row in rows for key in row))
    cells = [head, *[[_cell(row.get(key)) for key in head] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in cells]
    return "\n".join([lines[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *lines[1:]])


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


def save(file: Path | None, section: str, result: dict[str, Any]) -> None:
    """Put `result` under `section` into a JSON file, beside what other benchmarks have put there."""
    if file is None:
        return
    known = json.loads(file.read_text()) if file.exists() else {}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**known, section: rounded(result)}, indent=1) + "\n")


def rounded(value: Any) -> Any:
    """Floats with four digits that count."""
    if isinstance(value, dict):
        return {key: rounded(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(v) for v in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value
