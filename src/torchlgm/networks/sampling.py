"""Rows drawn from a Bayesian network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from torchlgm._utils.machine import physical_memory
from torchlgm._utils.validate import check_int
from torchlgm.errors import DataError, TooLargeError

if TYPE_CHECKING:
    from torchlgm.networks.network import Network

ENTRY = 8  # bytes of a label


def draw(network: Network, rows: int, seed: int = 0) -> np.ndarray:
    """See `Network.sample`."""
    if not network.is_bayesian:
        raise DataError("only rows of Bayesian networks can be drawn variable by variable, and this one is none")
    rows = check_int("rows", rows, error=DataError)
    if rows * len(network.labels) * ENTRY > physical_memory():
        raise TooLargeError(f"{rows:,} rows of {len(network.labels)} variables do not fit into memory; draw fewer")
    rng = np.random.default_rng(check_int("seed", seed, 0, error=DataError))
    codes = np.full((rows, len(network.labels)), -1)
    left = {child: n for n, child in enumerate(network.children) if child is not None}
    while left:
        for child, n in list(left.items()):
            scope, energies = network.factors[n]
            parents = [v for v in scope if v != child]
            if not left.keys() & set(parents):
                probs = np.moveaxis(np.exp(-energies), scope.index(child), -1)[tuple(codes[:, v] for v in parents)]
                total = np.broadcast_to(probs, (rows, network.labels[child])).cumsum(1)
                codes[:, child] = (rng.random((rows, 1)) * total[:, -1:] >= total[:, :-1]).sum(1)
                del left[child]
    return codes
