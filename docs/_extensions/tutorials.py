"""Tutorials run when the site is built; the site shows the pictures that they drew, and has each as a notebook.

The pictures beside the pages are the same ones, kept so that a page can be read without the site; `sphinx-build -t
keep` renews them.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from pathlib import Path

from blocks import run_page
from notebooks import as_notebook
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

PICTURE = re.compile(r"!\[[^\]]*\]\((?P<name>[^)/\s]+\.png)\)")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", run_tutorial)
    app.connect("build-finished", show_drawn)
    return {"parallel_read_safe": False, "parallel_write_safe": True}


def run_tutorial(app: Sphinx, name: str, source: list[str]) -> None:
    if not name.startswith("tutorials/"):
        return
    page = Path(app.srcdir, f"{name}.md")
    folder = drawn(app) / page.stem
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with contextlib.chdir(folder):
        try:
            outputs = run_page(page)
        except Exception as error:
            raise ExtensionError(f"{name}: {type(error).__name__}: {error}", error) from error
    for picture in PICTURE.findall(source[0]):
        if not (folder / picture).exists():
            raise ExtensionError(f"{name} shows {picture}, but its code did not draw it")
        if app.tags.has("keep"):
            shutil.copy(folder / picture, page.parent / picture)
    site = f"{getattr(app.config, 'ogp_site_url', '')}tutorials/"
    path = folder / f"{page.stem}.ipynb"
    path.write_text(as_notebook(source[0], outputs, folder, site), encoding="utf-8")
    heading, below = source[0].split("\n", 1)
    source[0] = f"{heading}\n\n{{download}}`Download this page as a notebook <{target(app, path)}>`\n{below}"


def target(app: Sphinx, path: Path) -> str:
    """The path as a download takes it: relative to the page."""
    return os.path.relpath(path, Path(app.srcdir, "tutorials"))


def show_drawn(app: Sphinx, exception: Exception | None) -> None:
    shown = Path(app.outdir, "_images")
    if exception is None and shown.exists():
        for picture in drawn(app).glob("*/*.png"):
            if (shown / picture.name).exists():
                shutil.copy(picture, shown / picture.name)


def drawn(app: Sphinx) -> Path:
    return Path(app.doctreedir, "drawn")
