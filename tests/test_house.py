"""What people find around the code: the version is the same everywhere, and the files of a public project are there."""

import re
import tomllib
from pathlib import Path

import pytest

import torchlgm

ROOT = Path(__file__).parents[1]


def test_one_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert project["version"] == torchlgm.__version__ == cited[1]


def test_addresses_are_complete():
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    assert {"Homepage", "Documentation", "Source", "Issues", "Changelog", "Paper"} <= urls.keys()
    assert all(url.startswith("https://") for url in urls.values())
    assert f"repository-code: {urls['Source']}" in (ROOT / "CITATION.cff").read_text().splitlines()


@pytest.mark.parametrize(
    "form", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem
)
def test_issue_forms_have_what_hosts_ask_for(form):
    yaml = pytest.importorskip("yaml", reason="comes with torchlgm[docs]")
    content = yaml.safe_load(form.read_text())
    if form.stem == "config":
        assert all({"name", "url", "about"} <= link.keys() for link in content["contact_links"])
        return
    assert {"name", "description", "body"} <= content.keys()
    fields = [field for field in content["body"] if field["type"] != "markdown"]
    assert all(field["attributes"]["label"] for field in fields)
    assert len({field["id"] for field in fields}) == len(fields)
