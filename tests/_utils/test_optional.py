"""Optional libraries: what is there is imported, what is not is named with its extra."""

import json
import re
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from torchlgm import LGMError
from torchlgm._utils.optional import import_optional
from torchlgm.errors import MissingExtraError

ROOT = Path(__file__).parents[2]


def test_what_is_there_is_imported():
    assert import_optional("json", "cli") is json


def test_what_is_missing_is_said(without):
    without("json")
    with pytest.raises(MissingExtraError, match=r"^this needs json.decoder \(.*\); pip install 'torchlgm\[cli\]'$"):
        import_optional("json.decoder", "cli")
    with pytest.raises(LGMError, match=r"pip install 'torchlgm\[cli\]', or do without$"):
        import_optional("json", "cli", "do without")


@pytest.mark.parametrize(
    ("module", "library", "extra"),
    [
        ("interop.hub", "huggingface_hub", "hub"),
        ("interop.lightning", "lightning", "lightning"),
        ("sklearn", "sklearn", "sklearn"),
    ],
)
def test_modules_that_need_one(module, library, extra, without, monkeypatch):
    monkeypatch.delitem(sys.modules, f"torchlgm.{module}", raising=False)
    without(library)
    with pytest.raises(MissingExtraError, match=rf"this needs {library}.*pip install 'torchlgm\[{extra}\]'"):
        import_module(f"torchlgm.{module}")


def test_every_extra_exists():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    code = "\n".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    named = re.findall(r'\bimport_optional\(\S+, "(\w+)"', code)
    assert len(named) > 10
    assert set(named) <= set(extras)
