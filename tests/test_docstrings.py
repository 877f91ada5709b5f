"""Examples in docstrings run and say what they say."""

import doctest
import importlib
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
WITH_EXAMPLES = sorted(path for path in SOURCE.rglob("*.py") if ">>> " in path.read_text(encoding="utf-8"))

pytestmark = pytest.mark.usefixtures("single_precision")


def name_of(path):
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=name_of)
def test_examples_in_docstrings(path):
    outcome = doctest.testmod(importlib.import_module(name_of(path)), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert outcome.attempted > 0
    assert outcome.failed == 0


def test_the_main_doors_have_examples():
    import torchlgm as lgm
    from torchlgm import explain

    for door in (lgm.Graph, lgm.LGM, lgm.infer, lgm.lbp, lgm.fit, lgm.bracket, lgm.log_prob, explain.influence):
        assert ">>>" in door.__doc__, door
