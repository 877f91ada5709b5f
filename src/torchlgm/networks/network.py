"""A discrete network: named variables with named states, and factors of any number of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchlgm.errors import DataError, EvidenceError
from torchlgm.inference import Beliefs, Exact, Method
from torchlgm.model import LGM, Observed
from torchlgm.networks.layered import Factor, Layered, Place, layered
from torchlgm.networks.posteriors import Posteriors, posteriors


class Network:
    """Variables with names and states, and factors: energies `-log p` of the labellings of some variables.

    `variables` maps names to states. A factor is a pair of variables, by number, and an array with an axis for each of
    them; an energy of inf is impossible. The network's distribution is the normalised product of exp(-energies).

    >>> rain, wet = -np.log([0.8, 0.2]), -np.log([[0.9, 0.1], [0.25, 0.75]])
    >>> network = Network({"rain": ["no", "yes"], "grass": ["dry", "wet"]}, [((0,), rain), ((0, 1), wet)])
    >>> network
    Network(2 variables, 2 factors of up to 2)
    """

    def __init__(self, variables: Mapping[Any, Sequence[Hashable]], factors: Iterable[Factor]) -> None:
        self.variables = {name: tuple(states) for name, states in variables.items()}
        for name, states in self.variables.items():
            if not states or len(set(states)) < len(states):
                raise DataError(f"variable {name!r} has the states {list(states)}; expected one or more, all different")
        self.labels = tuple(len(states) for states in self.variables.values())
        self.factors = _summed(self.labels, factors)

    @cached_property
    def layered(self) -> Layered:
        """The network as a layered model, made when it is first needed."""
        return layered(self.labels, self.factors)

    @property
    def model(self) -> LGM:
        return self.layered.model

    @property
    def places(self) -> tuple[Place, ...]:
        """Variable v is node `places[v][1]` of layer `places[v][0]` of the model; None if it has one state."""
        return self.layered.places

    def number(self, name: Hashable) -> int:
        """Which variable has this name."""
        if name not in self._numbers:
            some = ", ".join(repr(n) for n in list(self.variables)[:8])
            raise EvidenceError(f"no variable {name!r}; the network has {some}{', ...' * (len(self.variables) > 8)}")
        return self._numbers[name]

    @cached_property
    def _numbers(self) -> dict[Hashable, int]:
        return {name: v for v, name in enumerate(self.variables)}

    def codes(self, evidence: Any) -> np.ndarray:
        """Evidence as labels `(rows, variables)`, -1 = not observed.

        `evidence` is a DataFrame, or a mapping, with a column of states for each variable observed, None or NaN where
        one is missing; or such an array of labels itself.
        """
        if hasattr(evidence, "columns"):
            evidence = {name: evidence[name].to_numpy(dtype=object, na_value=None) for name in evidence.columns}
        if not isinstance(evidence, Mapping):
            return self._checked_codes(np.asarray(evidence))
        columns = {self.number(name): np.asarray(column, dtype=object) for name, column in evidence.items()}
        rows = {len(column) if column.ndim == 1 else -1 for column in columns.values()}
        if len(rows) != 1 or -1 in rows:
            raise EvidenceError("evidence needs one column of states for each variable, all of one length")
        codes = np.full((rows.pop(), len(self.labels)), -1)
        for v, column in columns.items():
            codes[:, v] = self._coded(v, column)
        return codes

    def _coded(self, variable: int, column: np.ndarray) -> list[int]:
        name, states = list(self.variables.items())[variable]
        known: dict[Any, int] = {state: label for label, state in enumerate(states)}
        for state in set(column.tolist()) - known.keys():
            if state is not None and state == state:
                raise EvidenceError(f"variable {name!r} has no state {state!r}; expected one of {list(states)}")
        return [known.get(state, -1) for state in column.tolist()]

    def _checked_codes(self, codes: np.ndarray) -> np.ndarray:
        if codes.ndim != 2 or codes.shape[1] != len(self.labels):
            raise EvidenceError(
                f"evidence of type or shape {codes.shape}; expected a DataFrame, a mapping from names to columns, or "
                f"labels (rows, {len(self.labels)})"
            )
        if codes.dtype.kind == "f":
            codes = np.where(np.isnan(codes), -1, codes)
        whole = codes.dtype.kind in "iub" or (codes.dtype.kind == "f" and bool((codes == codes.round()).all()))
        if not whole or (codes < -1).any() or (codes >= np.array(self.labels)).any():
            raise EvidenceError("labels must be whole numbers below the number of states of their variable, or -1")
        return codes.astype(np.int64)

    def evidence(self, *samples: Mapping[Hashable, Hashable]) -> dict[str, Observed]:
        """States of variables, one mapping for each sample, as evidence for the model."""
        names = {name: None for sample in samples for name in sample}
        columns = {name: [sample.get(name) for sample in samples] for name in names}
        codes = self.codes(columns) if columns else np.full((len(samples), len(self.labels)), -1)
        return self.observed(codes)

    def observed(self, codes: np.ndarray) -> dict[str, Observed]:
        """Labels `(rows, variables)`, -1 = not observed, as evidence for the model."""
        layers = {layer.name: layer.nodes for layer in self.model.graph.layers}
        values: dict[str, np.ndarray] = {}
        for v, place in enumerate(self.places):
            if place is not None and (codes[:, v] >= 0).any():
                values.setdefault(place[0], np.full((len(codes), layers[place[0]]), -1))[:, place[1]] = codes[:, v]
        values = values or {next(iter(layers)): np.full((len(codes), next(iter(layers.values()))), -1)}
        tensors = {name: torch.from_numpy(labels) for name, labels in values.items()}
        return {name: Observed(labels.clamp(min=0), labels >= 0) for name, labels in tensors.items()}

    def posteriors(
        self,
        evidence: Any,
        variables: Sequence[Hashable] | None = None,
        likelihoods: Mapping[Hashable, Any] | None = None,
        method: Method | Exact | None = None,
        device: str | torch.device = "cpu",
        progress: Callable[[int, int], None] | None = None,
    ) -> Posteriors:
        """What is believed about all `variables`, or those named, given each row of `evidence`, see `codes`.

        `likelihoods` maps variables to soft evidence `(rows, states)`: how likely what was seen is in each state. With
        `method=None` inference is exact where the cliques of a junction tree are small, and otherwise loopy belief
        propagation. `progress(rows done, rows)` is called after each block of rows.

        >>> rain, wet = -np.log([0.8, 0.2]), -np.log([[0.9, 0.1], [0.25, 0.75]])
        >>> network = Network({"rain": ["no", "yes"], "grass": ["dry", "wet"]}, [((0,), rain), ((0, 1), wet)])
        >>> network.posteriors({"grass": ["wet", "dry", None]})["rain"][:, 1]
        tensor([0.6522, 0.0649, 0.2000], dtype=torch.float64)
        """
        return posteriors(self, evidence, variables, likelihoods, method, device, progress)

    def marginals(self, beliefs: Beliefs) -> list[Tensor]:
        """Probabilities `(B, states)` of each variable."""
        one = beliefs.mrf.like.new_ones(beliefs.mrf.batch, 1)
        return [one if at is None else beliefs[at[0]].probs[:, at[1]] for at in self.places]

    def map_labels(self, beliefs: Beliefs) -> Tensor:
        """The most probable labelling, `(B, variables)`, from max-product or exact inference."""
        best = beliefs.map().labels
        none = beliefs.mrf.like.new_zeros(beliefs.mrf.batch, dtype=torch.long)
        return torch.stack([none if at is None else best[at[0]][:, at[1]] for at in self.places], 1)

    def log_z(self, beliefs: Beliefs) -> Tensor:
        """Natural log of the network's sum over all labellings that agree with the evidence, `(B,)`.

        An EvidenceError if there is none that is possible.
        """
        log_z = beliefs.log_z - self.layered.constant
        impossible = (log_z < -self.layered.forbidden / 2).nonzero().flatten().tolist()
        if impossible:
            raise EvidenceError(impossible_rows(impossible))
        return log_z

    def __repr__(self) -> str:
        most = max((len(scope) for scope, _ in self.factors), default=0)
        return f"Network({len(self.labels)} variables, {len(self.factors)} factors of up to {most})"


def impossible_rows(rows: Sequence[int]) -> str:
    some = ", ".join(map(str, rows[:5])) + (", ..." if len(rows) > 5 else "")
    return f"the evidence of {len(rows)} rows has probability 0 (rows {some}); change what is observed, or the tables"


def network_of(labels: Sequence[int], factors: Iterable[Factor]) -> Network:
    """The network of numbered variables with so many `labels` each, and the sum of the energies of `factors`."""
    return Network({v: tuple(range(k)) for v, k in enumerate(labels)}, factors)


def _summed(labels: Sequence[int], factors: Iterable[Factor]) -> tuple[Factor, ...]:
    """One factor for each set of variables, which are in ascending order."""
    total: dict[tuple[int, ...], np.ndarray] = {}
    for scope, given in factors:
        energies = np.asarray(given, dtype=np.float64)
        if len(set(scope)) < len(scope) or any(not 0 <= v < len(labels) for v in scope):
            raise DataError(f"a factor of variables {scope}; expected different ones, 0 to {len(labels) - 1}")
        if energies.shape != tuple(labels[v] for v in scope):
            raise DataError(
                f"a factor of the variables {scope} needs an energy for each labelling, got {energies.shape}"
            )
        if np.isnan(energies).any() or np.isneginf(energies).any():
            raise DataError(f"a factor of the variables {scope} has energies of NaN or -inf")
        order = sorted(range(len(scope)), key=lambda axis: scope[axis])
        key = tuple(scope[axis] for axis in order)
        total[key] = total.get(key, 0.0) + energies.transpose(order)
        if not np.isfinite(total[key]).any():
            raise DataError(f"no labelling of the variables {key} is possible")
    return tuple(total.items())
