"""How the site is built: `sphinx-build -W docs build/site`. Needs no network."""

import sys
import tempfile
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

import torchlgm

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

import inventories

project = "torchlgm"
author = "The torchlgm maintainers"
copyright = author
version = release = torchlgm.__version__
SOURCE = "https://github.com/torchlgm/torchlgm"

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.intersphinx",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinxext.opengraph",
    "myst_nb",
    "docstrings",
    "mathml",
    "playground",
    "tutorials",
]
exclude_patterns = ["_extensions"]

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_fence_as_directive = ["math"]  # ```math, as code hosts write it
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "both"
autodoc_typehints_description_target = "documented"
autodoc_typehints_format = "short"
add_module_names = False
default_role = "code"  # docstrings have `names` in single backticks
python_maximum_signature_line_length = 88
napoleon_use_ivar = True
strip_signature_backslash = True  # names of attributes keep their last underscore
viewcode_line_numbers = True
intersphinx_mapping = inventories.write(
    Path(tempfile.gettempdir(), f"torchlgm-inventories-{version}")
)

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"

html_theme = "furo"
html_title = f"torchlgm {version}"
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "navigation_with_keys": True,
    "source_repository": SOURCE,
    "source_branch": "main",
    "source_directory": "docs/",
    "top_of_page_buttons": ["view", "edit"],
}

ogp_site_url = "https://torchlgm.github.io/torchlgm/"
ogp_site_name = "torchlgm"
ogp_image = "_static/preview.png"
ogp_image_alt = "Clothes with 70 % of their pixels missing, and what a model believes"
ogp_social_cards = {"enable": False}
ogp_enable_meta_description = True


def setup(app: Sphinx) -> None:
    app.add_lexer("output", TextLexer)
