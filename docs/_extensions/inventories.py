"""Links from types in the reference to the pages of other projects, from the short lists in `inventories.txt`.

Sphinx would fetch whole inventories from the network; the few names in our signatures are listed by hand instead.
"""

from __future__ import annotations

import zlib
from pathlib import Path

LIST = Path(__file__).with_name("inventories.txt")


def write(folder: Path) -> dict[str, tuple[str, str]]:
    """Write an inventory for each project of the list to `folder`, and return what `intersphinx_mapping` takes."""
    folder.mkdir(parents=True, exist_ok=True)
    mapping = {}
    for section in LIST.read_text(encoding="utf-8").split("\n\n"):
        (project, base), *entries = [line.split() for line in section.splitlines() if not line.startswith("#")]
        lines = [f"{name} py:{role} 1 {page}#$ -" for name, role, page in entries]
        header = f"# Sphinx inventory version 2\n# Project: {project}\n# Version: \n# zlib\n"
        path = folder / f"{project}.inv"
        path.write_bytes(header.encode() + zlib.compress("\n".join([*lines, ""]).encode()))
        mapping[project] = (base, str(path))
    return mapping
