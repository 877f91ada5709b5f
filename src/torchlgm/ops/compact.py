"""Numbers for K labels kept as K-1: label 0 is implicit, fixed to 0, and takes part in every sum and maximum."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)), exact to rounding in float64 as well."""
    return F.softplus(x, threshold=40.0)


def full(x: Tensor) -> Tensor:
    """`(..., K-1)` -> `(..., K)` with the implicit 0 in front."""
    return F.pad(x, (1, 0))


def log_norm(x: Tensor) -> Tensor:
    """log sum_x exp(x) over all K labels: `(..., K-1)` -> `(..., 1)`."""
    if x.shape[-1] == 1:
        return softplus(x)
    return torch.logsumexp(full(x), -1, keepdim=True)


def largest(x: Tensor) -> Tensor:
    """max over all K labels: `(..., K-1)` -> `(..., 1)`."""
    return torch.relu(x.amax(-1, keepdim=True))


def probs(x: Tensor) -> Tensor:
    """Probabilities of the labels 1 .. K-1: `(..., K-1)` -> `(..., K-1)`."""
    if x.shape[-1] == 1:
        return torch.sigmoid(x)
    return torch.softmax(full(x), -1)[..., 1:]


def entropy(x: Tensor) -> Tensor:
    """Entropy of softmax over all K labels: `(..., K-1)` -> `(...)`."""
    return (log_norm(x) - (probs(x) * x).sum(-1, keepdim=True)).squeeze(-1)


def one_hot(labels: Tensor, k: int, dtype: torch.dtype) -> Tensor:
    """Labels `(...)` -> indicators of the labels 1 .. k: `(..., k)`."""
    return (labels.unsqueeze(-1) == torch.arange(1, k + 1, device=labels.device)).to(dtype)
