"""Bayesian networks in the NET format of Hugin, which pgmpy and pyAgrum write too."""

from __future__ import annotations

import re
from pathlib import Path

from torchlgm.errors import DataError
from torchlgm.networks.bayesian import bayesian, read_text, table_of
from torchlgm.networks.network import Network

COMMENT = re.compile(r"%[^\n]*")
BLOCK = re.compile(r"(net|class|(?:discrete\s+)?node|potential)\b([^{]*)\{([^{}]*)\}\s*")
STATES = re.compile(r"\bstates\s*=\s*\(([^)]*)\)\s*;")
STATE = re.compile(r'"([^"]*)"|([^\s"]+)')
DATA = re.compile(r"\bdata\s*=([^;]*);")


def read_net(source: str | Path) -> Network:
    """The network in a NET file, which may be compressed, or in its text. Names of variables, not labels, are read."""
    name, text = read_text(source, "NET", "{")
    text = COMMENT.sub("", text)
    variables: dict[str, tuple[str, ...]] = {}
    heads: list[tuple[str, str]] = []
    at = len(text) - len(text.lstrip())
    while at < len(text):
        block = BLOCK.match(text, at)
        if block is None:
            line = text.count("\n", 0, at) + 1
            raise DataError(f"{name}, line {line}: expected a complete net, node or potential block")
        kind, head, body = block.groups()
        if kind.endswith("node"):
            variable, states = head.strip(), STATES.search(body)
            if variable in variables:
                raise DataError(f"{name}: variable {variable!r} is declared twice")
            if states is None:
                raise DataError(f'{name}, node {variable!r}: expected states = ("..." "...");')
            variables[variable] = tuple(quoted or plain for quoted, plain in STATE.findall(states[1]))
        elif kind == "potential":
            heads.append((head, body))
        at = block.end()
    tables = []
    for head, body in heads:
        child, _, given = head.strip().removeprefix("(").removesuffix(")").partition("|")
        data = DATA.search(body)
        if data is None:
            raise DataError(f"{name}, potential {head.strip()}: expected data = (...);")
        words = data[1].replace("(", " ").replace(")", " ").split()
        tables.append(table_of(name, variables, child.strip(), given.split(), words))
    return bayesian(name, variables, tables)
