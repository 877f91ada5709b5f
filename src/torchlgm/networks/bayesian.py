"""Bayesian networks from Python or from what files say: variables, and for each of them a table given its parents."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from torchlgm.errors import DataError
from torchlgm.networks.factors import CONDITIONAL, energies_of, require_no_cycle, states_by_name
from torchlgm.networks.network import Network

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
    """Make a Bayesian network from conditional probabilities.

    Parameters
    ----------
    variables : mapping
        The states of each variable, by name.
    parents : mapping
        The parents of each variable that has some, by name.
    tables : mapping, optional
        The conditional probabilities of each variable, by name: an array with an axis for each of its parents, in their
        order, and a last one for its own states. None makes all uniform, a start for `Network.fit`.

    Returns
    -------
    Network
        With these variables and tables.

    Examples
    --------
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
        if isinstance(above, str) or not isinstance(above, Iterable):
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
