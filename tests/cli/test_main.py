"""The command line from outside: help, exit codes, tracebacks, and what it imports."""

import pytest

from helpers.processes import run_code
from torchlgm.cli.entry import enter
from torchlgm.cli.main import app

COMMANDS = ("train", "evaluate", "predict", "complete", "export", "show", "data", "bench")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(capsys, command):
    assert enter(app, [command, "--help"]) == 0
    out = capsys.readouterr().out
    assert "Examples:" in out
    assert f"torchlgm {command}" in out
    assert "--json" in out
    assert "--debug" in out


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_help_lists_the_commands_and_no_completion(capsys, arguments):
    assert enter(app, arguments) == 0
    out = capsys.readouterr().out
    for command in COMMANDS:
        assert f"  {command} " in out
    assert "completion" not in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--magic"], "No such option: --magic. See `torchlgm train --help`."),
        (["train", "--epochs", "many"], "--epochs"),
        (["train", "--model", "round"], "round"),
        (["conjure"], "No such command 'conjure'. See `torchlgm --help`."),
        (["predict"], "RUN"),
        (["complete", "run", "file"], "--out"),
    ],
)
def test_misuse_is_told_in_one_line(capsys, arguments, message):
    assert enter(app, arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("torchlgm: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err


def test_the_traceback_is_shown_on_request():
    call = "import sys; sys.argv = ['torchlgm', 'show', 'nothing'{}]; from torchlgm.cli.main import main; main()"
    quiet, loud = run_code(call.format("")), run_code(call.format(", '--debug'"))
    assert (quiet.returncode, loud.returncode) == (1, 1)
    assert quiet.stderr.startswith("torchlgm: nothing: no such folder")
    assert quiet.stderr.count("\n") == 1
    assert "Traceback" in loud.stderr
    assert "CheckpointError: nothing: no such folder" in loud.stderr


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (OSError(28, "No space left on device", "/x/y"), 1, "/x/y: No space left on device. Free some space."),
        (PermissionError(13, "Permission denied", "/x/y"), 1, "/x/y: Permission denied."),
        (ImportError("No module named 'matplotlib'"), 1, "pip install 'torchlgm[cli]'"),
        (MemoryError(), 1, "out of memory; use a smaller --batch-size or --hidden"),
        (ZeroDivisionError("by\n0"), 1, "unexpected ZeroDivisionError: by 0; run it again with --debug"),
    ],
)
def test_what_nobody_expected_is_one_line_too(capsys, monkeypatch, error, code, message):
    def fail(*_):
        raise error

    monkeypatch.setattr("torchlgm.cli.commands.data", fail)
    assert enter(app, ["data"]) == code
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_importing_the_package_is_light():
    heavy = ("sklearn", "matplotlib", "typer", "rich", "PIL")
    code = f"import sys, torchlgm; print([name for name in {heavy} if name in sys.modules])"
    assert run_code(code).stdout.strip() == "[]"


def test_help_is_light():
    heavy = ("sklearn", "matplotlib", "PIL", "torchlgm.cli.commands", "torchlgm.viz")
    code = f"import sys, torchlgm.cli.main; print([name for name in {heavy} if name in sys.modules])"
    assert run_code(code).stdout.strip() == "[]"
