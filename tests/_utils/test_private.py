"""Private parts of other libraries are used in one file for each."""

import re
from pathlib import Path

import pytest

import torchlgm

SOURCE = Path(torchlgm.__file__).parent
PRIVATE = {
    "torch": r"\btorch\._[a-zA-Z]|from torch(\.\w+)*\._|from torch(\.\w+)* import _|autograd\._",
    "triton": r"\btriton\._|from triton\.runtime|from triton(\.\w+)* import _",
    "sklearn": r"from sklearn(\.\w+)*\._|from sklearn(\.\w+)* import _",
}


@pytest.mark.parametrize("library", PRIVATE)
def test_one_file_for_each_library(library):
    home = SOURCE / "_utils" / f"{library}_private.py"
    users = {path for path in SOURCE.rglob("*.py") if re.search(PRIVATE[library], path.read_text(encoding="utf-8"))}
    assert users == {home}
