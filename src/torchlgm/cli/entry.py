"""The way in from the command line: what goes wrong becomes one clear line and an exit code."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from torchlgm.errors import DataWarning, LGMError

FAILED, MISUSED, INTERRUPTED = 1, 2, 130


class Stopped(Exception):
    """Ctrl-C with something to say; typer keeps the message of a KeyboardInterrupt to itself."""


def enter(app: Callable[..., Any], arguments: Sequence[str]) -> int:
    """Run a typer application on `arguments`, its help if there are none: the exit code.

    `--debug` among the arguments shows tracebacks.
    """
    arguments = list(arguments) or ["--help"]
    with warnings.catch_warnings():
        warnings.simplefilter("always", DataWarning)
        warnings.showwarning = _warn
        return _enter(app, arguments)


def _enter(app: Callable[..., Any], arguments: Sequence[str]) -> int:
    try:
        code = app(args=arguments, prog_name="torchlgm", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except Stopped as error:
        return _say(str(error) or "stopped", INTERRUPTED)
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
        return _say(f"{error.format_message().rstrip('.')}. See `{command} --help`.", MISUSED)  # pyright: ignore
    if isinstance(error, LGMError):
        return _say(str(error), FAILED)
    if isinstance(error, OSError):
        advice = " Free some space." if error.errno == errno.ENOSPC else ""
        return _say(f"{error.filename or ''}: {error.strerror or error}.{advice}".lstrip(": "), FAILED)
    if isinstance(error, ImportError):
        return _say(f"{error}; the command line needs more packages: pip install 'torchlgm[cli]'", FAILED)
    if isinstance(error, MemoryError) or "out of memory" in str(error):
        return _say("out of memory; use a smaller --batch-size or --hidden", FAILED)
    if type(error).__name__ == "Abort":
        return _say("stopped", INTERRUPTED)
    what = f"unexpected {type(error).__name__}: {error}"
    return _say(f"{what}; run it again with --debug to see where, and please report it", FAILED)


def _warn(message: Warning | str, *_: object) -> None:
    _say(str(message), 0)


def _say(message: str, code: int) -> int:
    print("torchlgm: " + " ".join(message.split()), file=sys.stderr)
    return code
