"""Files in the UAI format of the graphical-model competitions: networks in and out, and evidence in."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch import Tensor

from torchlgm._utils.atomic import atomic_write
from torchlgm._utils.machine import as_path
from torchlgm.errors import DataError
from torchlgm.layout import edge_list
from torchlgm.model import LGM, Observed
from torchlgm.mrf import MRF, PIN, Link
from torchlgm.networks.factors import CONDITIONAL, Factor, energies_of, require_no_cycle
from torchlgm.networks.files.text import numbers, read_text
from torchlgm.networks.network import Network, network_of

KINDS = ("MARKOV", "BAYES")
COMMENT = re.compile(r"(#|//).*")


def read_uai(source: str | Path) -> Network:
    """Read a MARKOV or BAYES network in the UAI format.

    Comments go from `#` or `//` to the end of a line. The tables of a BAYES file are conditional probabilities of their
    last variable, and have to sum to 1 over it. An entry of 0 is impossible.

    Parameters
    ----------
    source : str or Path
        The path of a file, or the text itself.

    Returns
    -------
    Network
        Its variables and their states are numbered from 0.
    """
    words = _Words(source)
    kind = words.word("the kind of network").upper()
    if kind not in KINDS:
        raise DataError(f"{words.name}: a {kind!r} network; expected {' or '.join(KINDS)}")
    labels = [words.count("the labels of a variable", 1) for _ in range(words.count("the number of variables", 1))]
    scopes = [_read_scope(words, len(labels)) for _ in range(words.count("the number of factors", 0))]
    shapes = [tuple(labels[v] for v in scope) for scope in scopes]
    tables = [_read_table(words, number, shape) for number, shape in enumerate(shapes)]
    words.end()
    if kind == "BAYES":
        for number, (scope, table) in enumerate(zip(scopes, tables, strict=True)):
            _check_conditional(words.name, number, scope, table)
        last = [scope[-1] for scope in scopes if scope]
        twice = {v for v in last if last.count(v) > 1}
        if twice:
            raise DataError(
                f"{words.name}: two tables whose last variable is {min(twice)}; expected one for each variable"
            )
    children = [scope[-1] if kind == "BAYES" and scope else None for scope in scopes]
    require_no_cycle(words.name, range(len(labels)), scopes, children)
    factors = [(scope, energies_of(table)) for scope, table in zip(scopes, tables, strict=True)]
    return network_of(labels, factors, children)


def read_uai_evidence(source: str | Path, network: Network) -> dict[str, Observed]:
    """Read the samples of an evidence file (`.uai.evid`).

    Reads both forms: `observations (variable label)*`, and the same for each sample after the number of samples. What
    could be either is the second if each sample has a line of its own.

    Parameters
    ----------
    source : str or Path
        The path of a file, or the text itself.
    network : Network
        The network whose variables were observed.

    Returns
    -------
    dict
        Evidence for the model of `network`, with one row for each sample.
    """
    if not isinstance(network, Network):
        raise DataError(f"expected a network, got {type(network).__name__}")
    words = _Words(source)
    samples = 1 if words.are_one_sample else words.count("the number of samples", 1)
    observed = []
    for _ in range(samples):
        pairs = range(words.count("the number of observations", 0))
        seen = [(words.count("a variable", 0), words.count("a label", 0)) for _ in pairs]
        observed.append(dict(seen))
        if len({*seen}) > len(observed[-1]):
            raise DataError("a variable is observed twice, with different labels; keep one of them")
    words.end()
    return network.evidence(*observed)


def write_uai(network: Network | LGM | MRF, path: str | Path) -> Path:
    """Write a MARKOV file with the same distribution and the same log Z.

    The variables of a model, or of an MRF of one sample, are its nodes, layer by layer in row-major order. An MRF has
    absorbed what was observed: layers without free nodes are not in it, other observed nodes stand at label 0. Each
    table is written relative to its largest entry, and what that takes from log Z is spread over all of them.

    Parameters
    ----------
    network : Network, LGM or MRF
        What to write.
    path : str or Path
        The file; an older one is replaced.

    Returns
    -------
    Path
        The file.
    """
    if not isinstance(network, Network | LGM | MRF):
        raise DataError(f"expected a network, a model or an MRF, got {type(network).__name__}")
    if isinstance(network, Network):
        text = _text(network.labels, network.factors, 0.0)
    else:
        text = _text(*_model_tables(network if isinstance(network, MRF) else network.condition()))
    target = as_path(path, DataError)
    atomic_write(target, text.encode())
    return target


def _model_tables(mrf: MRF) -> tuple[list[int], list[Factor], float]:
    """Labels of the variables, factors and constant."""
    if mrf.batch != 1:
        raise DataError(f"an MRF of {mrf.batch} samples; a UAI file holds one, take it with mrf.take")
    if not mrf.unary:
        raise DataError("every node is observed; there is no variable left to write, leave one out of the evidence")
    nodes = [(name, i) for name, u in mrf.unary.items() for i in range(u.shape[1])]
    numbers = {node: v for v, node in enumerate(nodes)}
    factors: list[Factor] = []
    fields = {name: _array(mrf.field(name)[0]) for name in mrf.unary}
    for (name, node), v in numbers.items():
        energies = np.concatenate([[0.0], -fields[name][node]])
        factors.append(((v,), np.where(energies > PIN / 2, np.inf, energies)))
    for link in mrf.links:
        for left, right, table in _edges(link):
            if table.any():
                energies = np.zeros((table.shape[0] + 1, table.shape[1] + 1))
                energies[1:, 1:] = table
                factors.append(((numbers[link.left, left], numbers[link.right, right]), energies))
    return [mrf.unary[name].shape[-1] + 1 for name, _ in nodes], factors, float(mrf.constant[0].detach())


def _text(cards: Sequence[int], tables: Sequence[Factor], constant: float) -> str:
    if not tables:
        tables = [((0,), np.zeros(cards[0]))]
    constant += sum(float(energies.min()) for _, energies in tables)
    lines = ["MARKOV", str(len(cards)), " ".join(map(str, cards)), str(len(tables))]
    lines += [" ".join(map(str, (len(scope), *scope))) for scope, _ in tables]
    for _, energies in tables:
        with np.errstate(over="ignore"):
            values = np.exp(-(energies - energies.min()) - constant / len(tables))
        lost = (values == 0) & np.isfinite(energies)
        if lost.any() or not np.isfinite(values).all():
            spread = np.ptp(energies[np.isfinite(energies)])
            raise DataError(
                f"energies of a table are {spread:.0f} apart; a UAI file holds their exponentials, and so takes up to "
                "about 700; scale the energies down"
            )
        lines += ["", str(values.size), " ".join(repr(float(value)) for value in values.reshape(-1))]
    return "\n".join(lines) + "\n"


def _array(x: Tensor) -> np.ndarray:
    return x.detach().cpu().double().numpy()


def _edges(link: Link) -> list[tuple[int, int, np.ndarray]]:
    """(left node, right node, energies `(kl, kr)`) of the edges that exist."""
    (left, right), exist = edge_list(link.layout)
    shape = (*link.layout.edge_shape, *link.table.shape[-2:])
    tables = _array(link.layout.expand(link.energies).expand(shape).flatten(0, -3))[exist.numpy()]
    return list(zip(left.tolist(), right.tolist(), tables, strict=True))


class _Words:
    """The words of a file in order, with errors that name the file."""

    def __init__(self, source: str | Path) -> None:
        self.name, text = read_text(source, "UAI", _is_text)
        self.text = COMMENT.sub("", text)
        self.words = self.text.split()
        self.at = 0

    @property
    def are_one_sample(self) -> bool:
        """Whether this is evidence without the number of samples in front; lines decide where it could be both."""
        if not _is_sample(self.words):
            return False
        first, *others = [line.split() for line in self.text.splitlines() if line.strip()]
        return not others or first != [str(len(others))] or not all(map(_is_sample, others))

    def word(self, what: str) -> str:
        if self.at >= len(self.words):
            raise DataError(f"{self.name}: ends where {what} is expected")
        self.at += 1
        return self.words[self.at - 1]

    def count(self, what: str, least: int) -> int:
        word = self.word(what)
        if not word.isdecimal() or int(word) < least:
            raise DataError(f"{self.name}, word {self.at}: {word!r} for {what}, expected a whole number >= {least}")
        return int(word)

    def numbers(self, what: str, count: int) -> np.ndarray:
        words = self.words[self.at : self.at + count]
        if len(words) < count:
            raise DataError(f"{self.name}: ends inside {what}, after {len(words)} of {count} numbers")
        self.at += count
        return numbers(f"{self.name}, {what}", words)

    def end(self) -> None:
        if self.at < len(self.words):
            raise DataError(f"{self.name}, word {self.at + 1}: {self.words[self.at]!r} where the end is expected")


def _is_text(source: str) -> bool:
    """Whether this is the text of a file of a network or of evidence, not a path."""
    first = source.removeprefix("\ufeff").split(maxsplit=1)[0]
    return "\n" in source or first.upper() in KINDS or first.isdecimal()


def _is_sample(words: Sequence[str]) -> bool:
    """Whether they are `observations (variable label)*`."""
    return words[:1] == [str((len(words) - 1) // 2)] and len(words) % 2 == 1


def _read_scope(words: _Words, variables: int) -> tuple[int, ...]:
    arity = words.count("the number of variables of a factor", 0)
    scope = tuple(words.count("a variable of a factor", 0) for _ in range(arity))
    if any(v >= variables for v in scope) or len(set(scope)) < arity:
        raise DataError(f"{words.name}: a factor of variables {scope}; expected different ones below {variables}")
    return scope


def _read_table(words: _Words, number: int, shape: Sequence[int]) -> np.ndarray:
    what = f"table {number}"
    size = words.count(f"the size of {what}", 1)
    if size != math.prod(shape):
        raise DataError(f"{words.name}, {what}: {size} entries for variables with {tuple(shape)} labels")
    values = words.numbers(what, size)
    if not ((values >= 0).all() and values.any()):
        raise DataError(f"{words.name}, {what}: expected numbers >= 0, not all of them 0")
    return values.reshape(shape)


def _check_conditional(name: str, number: int, scope: Sequence[int], table: np.ndarray) -> None:
    """Raise DataError unless a table sums to 1 over its last variable, the child."""
    sums = [np.abs(table.sum(axis) - 1).max() for axis in range(len(scope))]
    if not scope or sums[-1] <= CONDITIONAL:
        return
    others = [scope[axis] for axis, error in enumerate(sums[:-1]) if error <= CONDITIONAL]
    hint = f", but over variable {others[0]}: is the order of its variables right?" if others else ""
    raise DataError(
        f"{name}, table {number}: does not sum to 1 over variable {scope[-1]}, the last of its scope{hint or ';'} "
        "expected conditional probabilities of the last variable; for factors of any size begin the file with MARKOV"
    )
