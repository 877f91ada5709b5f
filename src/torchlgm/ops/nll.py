"""What labels cost under beliefs: on a GPU one kernel, and one for the gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from torchlgm.ops.autograd import call
from torchlgm.ops.backend import by_triton
from torchlgm.ops.compact import full


def label_nll(inflow: Tensor, unary: Tensor, labels: Tensor) -> Tensor:
    """Mean over samples of the summed negative log-likelihood of labels `(B, nodes)`, of which -1 is unknown.

    Log-odds are `inflow - unary`, of which the former is `(B, nodes, K-1)`, the latter that or `(1, nodes, K-1)`.
    """
    if not by_triton(inflow):
        return _plain(inflow, unary, labels)
    if unary.shape[0] > 1:
        inflow, unary = inflow - unary, torch.zeros_like(unary[:1])
    return call(_LabelNLL(), [inflow, unary, labels])[0]


def _plain(inflow: Tensor, unary: Tensor, labels: Tensor) -> Tensor:
    log_probs = torch.log_softmax(full(inflow - unary), -1).flatten(0, 1)
    return F.nll_loss(log_probs, labels.flatten(), ignore_index=-1, reduction="sum") / len(inflow)


class _LabelNLL:
    """See `ops.autograd.FusedFunction`."""

    def forward(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor | None]]:
        from torchlgm.ops.triton.launcher import score
        from torchlgm.ops.triton.precompile import gathering

        self.calls = gathering.get()  # now, since gradients are computed in another thread
        inflow, unary, labels = (x.detach() for x in tensors)
        costs = score(inflow, unary, labels, self.calls)
        return [costs.squeeze(1) if costs.shape[1] == 1 else costs.sum(1)], [inflow, unary, labels]

    def backward(
        self, saved: Sequence[Any], wanted: Sequence[bool], grads: Sequence[Tensor | None]
    ) -> list[Tensor | None]:
        from torchlgm.ops.triton.launcher import score_backward

        (outer,), (inflow, unary, labels) = grads, saved
        assert outer is not None
        return [*score_backward(outer, inflow, unary, labels, wanted, self.calls), None]

    def eager(self, tensors: Sequence[Any]) -> list[Tensor]:
        return [_plain(*tensors)]
