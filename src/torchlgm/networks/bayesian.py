"""Bayesian networks from Python or from what files say: variables, and for each of them a table given its parents."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from torchlgm._utils.compressed import GZIP_START, gunzip
from torchlgm.errors import DataError
from torchlgm.networks.factors import CONDITIONAL, energies_of, require_no_cycle, states_by_name
from torchlgm.networks.network import Network

LONGEST = 2**28  # bytes of a file that is packed
MOST_ENTRIES = 2**27  # of a table


class Table(NamedTuple):
    """Conditional probabilities of `child`: an axis for each of its `parents`, in their order, and the last its own."""

    child: Any
    parents: Sequence[Any]
    probs: np.ndarray


def bayesian_network(
    variables: Mapping[Any, Sequence[Hashable]],
    parents: Mapping[Any, Sequence[Any]],
    tables: Mapping[Any, Any] | None = None,
) -> Network:
    """The Bayesian network of `variables`, by name the states of each, with the `parents` of those that have some.

    `tables` holds conditional probabilities by the name of the child: an array with an axis for each of its parents, in
    their order, and the last for its own states. Without `tables` all are uniform, a start for `Network.fit`.

    >>> from torchlgm.networks import bayesian_network
    >>> variables = {"rain": ["no", "yes"], "grass": ["dry", "wet"]}
    >>> tables = {"rain": [0.8, 0.2], "grass": [[0.9, 0.1], [0.25, 0.75]]}
    >>> network = bayesian_network(variables, {"grass": ["rain"]}, tables)
    >>> network.posteriors({"grass": "wet"})["rain"]
    tensor([[0.3478, 0.6522]], dtype=torch.float64)
    """
    what = "a Bayesian network"
    variables = states_by_name(variables)
    for given, kind in ((parents, "their parents"), (tables or {}, "tables")):
        if not isinstance(given, Mapping):
            raise DataError(f"{what}: expected a mapping from variables to {kind}, got {given!r}")
    for given in (parents, *([] if tables is None else [tables])):
        strange = [name for name in given if name not in variables]
        if strange:
            raise DataError(f"{what}: {strange[0]!r} is no variable; expected some of {list(variables)[:8]}")
    made = []
    for child, states in variables.items():
        above = parents.get(child, ())
        if isinstance(above, str):
            raise DataError(f"{what}: the parents of {child!r} are a list of names, got {above!r}")
        shape = shape_of(what, variables, child, list(above))
        if tables is None:
            made.append(Table(child, above, np.full(shape, 1 / len(states))))
        elif child in tables:
            try:
                probs = np.asarray(tables[child], dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise DataError(f"{what}, table of {child!r}: {error}") from error
            if probs.shape != tuple(shape):
                axes = ", ".join(map(repr, (*above, child)))
                raise DataError(f"{what}, table of {child!r}: shape {probs.shape}, expected {tuple(shape)} for {axes}")
            made.append(Table(child, above, probs))
    return bayesian(what, variables, made)


def bayesian(name: str, variables: Mapping[Any, Sequence[Hashable]], tables: Sequence[Table]) -> Network:
    """The network, if every variable has one table and none is its own ancestor; `name` is that of the file."""
    if not variables:
        raise DataError(f"{name}: no variable; is this the right format?")
    order = {variable: v for v, variable in enumerate(variables)}
    factors, seen = [], set()
    for table in tables:
        if table.child in seen:
            raise DataError(f"{name}: two tables for variable {table.child!r}")
        seen.add(table.child)
        total = table.probs.sum(-1, keepdims=True)
        if (table.probs < 0).any() or not (np.abs(total - 1) <= CONDITIONAL).all():
            raise DataError(f"{name}, table of {table.child!r}: expected probabilities that sum to 1 over its states")
        factors.append((tuple(order[v] for v in (*table.parents, table.child)), energies_of(table.probs / total)))
    lacking = [variable for variable in variables if variable not in seen]
    if lacking:
        raise DataError(f"{name}: variable {lacking[0]!r} has no table; is the file cut short?")
    scopes = [scope for scope, _ in factors]
    children = [scope[-1] for scope in scopes]
    require_no_cycle(name, list(variables), scopes, children)
    return Network(variables, factors, children)


def shape_of(name: str, variables: Mapping[Any, Sequence[Hashable]], child: Any, parents: Sequence[Any]) -> list[int]:
    """The numbers of states of parents and child, if they are variables and their table would fit memory."""
    names = [*parents, child]
    unknown = [word for word in names if word not in variables]
    if unknown:
        raise DataError(f"{name}, table of {child!r}: {unknown[0]!r} is no variable")
    if len(set(names)) < len(names):
        raise DataError(f"{name}, table of {child!r}: expected different variables, got {', '.join(names)}")
    shape = [len(variables[word]) for word in names]
    if math.prod(shape) > MOST_ENTRIES:
        raise DataError(f"{name}: the table of {child!r} has {math.prod(shape):,} entries; it would not fit memory")
    return shape


def table_of(
    name: str, variables: Mapping[str, Sequence[str]], child: str, parents: Sequence[str], words: Sequence[str]
) -> Table:
    """A table whose numbers are in row-major order, those of the child's states side by side."""
    shape, what = shape_of(name, variables, child, parents), f"{name}, table of {child!r}"
    values = numbers(what, words)
    if values.size != math.prod(shape):
        raise DataError(f"{what}: {values.size} numbers, expected {math.prod(shape)}")
    return Table(child, parents, values.reshape(shape))


def numbers(what: str, words: Sequence[str]) -> np.ndarray:
    try:
        return np.array([float(word) for word in words])
    except ValueError as error:
        raise DataError(f"{what}: {error}") from error


def blocks(name: str, text: str, block: re.Pattern[str], kinds: str) -> Iterator[tuple[str, ...]]:
    """The groups of one block after another, of which a text is made."""
    at = len(text) - len(text.lstrip())
    while at < len(text):
        found = block.match(text, at)
        if found is None:
            line = text.count("\n", 0, at) + 1
            raise DataError(f"{name}, line {line}: expected a complete {kinds} block")
        yield found.groups()
        at = found.end()


def declare(name: str, variables: dict[str, tuple[str, ...]], variable: str, states: Sequence[str]) -> None:
    if variable in variables:
        raise DataError(f"{name}: variable {variable!r} is declared twice")
    variables[variable] = tuple(states)


def read_text(source: str | Path, kind: str, mark: str) -> tuple[str, str]:
    """The name and the text of a file of a `kind`, which may be compressed, or of a text, which has a `mark`."""
    if isinstance(source, str) and mark in source:
        return "the text", source.removeprefix("\ufeff")
    if not isinstance(source, str | Path):
        raise DataError(f"expected a path or the text of a {kind} file, got {type(source).__name__}")
    try:
        content = Path(source).read_bytes()
        content = gunzip(content, LONGEST) if content.startswith(GZIP_START) else content
        return str(source), content.decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError, ValueError) as error:
        raise DataError(f"{source}: not a readable {kind} file ({error})") from error
