"""Tables of evidence about named variables: states of columns, likelihoods, and what is impossible."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from torchlgm._utils.arrays import as_tensor
from torchlgm.errors import EvidenceError

if TYPE_CHECKING:
    from torchlgm.networks.network import Network


def codes_of(network: Network, evidence: Any) -> np.ndarray:
    """See `Network.codes`."""
    if hasattr(evidence, "columns"):
        twice = [name for name, new in zip(evidence.columns, ~evidence.columns.duplicated(), strict=True) if not new]
        if twice:
            raise EvidenceError(f"column {twice[0]!r} is there twice; keep one of them")
        codes = np.full((len(evidence), len(network.labels)), -1)
        for name in evidence.columns:
            v = network.number(name)
            try:
                numbers, states = evidence[name].factorize()  # -1 = missing
            except TypeError as error:
                raise EvidenceError(f"column {name!r} has something else than states: {error}") from error
            codes[:, v] = np.array([*_labels(network, v, list(states)), -1])[numbers]
        return codes
    if not isinstance(evidence, Mapping):
        return _checked(network, evidence)
    columns = {network.number(name): np.asarray(column, dtype=object) for name, column in evidence.items()}
    if all(column.ndim == 0 for column in columns.values()):  # one query
        columns = {v: column.reshape(1) for v, column in columns.items()}
    rows = {len(column) if column.ndim == 1 else -1 for column in columns.values()} or {1}
    if len(rows) != 1 or -1 in rows:
        raise EvidenceError("evidence needs one column of states for each variable, all of one length")
    codes = np.full((rows.pop(), len(network.labels)), -1)
    for v, column in columns.items():
        values = column.tolist()
        try:
            present = [state for state in set(values) if not _is_missing(state)]
        except TypeError as error:
            raise EvidenceError(
                f"column {list(network.variables)[v]!r} has something else than states: {error}"
            ) from error
        known = dict(zip(present, _labels(network, v, present), strict=True))
        codes[:, v] = [known.get(state, -1) for state in values]
    return codes


def _is_missing(state: object) -> bool:
    try:
        return state is None or bool(state != state)  # NaN
    except TypeError:  # NA of pandas is neither
        return True


def _labels(network: Network, variable: int, given: list[Any]) -> list[int]:
    name, states = list(network.variables.items())[variable]
    known: dict[Any, int] = {state: label for label, state in enumerate(states)}
    for state in given:
        if state not in known:
            text = not isinstance(state, str) and all(isinstance(own, str) for own in states)
            hint = "; they are text: read the table with dtype=str" if text else ""
            raise EvidenceError(f"variable {name!r} has no state {state!r}; expected one of {list(states)}{hint}")
    return [known[state] for state in given]


def _checked(network: Network, given: Any) -> np.ndarray:
    if isinstance(given, Tensor | np.ma.MaskedArray):
        given = as_tensor("evidence", given, missing=-1).detach().cpu()
    variables = len(network.labels)
    codes: np.ndarray = np.zeros(0)
    with suppress(ValueError):  # rows of different lengths
        codes = np.asarray(given)
    if codes.ndim != 2 or codes.shape[1] != variables:
        shape = f" of shape {tuple(given.shape)}" if hasattr(given, "shape") else ""
        raise EvidenceError(
            f"evidence of type {type(given).__name__}{shape}; expected a DataFrame, a mapping from names to columns of "
            f"states or to single states, or an array of labels (rows, {variables})"
        )
    if codes.dtype.kind == "f":
        codes = np.where(np.isnan(codes), -1, codes)
    whole = codes.dtype.kind in "iub" or (codes.dtype.kind == "f" and bool((codes == codes.round()).all()))
    if not whole or (codes < -1).any() or (codes >= np.array(network.labels)).any():
        raise EvidenceError("labels must be whole numbers below the number of states of their variable, or -1")
    return codes.astype(np.int64)


def states_of(network: Network, codes: Any) -> dict[Hashable, list[Hashable | None]]:
    """See `Network.states`."""
    columns = zip(network.variables.items(), _checked(network, codes).T.tolist(), strict=True)
    return {name: [*map([*states, None].__getitem__, labels)] for (name, states), labels in columns}


def soft_evidence(
    network: Network, likelihoods: Mapping[Hashable, Any], rows: int, graded: bool = False
) -> dict[int, Tensor]:
    """Likelihoods `(rows, states)` of variables by number, with their gradients if `graded`."""
    if not isinstance(likelihoods, Mapping):
        kind = type(likelihoods).__name__
        raise EvidenceError(f"likelihoods of type {kind}; expected a mapping from names to arrays (rows, states)")
    soft = {}
    for name, given in likelihoods.items():
        v = network.number(name)
        values = given.double().cpu() if isinstance(given, Tensor) else torch.from_numpy(_floats(name, given))
        if tuple(values.shape) != (rows, network.labels[v]):
            raise EvidenceError(
                f"likelihoods of {name!r} are shaped {tuple(values.shape)}; expected {(rows, network.labels[v])}"
            )
        if not bool(torch.isfinite(values).all()) or bool((values < 0).any()):
            raise EvidenceError(f"likelihoods of {name!r} must be finite numbers >= 0")
        soft[v] = values if graded else values.detach()
    return soft


def _floats(name: Hashable, given: Any) -> np.ndarray:
    try:
        return np.array(given, np.float64)
    except (TypeError, ValueError) as error:
        raise EvidenceError(f"likelihoods of {name!r} must be numbers (rows, states): {error}") from error


def require_possible(log_evidence: Tensor) -> None:
    """Raise EvidenceError if a row has probability 0."""
    rows = log_evidence.isneginf().nonzero().flatten().tolist()
    if rows:
        some = ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
        count = "1 row" if len(rows) == 1 else f"{len(rows)} rows"
        raise EvidenceError(
            f"the evidence has probability 0 in {count} ({some}); change what is observed, or the tables"
        )
