"""The command line from outside: help, exit codes, tracebacks, and what it imports."""

import os
import subprocess
import sys
from dataclasses import fields

import pytest
import typer

from helpers.processes import environment, run_code
from torchlgm import __version__
from torchlgm.cli import console
from torchlgm.cli.config import Config
from torchlgm.cli.main import app

COMMANDS = ("train", "evaluate", "predict", "complete", "explain", "export", "show", "runs", "data", "bench")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(capsys, command):
    assert console.run(app, [command, "--help"]) == 0
    out = capsys.readouterr().out
    assert "Examples:" in out
    assert f"torchlgm {command}" in out
    assert "--json" in out
    assert "--debug" in out


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_help_lists_the_commands_in_full(capsys, arguments):
    assert console.run(app, arguments) == 0
    out = capsys.readouterr().out
    for command in COMMANDS:
        assert f"  {command} " in out
    assert "--install-completion" in out
    assert "..." not in out.partition("Commands:")[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--magic"], "See `torchlgm train --help`."),
        (["train", "--epochs", "many"], "--epochs"),
        (["train", "--model", "round"], "round"),
        (["conjure"], "No such command 'conjure'. See `torchlgm --help`."),
        (["predict"], "RUN"),
        (["complete", "run", "file"], "--out"),
    ],
)
def test_misuse_is_told_in_one_line(capsys, arguments, message):
    assert console.run(app, arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("torchlgm: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err


@pytest.mark.parametrize(
    ("arguments", "code"),
    [([], 0), (["--version"], 0), (["train", "--help"], 0), (["conjure"], 2), (["train", "--model", "round"], 2)],
)
def test_help_and_misuse_do_not_wait_for_torch(arguments, code):
    heavy = ("torch", "numpy", "pandas", "sklearn", "matplotlib")
    done = run_code(
        f"import sys; sys.argv = ['torchlgm', *{arguments}]\n"
        "from torchlgm.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n"
        f"    print(end.code, [m for m in {heavy} if m in sys.modules])"
    )
    assert done.stdout.splitlines()[-1] == f"{code} []", done.stderr


def test_the_version(capsys):
    assert console.run(app, ["--version"]) == 0
    assert capsys.readouterr().out == f"torchlgm {__version__}\n"


def test_every_option_of_a_training_is_a_field_of_its_configuration():
    command = typer.main.get_command(app).commands["train"]
    options = {parameter.name for parameter in command.params}
    assert options - {field.name for field in fields(Config)} == {"out", "resume", "config", "quiet", "json", "debug"}


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
        (OSError(28, "No space left on device", "/x/y"), 1, "/x/y: No space left on device; free some space"),
        (PermissionError(13, "Permission denied", "/x/y"), 1, "/x/y: Permission denied"),
        (ImportError("No module named 'matplotlib'"), 1, "pip install 'torchlgm[cli]'"),
        (MemoryError(), 1, "out of memory; use a smaller --batch-size or --hidden"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), 1, "out of memory; use a smaller"),
        (ZeroDivisionError("by\n0"), 1, "unexpected ZeroDivisionError: by 0; run it again with --debug"),
    ],
)
def test_what_nobody_expected_is_one_line_too(capsys, monkeypatch, error, code, message):
    def fail(*_):
        raise error

    monkeypatch.setattr("torchlgm.cli.commands.data", fail)
    assert console.run(app, ["data"]) == code
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.skipif(os.name != "posix", reason="closes files of a process")
@pytest.mark.parametrize("number", [1, 2])
def test_what_is_printed_may_have_nowhere_to_go(number):
    command = [sys.executable, "-m", "torchlgm", "data"]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, preexec_fn=lambda: os.close(number), check=False
    )
    assert done.returncode == 0
    assert ("digits" in done.stdout) == (number == 2)
    assert not done.stderr


def test_importing_the_package_is_light():
    heavy = ("sklearn", "matplotlib", "typer", "rich", "PIL")
    code = f"import sys, torchlgm; print([name for name in {heavy} if name in sys.modules])"
    assert run_code(code).stdout.strip() == "[]"


def test_help_is_light():
    heavy = ("sklearn", "matplotlib", "PIL", "torchlgm.cli.commands", "torchlgm.viz")
    code = f"import sys, torchlgm.cli.main; print([name for name in {heavy} if name in sys.modules])"
    assert run_code(code).stdout.strip() == "[]"


@pytest.mark.parametrize(
    "arguments", [("train", "--epochs", "ten"), ("train", "--model", "cow"), ("play", "--port", "-1")]
)
def test_values_of_options_are_refused_in_plain_words(torchlgm, arguments):
    """Whatever library typer reads types with."""
    code, _, err = torchlgm(*arguments)
    assert code == 2
    assert f"Invalid value for '{arguments[1]}': " in err
    assert "Input should be" not in err
    assert "Value error" not in err
