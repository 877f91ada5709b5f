"""A discrete network: named variables with named states, and factors of any number of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchlgm._utils.validate import check_int
from torchlgm.errors import DataError, EvidenceError
from torchlgm.inference import Beliefs, Exact, Method
from torchlgm.model import LGM, Observed
from torchlgm.networks.evidence import codes_of, require_possible, states_of
from torchlgm.networks.factors import (
    Factor,
    children_of,
    list_of_factors,
    require_conditional,
    require_no_cycle,
    states_by_name,
    summed,
)
from torchlgm.networks.labellings import Labellings, most_probable
from torchlgm.networks.learning import Fit, fit, log_evidence
from torchlgm.networks.posteriors import Posteriors, posteriors
from torchlgm.networks.sampling import draw
from torchlgm.networks.solvers.layered import Layered, Place, layered


class Network:
    """Variables with names and states, and factors: energies `-log p` of the labellings of some variables.

    `variables` maps names to states. A factor is a pair of variables, by number, and an array with an axis for each of
    them; an energy of inf is impossible. The network's distribution is the normalised product of exp(-energies).
    `children` gives for each factor the variable whose conditional probabilities it holds, None if it holds none; a
    network in which every variable is one child is Bayesian.

    >>> rain, wet = -np.log([0.8, 0.2]), -np.log([[0.9, 0.1], [0.25, 0.75]])
    >>> network = Network({"rain": ["no", "yes"], "grass": ["dry", "wet"]}, [((0,), rain), ((0, 1), wet)])
    >>> network
    Network(2 variables, 2 factors of up to 2)
    """

    def __init__(
        self,
        variables: Mapping[Any, Sequence[Hashable]],
        factors: Iterable[Factor],
        children: Sequence[int | None] | None = None,
    ) -> None:
        self.variables = states_by_name(variables)
        self.labels = tuple(len(states) for states in self.variables.values())
        factors = list_of_factors(factors)
        self.factors = summed(self.labels, factors)
        scopes, names = [scope for scope, _ in factors], list(self.variables)
        self.children = children_of(self.factors, scopes, children)
        require_no_cycle("the network", names, scopes, children or [None] * len(scopes))
        require_conditional(names, self.factors, self.children)

    @property
    def is_bayesian(self) -> bool:
        """Whether each factor holds the conditional probabilities of another variable, and every variable has one."""
        return None not in self.children and sorted(v for v in self.children if v is not None) == [
            *range(len(self.labels))
        ]

    def with_factors(self, factors: Iterable[Factor]) -> Network:
        """The same variables with other tables over the same scopes."""
        return Network(self.variables, factors, self.children)

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
        if not isinstance(name, Hashable) or name not in self._numbers:
            some = ", ".join(repr(n) for n in list(self.variables)[:8])
            raise EvidenceError(f"no variable {name!r}; the network has {some}{', ...' * (len(self.variables) > 8)}")
        return self._numbers[name]

    @cached_property
    def _numbers(self) -> dict[Hashable, int]:
        return {name: v for v, name in enumerate(self.variables)}

    def codes(self, evidence: Any) -> np.ndarray:
        """Evidence as labels `(rows, variables)`, -1 = not observed.

        `evidence` is a DataFrame, or a mapping, with a column of states for each variable observed, None or NaN where
        one is missing; a mapping to states for a single query, `{}` if nothing is observed; or such an array of labels
        itself.
        """
        return codes_of(self, evidence)

    def states(self, codes: Any) -> dict[Hashable, list[Hashable | None]]:
        """Labels `(rows, variables)` as columns of states, None where not observed, which `pandas.DataFrame` takes."""
        return states_of(self, codes)

    def evidence(self, *samples: Mapping[Hashable, Hashable]) -> dict[str, Observed]:
        """States of variables, one mapping for each sample, as evidence for the model."""
        if not all(isinstance(sample, Mapping) for sample in samples):
            raise EvidenceError(f"samples={samples!r}; expected a mapping from names to states for each sample")
        names = {name: None for sample in samples for name in sample}
        columns = {name: [sample.get(name) for sample in samples] for name in names}
        codes = self.codes(columns) if columns else np.full((len(samples), len(self.labels)), -1)
        return self.observed(codes)

    def observed(self, codes: np.ndarray) -> dict[str, Observed]:
        """Labels `(rows, variables)`, -1 = not observed, as evidence for the model."""
        return self.layered.observed(self.codes(codes))

    def posteriors(
        self,
        evidence: Any,
        variables: Sequence[Hashable] | None = None,
        pairs: Sequence[tuple[Hashable, Hashable]] = (),
        likelihoods: Mapping[Hashable, Any] | None = None,
        method: Method | Exact | None = None,
        device: str | torch.device = "cpu",
        progress: bool | Callable[[int, int], None] = False,
        energies: Sequence[Tensor] | None = None,
    ) -> Posteriors:
        """Compute the posteriors of variables given each row of a table of evidence.

        Parameters
        ----------
        evidence : DataFrame, mapping or ndarray
            States by variable, None or NaN where not observed; see `codes`.
        variables : sequence of str, optional
            The variables to compute; None for all.
        pairs : sequence of tuple
            Pairs of variables whose joint probabilities to compute as well.
        method : Method or Exact, optional
            None answers rows exactly if their evidence leaves little enough to compute, and the others by propagation
            between clusters.
        likelihoods : mapping, optional
            Soft evidence `(rows, states)` by variable: how likely what was observed is in each state.
        device : str or torch.device
            Where to compute.
        progress : bool or callable
            Whether to show a bar, or a function that is called with the rows done and all rows after each block.
        energies : sequence of Tensor, optional
            To compute with in place of those of `factors`, in their order. Probabilities then have gradients to them,
            and to `likelihoods` that require gradients, and all rows are answered exactly.

        Returns
        -------
        Posteriors
            Probabilities `(rows, states)` by variable, and how they were computed.

        Examples
        --------
        >>> rain, wet = -np.log([0.8, 0.2]), -np.log([[0.9, 0.1], [0.25, 0.75]])
        >>> network = Network({"rain": ["no", "yes"], "grass": ["dry", "wet"]}, [((0,), rain), ((0, 1), wet)])
        >>> network.posteriors({"grass": ["wet", "dry", None]})["rain"][:, 1]
        tensor([0.6522, 0.0649, 0.2000], dtype=torch.float64)
        """
        return posteriors(self, evidence, variables, pairs, likelihoods, method, device, progress, energies)

    def map(
        self, evidence: Any, likelihoods: Mapping[Hashable, Any] | None = None, method: Method | Exact | None = None
    ) -> Labellings:
        """Find the most probable labelling of all variables given each row of a table of evidence.

        Parameters
        ----------
        evidence, likelihoods
            As for `posteriors`.
        method : Method or Exact, optional
            None computes exactly where that is feasible, and otherwise by max-product message passing.

        Returns
        -------
        Labellings
            States by variable, and the log-probability of each row's labelling.

        Examples
        --------
        >>> rain, wet = -np.log([0.8, 0.2]), -np.log([[0.9, 0.1], [0.25, 0.75]])
        >>> network = Network({"rain": ["no", "yes"], "grass": ["dry", "wet"]}, [((0,), rain), ((0, 1), wet)])
        >>> network.map({"grass": ["wet", None]})["rain"]
        ['yes', 'no']
        """
        return most_probable(self, evidence, likelihoods, method)

    def log_evidence(
        self,
        evidence: Any,
        likelihoods: Mapping[Hashable, Any] | None = None,
        energies: Sequence[Tensor] | None = None,
    ) -> Tensor:
        """Compute the log of the network's sum over all that agrees with each row of evidence, exactly.

        For a Bayesian network this is log p(evidence). For another one, subtract the value for a row without evidence,
        which is log Z. Because it has gradients, PyTorch can learn any parameters of tables from rows with missing
        values.

        Parameters
        ----------
        evidence, likelihoods, energies
            As for `posteriors`; the result has gradients to the last two.

        Returns
        -------
        Tensor
            `(rows,)`, -inf where the evidence is impossible.
        """
        return log_evidence(self, evidence, likelihoods, energies)

    def fit(
        self,
        evidence: Any,
        likelihoods: Mapping[Hashable, Any] | None = None,
        weights: Any = None,
        smoothing: float = 0.0,
        iterations: int = 100,
        tolerance: float = 1e-4,
        progress: bool = False,
    ) -> Fit:
        """Fit tables to rows with missing values by expectation maximisation, starting from the present tables.

        Parameters
        ----------
        evidence, likelihoods
            As for `posteriors`.
        weights : array_like, optional
            How often each row counts, `(rows,)`.
        smoothing : float
            Added to every expected count, as a Dirichlet prior with parameters of 1 + `smoothing` does. With 0 this is
            maximum likelihood, and what is impossible stays impossible.
        iterations : int
            The most iterations.
        tolerance : float
            Stop when the mean log-evidence of a row changes by no more than this.
        progress : bool
            Whether to show a bar.

        Returns
        -------
        Fit
            The new network and its mean log-evidence. Rows too large for exact counts are counted by propagation
            between clusters, and are not `exact`.

        Examples
        --------
        >>> rain, wet = -np.log([0.5, 0.5]), -np.log([[0.9, 0.1], [0.25, 0.75]])
        >>> names = {"rain": ["no", "yes"], "grass": ["dry", "wet"]}
        >>> network = Network(names, [((0,), rain), ((0, 1), wet)], children=[0, 1])
        >>> fitted = network.fit({"rain": ["no", "no", "no", None], "grass": ["dry", "dry", None, "dry"]}).network
        >>> fitted.posteriors({"grass": ["dry"]})["rain"].round(decimals=2)
        tensor([[1., 0.]], dtype=torch.float64)
        """
        return fit(self, evidence, likelihoods, weights, smoothing, iterations, tolerance, progress)

    def sample(self, rows: int, seed: int = 0) -> np.ndarray:
        """Draw labels `(rows, variables)` from a Bayesian network; with some set to -1 they can serve as evidence."""
        return draw(self, rows, seed)

    def marginals(self, beliefs: Beliefs) -> list[Tensor]:
        """Probabilities `(B, states)` of each variable."""
        return self.layered.marginals(beliefs)

    def map_labels(self, beliefs: Beliefs) -> Tensor:
        """The most probable labelling, `(B, variables)`, from max-product or exact inference."""
        return self.layered.map_labels(beliefs)

    def log_z(self, beliefs: Beliefs) -> Tensor:
        """Natural log of the network's sum over all labellings that agree with the evidence, `(B,)`.

        An EvidenceError if there is none that is possible.
        """
        log_z = self.layered.log_z(beliefs)
        require_possible(log_z)
        return log_z

    def __repr__(self) -> str:
        most = max((len(scope) for scope, _ in self.factors), default=0)
        return f"Network({len(self.labels)} variables, {len(self.factors)} factors of up to {most})"


def network_of(
    labels: Sequence[int], factors: Iterable[Factor], children: Sequence[int | None] | None = None
) -> Network:
    """The network of numbered variables with so many `labels` each, and the sum of the energies of `factors`."""
    if not isinstance(labels, Sequence):
        raise DataError(f"labels={labels!r}; expected a list with the number of labels of each variable")
    counts = [check_int("labels", k, error=DataError, what=f" of variable {v}") for v, k in enumerate(labels)]
    return Network({v: range(k) for v, k in enumerate(counts)}, factors, children)
