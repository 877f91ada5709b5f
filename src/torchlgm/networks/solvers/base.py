"""What solvers of networks share: what they are asked, and what they answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from torchlgm._utils.machine import physical_memory

ROWS = {"cpu": 512, "cuda": 2**16}  # solved at once, if they fit
SHARE = {"cpu": 1 / 16, "cuda": 0.6}  # of the memory, on a GPU of what is free, that they may take
Soft = Mapping[int, Tensor]  # likelihoods (rows, states) of variables
Scopes = Sequence[tuple[int, ...]]


class Answer(NamedTuple):
    """Marginals `(rows, *states)` of each scope asked about; for each row log Z, if exact, and if converged."""

    marginals: list[Tensor]
    log_z: Tensor
    exact: Tensor
    converged: Tensor
    errors: Tensor | None = None  # (rows, scopes): how far a second opinion is; None: there is none, or no need of one
    known: Tensor | None = None  # (rows,): whether that opinion is exact; None: no


class Counts(NamedTuple):
    """log p of each row, the expected count of each labelling of each factor, and marginals of scopes asked about.

    Rows that are `large` are in none of them; `entries` are the numbers that each row would need.
    """

    log_z: np.ndarray
    counts: list[np.ndarray]
    marginals: list[np.ndarray]
    large: np.ndarray
    entries: np.ndarray


class Solver(Protocol):
    rows: int  # that are solved at once

    def solve(self, codes: Tensor, soft: Soft, asked: Scopes) -> Answer: ...


def rows_that_fit(device: torch.device, each: float) -> int:
    """How many rows are solved at once, of which each takes so many bytes."""
    kind = "cuda" if device.type == "cuda" else "cpu"
    if kind == "cuda":  # what PyTorch keeps for itself is free too
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        room = torch.cuda.mem_get_info(device)[0] + kept
    else:
        room = physical_memory()
    return max(1, min(ROWS[kind], int(SHARE[kind] * room / each)))


def joint(solver: Solver, codes: Tensor, soft: Soft, scope: tuple[int, ...], own: Tensor) -> Tensor:
    """p(first) p(others | first): the first variable of `scope`, with marginals `own`, is set to each of its labels."""
    first, others = scope[0], scope[1:]
    parts = []
    for label in range(own.shape[1]):
        given = codes.clone()
        given[:, first] = label
        rest = solver.solve(given, {v: x for v, x in soft.items() if v != first}, [others]).marginals[0]
        weight = own[:, label].reshape(-1, *[1] * len(others))
        parts.append(torch.where(weight > 0, weight * rest, 0.0))
    return torch.stack(parts, 1)
