"""Between the terminal and the commands: what goes wrong becomes one clear line and an exit code."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

from torchlgm._utils.signals import ENDING, Terminated, end, handled
from torchlgm.errors import LGMError

FAILED, MISUSED, INTERRUPTED = 1, 2, 130
_NO_MEMORY = ("out of memory", "can't allocate memory")  # as PyTorch says on a GPU and on a CPU

_OUR_WORDS = {  # for what typer's library of types says
    "Input should be a valid integer, unable to parse string as an integer": "expected a whole number",
    "Input should be a valid number, unable to parse string as a number": "expected a number",
    "Input should be ": "expected a number ",
    "Value error, ": "",
}

_quiet: ContextVar[bool] = ContextVar("quiet", default=False)


class Interrupted(Exception):
    """Ctrl-C with a message; typer keeps that of a KeyboardInterrupt to itself."""


def run(app: Callable[..., Any], arguments: Sequence[str]) -> int:
    """Run a typer application on `arguments`, or print its help if there are none: the exit code.

    `--debug` among the arguments shows tracebacks.
    """
    arguments = list(arguments) or ["--help"]
    _quiet.set(False)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed, as by >&-
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = _print_each_once()
        return _run(app, arguments)


def set_quiet(wanted: bool) -> None:
    """Whether remarks and progress are left out until the next command."""
    _quiet.set(wanted)


def is_quiet() -> bool:
    return _quiet.get()


def print_line(line: str) -> None:
    """Progress and other remarks, which are no results, go to standard error."""
    if not is_quiet():
        print(line, file=sys.stderr, flush=True)


def _run(app: Callable[..., Any], arguments: Sequence[str]) -> int:
    try:
        with handled(ENDING, end):
            code = app(args=arguments, prog_name="torchlgm", standalone_mode=False)
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except Terminated as error:
        return _fail(str(error), 128 + error.number)
    except Interrupted as error:
        return _fail(str(error) or "stopped", INTERRUPTED)
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        if "--debug" in arguments:
            raise
        return _explain(error)


def _explain(error: Exception) -> int:
    if hasattr(error, "format_message"):  # of typer: a wrong option or argument
        context = getattr(error, "ctx", None)
        command = "torchlgm" if context is None else context.command_path
        message = error.format_message()  # pyright: ignore[reportAttributeAccessIssue]
        for theirs, ours in _OUR_WORDS.items():
            message = message.replace(theirs, ours)
        end = "" if message.endswith((".", "?")) else "."
        return _fail(f"{message.replace('?.', '?')}{end} See `{command} --help`.", MISUSED)
    if isinstance(error, LGMError):
        return _fail(str(error), FAILED)
    if isinstance(error, OSError):
        advice = "; free some space" if error.errno == errno.ENOSPC else ""
        return _fail(f"{error.filename or ''}: {error.strerror or error}{advice}".lstrip(": "), FAILED)
    if isinstance(error, ImportError):
        return _fail(f"{error}; the command line needs more packages: pip install 'torchlgm[cli]'", FAILED)
    if isinstance(error, MemoryError) or any(words in str(error) for words in _NO_MEMORY):
        return _fail("out of memory; use a smaller --batch-size or --hidden", FAILED)
    if type(error).__name__ == "Abort":
        return _fail("stopped", INTERRUPTED)
    what = f"unexpected {type(error).__name__}: {error}"
    return _fail(f"{what}; run it again with --debug to see where, and please report it", FAILED)


def _print_each_once() -> Callable[..., None]:
    printed: set[str] = set()

    def print_warning(message: Warning | str, *_: object) -> None:
        if str(message) not in printed:
            printed.add(str(message))
            _fail(str(message), 0)

    return print_warning


def _fail(message: str, code: int) -> int:
    print("torchlgm: " + " ".join(message.split()), file=sys.stderr, flush=True)
    return code
