"""What readers of files share: the text of a file, its blocks and numbers, and tables of Bayesian networks."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from torchlgm._utils.compressed import GZIP_START, gunzip
from torchlgm._utils.machine import as_path
from torchlgm.errors import DataError
from torchlgm.networks.bayesian import Table, shape_of
from torchlgm.networks.factors import states_by_name

LONGEST = 2**28  # bytes of a file that is packed
LEAST = np.nextafter(0.0, 1.0)


def read_text(source: str | Path, kind: str, is_text: Callable[[str], bool]) -> tuple[str, str]:
    """The name and the text of a file of a `kind`, which may be compressed, or of a text, which `is_text` knows."""
    if not isinstance(source, str | Path):
        raise DataError(f"expected a path or the text of a file in the {kind} format, got {type(source).__name__}")
    if isinstance(source, str) and (not source.strip() or is_text(source)):
        name, text = "the text", source.removeprefix("\ufeff")
    else:
        name = str(source)
        try:
            content = as_path(source, DataError).read_bytes()
            content = gunzip(content, LONGEST) if content.startswith(GZIP_START) else content
            text = content.decode("utf-8-sig")
        except (OSError, EOFError, UnicodeDecodeError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise DataError(f"{name}: not a readable {kind} file ({why})") from error
    return name, text.replace("\r\n", "\n").replace("\r", "\n")


def has_blocks(text: str) -> bool:
    """Whether this is the text of a file made of blocks, not a path."""
    return "{" in text


def blocks(name: str, text: str, block: re.Pattern[str], kinds: str) -> Iterator[tuple[str, ...]]:
    """The groups of one block after another, of which a text is made."""
    at = len(text) - len(text.lstrip())
    while at < len(text):
        match = block.match(text, at)
        if match is None:
            line = text.count("\n", 0, at) + 1
            raise DataError(f"{name}, line {line}: expected a complete {kinds} block")
        yield match.groups()
        at = match.end()


def declare(name: str, variables: dict[str, tuple[str, ...]], variable: str, states: Sequence[str]) -> None:
    if variable in variables:
        raise DataError(f"{name}: variable {variable!r} is declared twice")
    try:
        variables |= states_by_name({variable: states})
    except DataError as error:
        raise DataError(f"{name}: {error}") from error


def numbers(what: str, words: Sequence[str]) -> np.ndarray:
    """Finite numbers; what is too small for 64 bits, but not 0, is the least there is, since 0 would be impossible."""
    try:
        values = np.array([float(word) for word in words])
    except ValueError as error:
        raise DataError(f"{what}: {error}") from error
    if not np.isfinite(values).all():
        raise DataError(f"{what}: expected finite numbers, got {words[int(np.argmin(np.isfinite(values)))]}")
    for n in np.flatnonzero(values == 0).tolist():
        if re.search("[1-9]", words[n].lower().partition("e")[0]):
            values[n] = LEAST
    return values


def table_of(
    name: str, variables: Mapping[str, Sequence[str]], child: str, parents: Sequence[str], words: Sequence[str]
) -> Table:
    """A table whose numbers are in row-major order, those of the child's states side by side."""
    shape, what = shape_of(name, variables, child, parents), f"{name}, table of {child!r}"
    values = numbers(what, words)
    require_count(what, values, math.prod(shape))
    return Table(child, parents, values.reshape(shape))


def require_count(what: str, values: np.ndarray, count: int) -> None:
    if values.size != count:
        raise DataError(f"{what}: {values.size} numbers, expected {count}")
