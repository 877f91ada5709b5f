"""Bayesian networks in the BIF format (Interchange Format), which most programs read and write."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np

from torchlgm._utils.compressed import GZIP_START, gunzip
from torchlgm._utils.machine import as_path
from torchlgm.errors import DataError
from torchlgm.networks.layered import Factor
from torchlgm.networks.network import Network
from torchlgm.networks.uai import CONDITIONAL, energies_of

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
BLOCK = re.compile(r"(network|variable|probability)\s*([^{]*)\{((?:[^{}]|\{[^{}]*\})*)\}\s*")
STATES = re.compile(r"type\s+discrete\s*\[\s*(\d+)\s*\]\s*\{([^}]*)\}\s*;")
PROPERTY = re.compile(r"property\b[^;]*;")
LONGEST = 2**28  # bytes of a file that is packed
ROW = re.compile(r"\s*(table|default|\(([^)]*)\))\s*([^;]*);")


def read_bif(source: str | Path) -> Network:
    """The network in a BIF file, which may be compressed (`.bif.gz`), or in its text."""
    name, text = _text(source)
    text = COMMENT.sub("", text)
    variables: dict[str, tuple[str, ...]] = {}
    tables: list[tuple[str, str]] = []
    at = len(text) - len(text.lstrip())
    while at < len(text):
        block = BLOCK.match(text, at)
        if block is None:
            line = text.count("\n", 0, at) + 1
            raise DataError(f"{name}, line {line}: expected a complete network, variable or probability block")
        kind, head, body = block.groups()
        if kind == "variable":
            variable = _name(head)
            if variable in variables:
                raise DataError(f"{name}: variable {variable!r} is declared twice")
            variables[variable] = _states(name, variable, body)
        elif kind == "probability":
            tables.append((head, body))
        at = block.end()
    if not variables:
        raise DataError(f"{name}: no variable; expected the blocks of a BIF file")
    factors, children = [], set()
    for head, body in tables:
        scope, factor = _factor(name, head, body, variables)
        if scope[-1] in children:
            raise DataError(f"{name}: two tables for variable {list(variables)[scope[-1]]!r}")
        children.add(scope[-1])
        factors.append((scope, factor))
    lacking = [variable for v, variable in enumerate(variables) if v not in children]
    if lacking:
        raise DataError(f"{name}: variable {lacking[0]!r} has no table; is the file cut short?")
    require_no_cycle(name, list(variables), [scope for scope, _ in factors])
    return Network(variables, factors, [scope[-1] for scope, _ in factors])


def _text(source: str | Path) -> tuple[str, str]:
    if isinstance(source, str) and "{" in source:
        return "the text", source.removeprefix("\ufeff")
    if not isinstance(source, str | Path):
        raise DataError(f"expected a path or the text of a BIF file, got {type(source).__name__}")
    try:
        content = as_path(source, DataError).read_bytes()
        content = gunzip(content, LONGEST) if content.startswith(GZIP_START) else content
        return str(source), content.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{source}: not a readable BIF file ({error})") from error


def _name(word: str) -> str:
    return word.strip().strip('"')


def _states(name: str, variable: str, body: str) -> tuple[str, ...]:
    found = STATES.search(PROPERTY.sub("", body))
    if found is None:
        raise DataError(f"{name}, variable {variable!r}: expected type discrete [ count ] {{ states }};")
    states = tuple(_name(state) for state in found[2].split(","))
    if len(states) != int(found[1]):
        raise DataError(f"{name}, variable {variable!r}: {len(states)} states where {found[1]} are announced")
    return states


def _factor(name: str, head: str, body: str, variables: dict[str, tuple[str, ...]]) -> Factor:
    """The energies of a conditional table, its child last."""
    child, _, given = head.strip().removeprefix("(").removesuffix(")").partition("|")
    names = [_name(word) for word in (*given.split(","), child) if word.strip()]
    unknown = [word for word in names if word not in variables]
    if unknown or not names:
        raise DataError(f"{name}: a table of {head.strip()!r}, in which {unknown[:1]} is no variable")
    shape = [len(variables[word]) for word in names]
    if math.prod(shape) > 2**27:
        raise DataError(f"{name}: the table of {names[-1]!r} has {math.prod(shape):,} entries; it would not fit memory")
    what = f"{name}, table of {names[-1]!r}"
    table = np.full(shape, np.nan)
    for row in ROW.finditer(PROPERTY.sub("", body)):
        key, states, words = row.groups()
        values = _numbers(what, words)
        if key == "table":
            _require_count(what, values, table.size)
            table = np.moveaxis(values.reshape(shape[-1], *shape[:-1]), 0, -1)  # in files the child comes first
        elif key == "default":
            _require_count(what, values, shape[-1])
            table = np.where(np.isnan(table), values, table)
        else:
            _require_count(what, values, shape[-1])
            table[_index(what, states, names[:-1], variables)] = values
    if np.isnan(table).any():
        raise DataError(f"{what}: no numbers for {int(np.isnan(table).any(-1).sum())} labellings of its parents")
    if (table < 0).any() or (np.abs(table.sum(-1) - 1) > CONDITIONAL).any():
        raise DataError(f"{what}: expected probabilities that sum to 1 over the states of {names[-1]!r}")
    order = list(variables)
    return tuple(order.index(word) for word in names), energies_of(table)


def _numbers(what: str, words: str) -> np.ndarray:
    try:
        return np.array([float(word) for word in words.replace(",", " ").split()])
    except ValueError as error:
        raise DataError(f"{what}: {error}") from error


def _require_count(what: str, values: np.ndarray, count: int) -> None:
    if values.size != count:
        raise DataError(f"{what}: {values.size} numbers, expected {count}")


def _index(what: str, states: str, parents: list[str], variables: dict[str, tuple[str, ...]]) -> tuple[int, ...]:
    words = [_name(state) for state in states.split(",")]
    if len(words) != len(parents):
        raise DataError(f"{what}: states ({states}) of {len(parents)} parents")
    for word, parent in zip(words, parents, strict=True):
        if word not in variables[parent]:
            raise DataError(f"{what}: {word!r} is no state of {parent!r}; expected one of {list(variables[parent])}")
    return tuple(variables[parent].index(word) for word, parent in zip(words, parents, strict=True))


def require_no_cycle(name: str, names: list[str], scopes: list[tuple[int, ...]]) -> None:
    """Raise DataError if a variable, the last of its scope, is its own ancestor."""
    parents = {scope[-1]: set(scope[:-1]) for scope in scopes}
    while parents:
        ready = [v for v, others in parents.items() if not others & parents.keys()]
        if not ready:
            some = ", ".join(repr(names[v]) for v in list(parents)[:5])
            raise DataError(f"{name}: a cycle among {some}; a Bayesian network has none")
        for v in ready:
            del parents[v]
