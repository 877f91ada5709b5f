"""Docstrings as this package writes them, before napoleon turns their sections into tables.

They are plain text with names in single backticks: what reStructuredText would take for emphasis or a link is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sphinx.application import Sphinx

MARKUP = re.compile(r"\*|(?<=\w)_(?!\w)")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", rewrite, priority=400)  # napoleon has the default, 500
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def rewrite(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    lines[:] = [] if lines and lines[0].startswith("Alias for field number") else list(_escaped(lines))


def _escaped(lines: list[str]) -> Iterator[str]:
    example = False
    for place, line in enumerate(lines):
        example = bool(line.strip()) and (example or line.lstrip().startswith(">>>"))
        entry = lines[place + 1].startswith("    ") if place + 1 < len(lines) else False  # names that napoleon reads
        yield line if example or entry else _plain(line)


def _plain(text: str) -> str:
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else MARKUP.sub(r"\\\g<0>", part) for part in parts)
