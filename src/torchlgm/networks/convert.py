"""Networks of pgmpy and pyAgrum, read by what their objects offer: neither library is imported."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from torchlgm.errors import DataError
from torchlgm.networks.factors import Factor, energies_of
from torchlgm.networks.network import Network


def from_pgmpy(model: Any) -> Network:
    """A Bayesian or Markov network, factor graph or junction tree of pgmpy, with its names of variables and states."""
    if not hasattr(model, "get_cpds") and not hasattr(model, "get_factors"):
        raise DataError(f"expected a Bayesian or Markov network of pgmpy, got {type(model).__name__}")
    given = model.get_cpds() if hasattr(model, "get_cpds") else model.get_factors()
    strange = [factor for factor in given if not hasattr(factor, "values") or not hasattr(factor, "state_names")]
    if strange:
        raise DataError(f"expected tables of discrete variables, got {type(strange[0]).__name__}")
    variables: dict[Hashable, tuple[Hashable, ...]] = {}
    for factor in given:
        for name, count in zip(factor.variables, np.shape(factor.values), strict=True):
            states = tuple(factor.state_names.get(name) or range(count))
            if variables.setdefault(name, states) != states:
                raise DataError(f"variable {name!r} has different states in two tables of the model")
    nodes = [] if hasattr(model, "get_factor_nodes") else model.nodes()  # a factor graph has a node for each factor
    cliques = {node for node in nodes if isinstance(node, tuple) and variables.keys() >= {*node}}  # of a junction tree
    lacking = [node for node in nodes if node not in variables and node not in cliques]
    if lacking:
        raise DataError(f"variable {lacking[0]!r} of the model has no table; add one")
    tables = [(tuple(factor.variables), np.asarray(factor.values)) for factor in given]
    return _network(variables, tables, 0 if hasattr(model, "get_cpds") else None)


def from_pyagrum(model: Any) -> Network:
    """A Bayesian or Markov network of pyAgrum, with the names of its variables and states."""
    if not (hasattr(model, "cpt") or hasattr(model, "factors")) or hasattr(model, "utility"):
        raise DataError(f"expected a Bayesian or Markov network of pyAgrum, got {type(model).__name__}")
    variables = {model.variable(i).name(): tuple(model.variable(i).labels()) for i in sorted(model.nodes())}
    if hasattr(model, "cpt"):
        given = [model.cpt(i) for i in sorted(model.nodes())]
    else:
        given = [model.factor(scope) for scope in model.factors()]
    tables = [(tuple(table.names)[::-1], np.asarray(table.toarray())) for table in given]  # its arrays are reversed
    return _network(variables, tables, -1 if hasattr(model, "cpt") else None)


def _network(
    variables: dict[Any, tuple[Hashable, ...]], tables: list[tuple[tuple[Any, ...], np.ndarray]], child: int | None
) -> Network:
    """In the tables of a Bayesian network, the variable at index `child` is the child."""
    order = {name: v for v, name in enumerate(variables)}
    factors: list[Factor] = []
    for names, table in tables:
        if not np.isfinite(table).all() or (table < 0).any():
            raise DataError(f"the table of {', '.join(map(repr, names))} must have finite numbers >= 0")
        factors.append((tuple(order[name] for name in names), energies_of(table)))
    return Network(variables, factors, None if child is None else [scope[child] for scope, _ in factors])
