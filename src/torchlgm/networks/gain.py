"""Which variable to observe next: what each is expected to tell about a target."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchlgm.errors import EvidenceError
from torchlgm.networks.posteriors import as_list

if TYPE_CHECKING:
    from torchlgm.networks.network import Network


def acquire(
    network: Network, evidence: Any, target: Hashable, variables: Sequence[Hashable] | None = None, **options: Any
) -> dict[Hashable, Tensor]:
    """Expected information gain about a target of observing each of some variables, given each row of evidence.

    It is their mutual information given what a row observes.

    Parameters
    ----------
    network : Network
        The network.
    evidence : DataFrame, mapping or ndarray
        States by variable, None or NaN where not observed; see `Network.codes`.
    target : str
        The variable to learn about.
    variables : sequence of str, optional
        The variables to observe; None for all others.
    **options
        As for `Network.posteriors`.

    Returns
    -------
    dict
        The gain in nats by variable, `(rows,)`: 0 for what is observed already, and for all if the target is.

    Examples
    --------
    >>> import numpy as np
    >>> from torchlgm.networks import Network, acquire
    >>> rain, wet = -np.log([0.8, 0.2]), -np.log([[0.9, 0.1], [0.25, 0.75]])
    >>> network = Network({"rain": ["no", "yes"], "grass": ["dry", "wet"]}, [((0,), rain), ((0, 1), wet)])
    >>> acquire(network, {"grass": [None, "wet"]}, "rain")["grass"].round(decimals=3)
    tensor([0.1670, 0.0000], dtype=torch.float64)
    """
    if not hasattr(network, "posteriors"):
        raise EvidenceError(f"expected a network, got {type(network).__name__}; for a classifier see torchlgm.acquire")
    network.number(target)
    others = [name for name in network.variables if name != target]
    if variables is not None:
        others = as_list("variables", variables, "names")
    if target in others:
        raise EvidenceError(f"target {target!r} is also among the variables to observe; leave it out")
    result = network.posteriors(evidence, [], [(target, name) for name in others], **options)
    return {name: _mutual_information(result.pairs[target, name]) for name in others}


def _mutual_information(joint: Tensor) -> Tensor:
    """`(rows, a, b)` -> `(rows,)`."""
    apart = joint.sum(2, keepdim=True) * joint.sum(1, keepdim=True)
    gain = torch.special.entr(apart).sum((1, 2)) - torch.special.entr(joint).sum((1, 2))
    return gain.clamp(min=0)
