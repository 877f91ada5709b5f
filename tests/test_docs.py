"""README and docs cannot rot: their code runs, their links lead somewhere, their lists are complete.

How code runs is described in `docs/_extensions/blocks.py`. Tutorials run when the site is built, see `test_site.py`.
"""

import importlib
import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from blocks import Block, blocks_of, is_about, prose_of, run_block, run_page

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *DOCS]
LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")

pytestmark = pytest.mark.usefixtures("single_precision")


def name_of(page):
    return str(page.relative_to(ROOT))


every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name != "tutorials"], ids=name_of)
def test_code_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept = Path("experiments", "paper", "results", "models")  # as seen from the root of a clone
    kept.parent.mkdir(parents=True)
    kept.symlink_to(ROOT / kept)
    monkeypatch.delenv("TORCHLGM_DATA", raising=False)
    run_page(page)


def test_shapes_in_comments_are_checked():
    wrong = Block("python", "import torch\ntorch.zeros(2, 3)  # (3, 2): wrong\n", 0)
    with pytest.raises(AssertionError, match="wrong"):
        run_block(wrong, {}, "here")


@pytest.mark.parametrize("output", ["2\n", "1"])
def test_outputs_are_checked(tmp_path, output):
    page = tmp_path / "page.md"
    page.write_text(f"```python\nprint(1)\n```\n\n```output\n{output}\n```\n")
    if output == "1":
        run_page(page)
    else:
        with pytest.raises(AssertionError, match=r"page\.md, line 6: the block above printed\n1"):
            run_page(page)


@pytest.mark.parametrize(
    ("promised", "same"),
    [("a 0.50\n", True), ("a  0.54\n", True), ("a 0.60\n", False), ("b 0.50\n", False), ("a 0.5 1\n", False)],
)
def test_outputs_of_trainings_are_checked_roughly(promised, same):
    assert is_about("a 0.50\n", promised) is same


def headings(page):
    found = re.findall(r"^#+ (.*)$", prose_of(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


@every_page
def test_relative_links_lead_somewhere(page):
    for target in LINK.findall(prose_of(page)):
        if "://" not in target:
            path, _, anchor = target.partition("#")
            there = (page.parent / path).resolve() if path else page
            assert there.exists(), f"{page.name} links to {target}"
            assert not anchor or anchor in headings(there), f"{page.name} links to {target}"


@every_page
def test_names_of_the_package_exist(page):
    for name in set(re.findall(r"`(torchlgm(?:\.\w+)+)`", prose_of(page))):
        assert resolves(name), f"{page.name} names {name}"


def resolves(name):
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            thing = getattr(thing, part, None)
        return thing is not None
    return False


def test_the_test_command_is_the_one_of_ci():
    commands = [line for block in blocks_of(ROOT / "README.md") for line in block.text.splitlines() if "venv" in line]
    assert len(commands) == 2
    train, test = commands
    assert train.endswith(".venv/bin/torchlgm train")
    assert test.endswith(".venv/bin/python -m pytest")
    assert any(line.startswith(test) for line in (ROOT / ".ci" / "run").read_text().splitlines())


def test_the_tree_in_the_readme_is_the_tree():
    tree = next(block.text for block in blocks_of(ROOT / "README.md") if block.text.startswith("src/torchlgm/"))
    inside, outside = re.findall(r"^  (\S+)", tree, re.MULTILINE), re.findall(r"^(\S+)", tree, re.MULTILINE)
    missing = [name for name in inside if not (ROOT / "src" / "torchlgm" / name).exists()]
    assert missing + [name for name in outside if not (ROOT / name).exists()] == []
    there = [path for path in (ROOT / "src" / "torchlgm").iterdir() if path.name not in ("__pycache__", "py.typed")]
    assert {path.name for path in there} == {name.rstrip("/") for name in inside}
    assert len(inside) <= 22  # a newcomer reads them all


def test_every_dependency_is_explained():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = [*project["dependencies"], *[d for group in project["optional-dependencies"].values() for d in group]]
    names = {re.split(r"[^\w-]", dependency)[0] for dependency in listed} - {"torchlgm"}
    rows = re.findall(r"^\| `([\w-]+)`", (ROOT / "docs" / "dependencies.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(names)


def command_sections():
    sections = re.split(r"^## ", (ROOT / "docs" / "cli.md").read_text(), flags=re.MULTILINE)[1:]
    return {section.split("\n")[0].strip("`"): section for section in sections}


def test_the_command_line_is_documented_in_full():
    typer = pytest.importorskip("typer")
    from torchlgm.cli.main import app

    sections = command_sections()
    for name, command in typer.main.get_command(app).commands.items():
        own = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
        shown = set(re.findall(r"^\| `(--[\w-]+)", sections[f"torchlgm {name}"], re.MULTILINE))
        assert shown == own - {"--json", "--debug", "--help"}, name


def test_defaults_of_training_are_the_documented_ones():
    from torchlgm.cli.config import Config

    rows = re.findall(r"^\| `--([\w-]+)` \|.*\| (.*) \|$", command_sections()["torchlgm train"], re.MULTILINE)
    documented = {name.replace("-", "_"): default.replace("`", "") for name, default in rows}
    means = {field.name: field.metadata["means"] for field in fields(Config) if field.metadata}
    free = {"missing_value", "data_folder", "compare", "calibrate", "pictures"}
    assert {name: documented[name] for name in means if name not in free} == {
        name: default for name, default in means.items() if name not in free
    }
    assert {"learning_rate", "batch_size", "model"} <= means.keys()


def test_badges_are_true():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    badges = re.findall(r"<text[^>]*>([^<]+)</text>", (ROOT / "docs" / "badges.svg").read_text(encoding="utf-8"))
    shown = dict(zip(badges[::2], badges[1::2], strict=True))
    first, last = shown["Python"].split(" to ")
    assert project["requires-python"] == f">={first},<3.{int(last.split('.')[1]) + 1}"
    assert f"torch>={shown['PyTorch'].rstrip('+')}" in project["dependencies"]
    assert shown["licence"] == project["license"]
