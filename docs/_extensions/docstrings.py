"""Docstrings as this package writes them, for Sphinx: plain text, names in backticks, examples, lists of parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from sphinx.application import Sphinx

ENTRY = re.compile(r"(?P<names>\w+(?:, \w+)*) : (?P<text>.*)")
MARKUP = re.compile(r"\*|(?<=\w)_(?!\w)")  # what reStructuredText would take for emphasis or a link


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", rewrite)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def rewrite(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    lines[:] = [] if lines and lines[0].startswith("Alias for field number") else list(_translated(lines))


def _translated(lines: list[str]) -> Iterator[str]:
    example = listed = False
    for line, following in pairwise([*lines, ""]):
        example = bool(line.strip()) and (example or line.lstrip().startswith(">>>"))
        entry = ENTRY.fullmatch(line) if listed else None
        if example:
            yield line
        elif line and set(following) == {"-"}:  # the title of a list of parameters
            listed = True
            yield from (f"**{line}**", "")
        elif line and set(line) == {"-"}:
            continue
        elif entry:
            yield f"- `{entry['names']}`: {_plain(entry['text'])}"
        else:
            yield f"  {_plain(line.strip())}" if listed and line.strip() else _plain(line)


def _plain(text: str) -> str:
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else MARKUP.sub(r"\\\g<0>", part) for part in parts)
