"""How the site is built: `sphinx-build -W docs build/site`. Needs no network."""

import sys
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

import torchlgm

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "torchlgm"
author = "The torchlgm maintainers"
copyright = author
version = release = torchlgm.__version__

extensions = ["sphinx.ext.autodoc", "myst_parser", "docstrings", "mathml", "tutorials"]
exclude_patterns = ["_extensions"]

myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = ["math"]  # ```math, as code hosts write it
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
add_module_names = False
default_role = "code"  # docstrings have `names` in single backticks
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = f"torchlgm {version}"
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}


def setup(app: Sphinx) -> None:
    app.add_lexer("output", TextLexer)
