"""Puts the playground into the site, at play/, with the models that come with the package."""

from pathlib import Path

from sphinx.application import Sphinx

from torchlgm.interop.web import copy_page, models_of_page


def add_page(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        copy_page(Path(app.outdir) / "play", models_of_page(), home="../index.html")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", add_page)
    return {"parallel_read_safe": True}
