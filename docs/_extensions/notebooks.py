"""Tutorials as notebooks: prose, code, what it printed and the pictures that it drew, to download from their pages."""

from __future__ import annotations

import re
from base64 import b64encode
from pathlib import Path
from typing import Any

import nbformat.v4 as notebook
from blocks import FENCE

PICTURE = re.compile(r"!\[[^\]]*\]\((?P<name>[^)/\s]+\.png)\)\n*")
LINK = re.compile(r"\]\((?!https?:|#)(?P<path>[^)#\s]+)\.md(?P<anchor>#[^)\s]*)?\)")
INSTALL = "To run this notebook, install torchlgm with the extras `cli` and `sklearn`."


def as_notebook(text: str, outputs: list[str], folder: Path, site: str) -> str:
    """The page as a notebook; `folder` has the pictures, and links lead to the page's own place on the `site`."""
    cells: list[Any] = []
    printed = iter(outputs)
    at = 0
    for fence in FENCE.finditer(text):
        kind = fence["kind"].strip()
        if kind not in ("python", "output", "output about"):
            continue  # stays part of the prose
        _add_prose(cells, text[at : fence.start()], folder, site)
        at = fence.end()
        if kind == "python":
            cells.append(notebook.new_code_cell(fence["text"].rstrip()))
            if said := next(printed):
                cells[-1].outputs.append(notebook.new_output("stream", name="stdout", text=said))
    _add_prose(cells, text[at:], folder, site)
    cells.insert(1, notebook.new_markdown_cell(INSTALL))
    for place, cell in enumerate(cells):
        cell.id = f"cell-{place}"
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return notebook.writes(notebook.new_notebook(cells=cells, metadata=kernel))


def _add_prose(cells: list[Any], text: str, folder: Path, site: str) -> None:
    for picture in PICTURE.finditer(text):
        image = b64encode((folder / picture["name"]).read_bytes()).decode()
        code = next(cell for cell in reversed(cells) if cell.cell_type == "code")
        code.outputs.append(notebook.new_output("display_data", {"image/png": image}))
    prose = LINK.sub(lambda m: f"]({site}{m['path']}.html{m['anchor'] or ''})", PICTURE.sub("", text)).strip()
    if prose:
        cells.append(notebook.new_markdown_cell(prose))
