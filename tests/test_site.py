"""The site is built with warnings as errors, tutorials run, and it needs nothing from the network."""

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import torchlgm as lgm
from helpers.shared import shared_folder
from torchlgm import explain, metrics, viz
from torchlgm.interop.web import models_of_page

ROOT = Path(__file__).parents[1]
pytest.importorskip("furo", reason="the site needs torchlgm[docs]")
nbformat = pytest.importorskip("nbformat")


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    return shared_folder(tmp_path_factory, "site", build)


def build(folder):
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", folder / "read", ROOT / "docs", folder]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    env.pop("TORCHLGM_DATA", None)
    built = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    assert built.returncode == 0, built.stderr[-5000:]


def test_every_page_is_there(site):
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).exists(), page


def test_nothing_comes_from_the_network(site):
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r"<(?:script|img|iframe)\b[^>]*\bsrc=\"([^\"]+)|<link\b[^>]*\bhref=\"([^\"]+)", page.read_text()
        )
        addresses = [address for pair in loaded for address in pair if not address.startswith("data:")]
        assert not [address for address in addresses if "//" in address], page


def test_mathematics_is_drawn_without_a_script(site):
    page = (site / "tutorials" / "uncertainty.html").read_text()
    assert page.count("<math") >= 2
    assert not re.search("<script[^>]*mathjax", page, re.IGNORECASE)


def test_the_playground_is_in_the_site(site):
    play = site / "play"
    listed = json.loads((play / "models.json").read_text())
    assert (play / listed["home"]).resolve() == (site / "index.html").resolve()
    assert len(listed["models"]) == len(models_of_page())
    assert all((play / model["file"]).stat().st_size < 2**20 for model in listed["models"])
    loaded = re.findall(r'(?:src|href)="([^"#]+)"', (play / "index.html").read_text())
    assert all((play / name).is_file() for name in loaded if not name.startswith(("https:", "data:")))
    assert 'href="play/index.html"' in (site / "playground.html").read_text()


def test_tutorials_show_what_their_code_drew(site):
    drawn = {picture.name: picture for picture in (site / "read" / "drawn").glob("*/*.png")}
    assert len(drawn) > 10
    for name, picture in drawn.items():
        assert (site / "_images" / name).read_bytes() == picture.read_bytes(), name
        assert (ROOT / "docs" / "tutorials" / name).exists(), f"{name}: keep it by sphinx-build -t keep"


def test_every_tutorial_is_also_a_notebook(site):
    made = {path.name: path for path in (site / "_downloads").rglob("*.ipynb")}
    for page in (ROOT / "docs" / "tutorials").glob("*.md"):
        read = nbformat.read(made[f"{page.stem}.ipynb"], as_version=4)
        nbformat.validate(read)
        outputs = [out for cell in read.cells if cell.cell_type == "code" for out in cell.outputs]
        assert any("image/png" in out.get("data", ()) for out in outputs), page
        prose = "".join(cell.source for cell in read.cells if cell.cell_type == "markdown")
        assert ".md" not in prose, "links lead to pages of the site"
        assert "download" in (site / "tutorials" / f"{page.stem}.html").read_text()


def test_every_public_name_is_in_the_reference(site):
    pages = "".join(page.read_text() for page in (site / "api").glob("*.html"))
    documented = set(re.findall(r'<dt class="sig[^>]*id="([\w.]+)"', pages))
    for module in (lgm, lgm.learn, lgm.data, lgm.zoo, metrics, explain, viz):
        for name, thing in vars(module).items():
            public = (inspect.isclass(thing) or inspect.isfunction(thing)) and not name.startswith("_")
            if public and exported(module, name, thing):
                assert any(place.endswith(f".{name}") for place in documented), f"{module.__name__}.{name}"


def exported(module, name, thing):
    """Defined here, or meant to be had from here."""
    if thing.__module__ == module.__name__:
        return True
    source = Path(module.__file__).read_text()
    return f"import {name} as {name}\n" in source or f'"{name}"' in source


def test_a_tutorial_that_fails_stops_the_build(tmp_path):
    docs = tmp_path / "docs"
    (docs / "tutorials").mkdir(parents=True)
    extensions = ROOT / "docs" / "_extensions"
    (docs / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(extensions)!r})\nextensions = ['myst_parser', 'tutorials']\n"
    )
    (docs / "index.md").write_text("# Index\n\n```{toctree}\ntutorials/one\n```\n")
    page = docs / "tutorials" / "one.md"
    command = [sys.executable, "-m", "sphinx", "-q", "-W", docs, tmp_path / "site"]
    for text, message in (
        ("```python\nprint(2)\n```\n\n```output\n1\n```\n", "tutorials/one: AssertionError: one.md, line 8"),
        ("![A picture](none.png)\n", "tutorials/one shows none.png, but its code did not draw it"),
    ):
        page.write_text(f"# One\n\n{text}")
        built = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert built.returncode != 0
        assert message in built.stderr
