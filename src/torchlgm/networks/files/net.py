"""Bayesian networks in the NET format of Hugin, which pgmpy and pyAgrum write too."""

from __future__ import annotations

import re
from pathlib import Path

from torchlgm.errors import DataError
from torchlgm.networks.bayesian import bayesian
from torchlgm.networks.files.text import blocks, declare, has_blocks, read_text, table_of
from torchlgm.networks.network import Network

COMMENT = re.compile(r"%[^\n]*")
BLOCK = re.compile(r"(net|class|(?:discrete\s+)?node|potential)\b([^{]*)\{([^{}]*)\}\s*")
STATES = re.compile(r"\bstates\s*=\s*\(([^)]*)\)\s*;")
STATE = re.compile(r'"([^"]*)"|([^\s"]+)')
DATA = re.compile(r"\bdata\s*=([^;]*);")


def read_net(source: str | Path) -> Network:
    """Read a Bayesian network in the NET format of Hugin, with the names of variables, not their labels for display.

    Parameters
    ----------
    source : str or Path
        The path of a file, which may be compressed, or the text itself.

    Returns
    -------
    Network
        With its variables in the order of the file.
    """
    name, text = read_text(source, "NET", has_blocks)
    text = COMMENT.sub("", text)
    variables: dict[str, tuple[str, ...]] = {}
    heads: list[tuple[str, str]] = []
    for kind, head, body in blocks(name, text, BLOCK, "net, node or potential"):
        if kind.endswith("node"):
            variable, states = head.strip(), STATES.search(body)
            if states is None:
                raise DataError(f'{name}, node {variable!r}: expected states = ("..." "...");')
            declare(name, variables, variable, [quoted or plain for quoted, plain in STATE.findall(states[1])])
        elif kind == "potential":
            heads.append((head, body))
    tables = []
    for head, body in heads:
        child, _, given = head.strip().removeprefix("(").removesuffix(")").partition("|")
        data = DATA.search(body)
        if data is None:
            raise DataError(f"{name}, potential {head.strip()}: expected data = (...);")
        words = data[1].replace("(", " ").replace(")", " ").split()
        tables.append(table_of(name, variables, child.strip(), given.split(), words))
    return bayesian(name, variables, tables)
