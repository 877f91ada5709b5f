"""Bayesian networks in the XMLBIF format, as pgmpy, pyAgrum (`.bifxml`) and Weka write it."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from torchlgm.errors import DataError
from torchlgm.networks.bayesian import bayesian
from torchlgm.networks.files.text import declare, read_text, table_of
from torchlgm.networks.network import Network

DECLARATION = re.compile(r"\s*<\?xml\b[^>]*>")  # its encoding is no longer that of the text


def read_xmlbif(source: str | Path) -> Network:
    """Read a Bayesian network in the XMLBIF format.

    Parameters
    ----------
    source : str or Path
        The path of a file, which may be compressed, or the text itself.

    Returns
    -------
    Network
        With its variables in the order of the file.
    """
    name, text = read_text(source, "XMLBIF", lambda text: "<" in text)
    try:
        root = ElementTree.fromstring(DECLARATION.sub("", text))
    except (ElementTree.ParseError, ValueError) as error:
        raise DataError(f"{name}: not complete XML ({error})") from error
    variables: dict[str, tuple[str, ...]] = {}
    for element in root.iter("VARIABLE"):
        variable = _text(name, element, "NAME")
        if element.get("TYPE", "nature") != "nature":
            raise DataError(f"{name}, variable {variable!r}: of type {element.get('TYPE')!r}, expected 'nature'")
        declare(name, variables, variable, [(state.text or "").strip() for state in element.iter("OUTCOME")])
    tables = []
    for element in root.iter("DEFINITION"):
        child = _text(name, element, "FOR")
        parents = [(given.text or "").strip() for given in element.iter("GIVEN")]
        tables.append(table_of(name, variables, child, parents, _text(name, element, "TABLE").split()))
    return bayesian(name, variables, tables)


def _text(name: str, element: ElementTree.Element, tag: str) -> str:
    found = element.find(tag)
    if found is None:
        raise DataError(f"{name}: a {element.tag} without a {tag}")
    return "".join(found.itertext()).strip()
