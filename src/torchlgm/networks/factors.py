"""What a network is made of: energies of the labellings of some variables, checked and summed up."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from torchlgm._utils.validate import is_int_at_least
from torchlgm.errors import DataError, TooLargeError

Factor = tuple[tuple[int, ...], np.ndarray]  # variables, and an energy for each of their labellings, inf = impossible
MOST_STATES = 10**6
CONDITIONAL = 1e-2  # how far conditional probabilities may be from a sum of 1, since files round


def energies_of(table: np.ndarray) -> np.ndarray:
    """-log, inf where the table is 0."""
    with np.errstate(divide="ignore"):
        return -np.log(table)


def states_by_name(variables: Any) -> dict[Any, tuple[Hashable, ...]]:
    """Checked: a mapping from names to states, one or more, all different."""
    if not isinstance(variables, Mapping):
        raise DataError(f"expected a mapping from the names of variables to their states, got {variables!r}")
    if not variables:
        raise DataError("a network without variables; expected one or more, with their states")
    checked = {}
    for name, states in variables.items():
        if isinstance(states, Collection) and len(states) > MOST_STATES:
            raise TooLargeError(f"variable {name!r} has {len(states):,} states; expected up to {MOST_STATES:,}")
        try:
            checked[name] = tuple(states)
            good = 0 < len(set(checked[name])) == len(checked[name])
        except TypeError:  # nothing to iterate over, or not hashable
            good = False
        if not good:
            raise DataError(f"variable {name!r} has the states {states!r}; expected one or more names, all different")
    return checked


def list_of_factors(given: Any) -> list[Factor]:
    pairs = list(given) if isinstance(given, Iterable) else [given]
    for pair in pairs:
        if not isinstance(pair, Sequence) or len(pair) != 2:
            raise DataError(f"factors are pairs of a tuple of variables and an array of energies, got {pair!r}")
    return pairs


def summed(labels: Sequence[int], factors: Iterable[Factor]) -> tuple[Factor, ...]:
    """One factor for each set of variables, which are in ascending order."""
    total: dict[tuple[int, ...], np.ndarray] = {}
    for scope, given in factors:
        numbered = isinstance(scope, Sequence) and all(is_int_at_least(v, 0) and v < len(labels) for v in scope)
        if not numbered or len(set(scope)) < len(scope):
            raise DataError(
                f"a factor of variables {scope!r}; expected a tuple of different ones, numbered 0 to {len(labels) - 1}"
            )
        try:
            energies = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"a factor of the variables {scope} needs an array of energies: {error}") from error
        if energies.shape != tuple(labels[v] for v in scope):
            raise DataError(
                f"a factor of the variables {scope} needs an energy for each labelling, got {energies.shape}"
            )
        if np.isnan(energies).any() or np.isneginf(energies).any():
            raise DataError(f"a factor of the variables {scope} has energies of NaN or -inf")
        order = sorted(range(len(scope)), key=lambda axis: scope[axis])
        key = tuple(scope[axis] for axis in order)
        total[key] = np.add(total.get(key, 0.0), energies.transpose(order), order="C")
        if not np.isfinite(total[key]).any():
            raise DataError(f"no labelling of the variables {key} is possible")
    return tuple(total.items())


def children_of(
    factors: Sequence[Factor], scopes: Sequence[tuple[int, ...]], given: Sequence[int | None] | None
) -> tuple[int | None, ...]:
    """The child of each factor, from those of the scopes that were summed up to them."""
    if given is None:
        return (None,) * len(factors)
    fitting = isinstance(given, Sequence) and len(given) == len(scopes)
    if not fitting or any(c is not None and c not in s for c, s in zip(given, scopes, strict=True)):
        some = list(given)[:8] if fitting else given
        raise DataError(f"children {some!r}; expected a list with, for each factor, a variable of its scope or None")
    known: dict[tuple[int, ...], list[int | None]] = {}
    for scope, child in zip(scopes, given, strict=True):
        known.setdefault(tuple(sorted(scope)), []).append(child)
    return tuple(known[scope][0] if len(known[scope]) == 1 else None for scope, _ in factors)


def require_conditional(names: Sequence[object], factors: Sequence[Factor], children: Sequence[int | None]) -> None:
    """Raise DataError unless the tables that have a child sum to 1 over it."""
    for (scope, energies), child in zip(factors, children, strict=True):
        if child is not None and not (np.abs(np.exp(-energies).sum(scope.index(child)) - 1) <= CONDITIONAL).all():
            raise DataError(f"the table of {names[child]!r} has to hold probabilities that sum to 1 over its states")


def require_no_cycle(
    name: str, names: Sequence[object], scopes: Sequence[tuple[int, ...]], children: Sequence[int | None]
) -> None:
    """Raise DataError if a child is its own ancestor."""
    families = zip(children, scopes, strict=True)
    parents = {child: {v for v in scope if v != child} for child, scope in families if child is not None}
    while parents:
        ready = [v for v, others in parents.items() if not others & parents.keys()]
        if not ready:
            some = ", ".join(repr(names[v]) for v in list(parents)[:5])
            raise DataError(f"{name}: a cycle among {some}; a Bayesian network has none")
        for v in ready:
            del parents[v]
