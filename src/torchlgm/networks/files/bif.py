"""Bayesian networks in the BIF format (Interchange Format), which most programs read and write."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from torchlgm._utils.atomic import atomic_write
from torchlgm._utils.machine import as_path
from torchlgm.errors import DataError
from torchlgm.networks.bayesian import Table, bayesian, shape_of
from torchlgm.networks.files.text import LEAST, blocks, declare, has_blocks, numbers, read_text, require_count
from torchlgm.networks.network import Network

COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
BLOCK = re.compile(r"(network|variable|probability)\s*([^{]*)\{((?:[^{}]|\{[^{}]*\})*)\}\s*")
STATES = re.compile(r"type\s+discrete\s*\[\s*(\d+)\s*\]\s*\{([^}]*)\}\s*;")
PROPERTY = re.compile(r"(?:\A|(?<=;))\s*property\b[^;]*;")
ROW = re.compile(r"\s*(table|default|\(([^)]*)\))\s*([^;]*);")
PLAIN = re.compile(r"(?!.*/[/*])[^\s,;|(){}\[\]\"]+")  # what a name may be made of: no comment starts in it

Variables = dict[str, tuple[str, ...]]


def read_bif(source: str | Path) -> Network:
    """Read a Bayesian network in the BIF format.

    Parameters
    ----------
    source : str or Path
        The path of a file, which may be compressed (`.bif.gz`), or the text itself.

    Returns
    -------
    Network
        With its variables in the order of the file.
    """
    name, text = read_text(source, "BIF", has_blocks)
    text = COMMENT.sub("", text)
    variables: Variables = {}
    tables: list[tuple[str, str]] = []
    for kind, head, body in blocks(name, text, BLOCK, "network, variable or probability"):
        if kind == "variable":
            declare(name, variables, _name(head), _states(name, _name(head), body))
        elif kind == "probability":
            tables.append((head, body))
    return bayesian(name, variables, [_table(name, head, body, variables) for head, body in tables])


def write_bif(network: Network, path: str | Path) -> Path:
    """Write a Bayesian network as a BIF file, which may be read by `read_bif`, pgmpy, pyAgrum and others.

    Names of variables and states are written as text.

    Parameters
    ----------
    network : Network
        A Bayesian network.
    path : str or Path
        The file; an older one is replaced.

    Returns
    -------
    Path
        The file.
    """
    if not isinstance(network, Network):
        raise DataError(f"expected a network, got {type(network).__name__}")
    if not network.is_bayesian:
        raise DataError("a BIF file holds Bayesian networks, and this one has other factors; use write_uai")
    names = [_plain(name) for name in network.variables]
    states = [[_plain(state) for state in given] for given in network.variables.values()]
    for what, words in (("variables", names), *((f"states of {n!r}", s) for n, s in zip(names, states, strict=True))):
        if len(set(words)) < len(words):
            raise DataError(f"two {what} have the same name as text: {', '.join(words[:8])}")
    lines = ["network unknown {", "}"]
    for name, given in zip(names, states, strict=True):
        lines += [f"variable {name} {{", f"  type discrete [ {len(given)} ] {{ {', '.join(given)} }};", "}"]
    for (scope, energies), child in zip(network.factors, network.children, strict=True):
        assert child is not None
        parents = [v for v in scope if v != child]
        probs = np.where(np.isfinite(energies), np.maximum(np.exp(-energies), LEAST), 0.0)  # possible stays so
        probs = np.moveaxis(probs, scope.index(child), -1)
        head = f"{names[child]} | {', '.join(names[v] for v in parents)}" if parents else names[child]
        lines.append(f"probability ( {head} ) {{")
        for index in np.ndindex(probs.shape[:-1]):
            given = ", ".join(states[v][i] for v, i in zip(parents, index, strict=True))
            lines.append(f"  {f'({given})' if parents else 'table'} {', '.join(repr(float(p)) for p in probs[index])};")
        lines.append("}")
    target = as_path(path, DataError)
    atomic_write(target, ("\n".join(lines) + "\n").encode())
    return target


def _plain(name: object) -> str:
    if not PLAIN.fullmatch(str(name)):
        raise DataError(
            f"the name {str(name)!r} cannot stand in a BIF file: no space, comma, bracket, quote or comment"
        )
    return str(name)


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


def _table(name: str, head: str, body: str, variables: Variables) -> Table:
    child, _, given = head.strip().removeprefix("(").removesuffix(")").partition("|")
    child, parents = _name(child), [_name(word) for word in given.split(",") if word.strip()]
    shape, what = shape_of(name, variables, child, parents), f"{name}, table of {child!r}"
    table, known, at = np.full(shape, np.nan), set[str | tuple[int, ...]](), 0
    body = PROPERTY.sub("", body)
    for row in ROW.finditer(body):
        _require_rows(what, body[at : row.start()])
        at = row.end()
        key, states, words = row.groups()
        values = numbers(what, words.replace(",", " ").split())
        index = key if states is None else _index(what, states, parents, variables)
        if index in known:
            raise DataError(f"{what}: {key} is there twice")
        known.add(index)
        require_count(what, values, table.size if key == "table" else shape[-1])
        if key == "table":
            table = np.moveaxis(values.reshape(shape[-1], *shape[:-1]), 0, -1)  # in files the child comes first
        elif key == "default":
            table = np.where(np.isnan(table), values, table)
        else:
            table[index] = values
    _require_rows(what, body[at:])
    if np.isnan(table).any():
        raise DataError(f"{what}: no numbers for {int(np.isnan(table).any(-1).sum())} labellings of its parents")
    return Table(child, parents, table)


def _require_rows(what: str, skipped: str) -> None:
    if skipped.strip():
        raise DataError(f"{what}: expected table, default or (states), and numbers, got {skipped.strip()[:40]!r}")


def _index(what: str, states: str, parents: list[str], variables: Variables) -> tuple[int, ...]:
    words = [_name(state) for state in states.split(",")]
    if len(words) != len(parents):
        raise DataError(f"{what}: states ({states}) of {len(parents)} parents")
    for word, parent in zip(words, parents, strict=True):
        if word not in variables[parent]:
            raise DataError(f"{what}: {word!r} is no state of {parent!r}; expected one of {list(variables[parent])}")
    return tuple(variables[parent].index(word) for word, parent in zip(words, parents, strict=True))
