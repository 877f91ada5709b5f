"""Errors and warnings: how they are worded, and that warnings name the line of the user's program."""

import ast
from pathlib import Path

import pytest

import torchlgm as lgm
from torchlgm.errors import DataWarning, GraphWarning, warn


def test_a_warning_from_here():
    with pytest.warns(DataWarning, match="odd") as caught:
        warn("odd", DataWarning)
    assert caught[0].filename == __file__


def test_a_warning_from_within_the_package():
    layers = [lgm.Layer("a", (1, 6, 6)), lgm.Layer("b", (1, 2, 2))]
    with pytest.warns(GraphWarning, match="have no edge") as caught:
        lgm.Graph(layers, [lgm.Conv("a", "b", kernel=2, stride=3)])
    assert caught[0].filename == __file__


def _messages(tree):
    """The line and the text of each message that is raised or warned of; "{}" stands for what is filled in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            texts = node.exc.args[:1]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "warn":
            texts = node.args[:1]
        else:
            continue
        for text in texts:
            parts = text.values if isinstance(text, ast.JoinedStr) else [text]
            if any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in parts):
                yield (
                    node.lineno,
                    "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts),
                )


def _is_a_name(word):
    """Such as X, LGMClassifier or --device, which keep their case."""
    return len(word) == 1 or word[1:] != word[1:].lower()


def test_messages_start_in_lower_case_and_end_without_a_full_stop():
    package = Path(lgm.__file__).parent
    messages = [
        (f"{path.relative_to(package)}:{line}", text)
        for path in sorted(package.rglob("*.py"))
        if path.parent.name != "sklearn"  # which has to use scikit-learn's wording
        for line, text in _messages(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert len(messages) > 250
    capital = [m for m in messages if m[1][0].isupper() and not _is_a_name(m[1].split()[0])]
    stopped = [m for m in messages if m[1].endswith(".") and not m[1].endswith("...")]
    assert (capital, stopped) == ([], [])
