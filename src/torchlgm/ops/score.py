"""What labels cost under beliefs: on a GPU one kernel, which leaves the gradient as well."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from torchlgm.ops.backend import by_triton
from torchlgm.ops.compact import full
from torchlgm.ops.program import call


def label_nll(belief: Tensor, labels: Tensor) -> Tensor:
    """Mean over samples of the summed negative log-likelihood of labels `(B, nodes)`, of which -1 is unknown.

    `belief` are log-odds `(B, nodes, K-1)`.
    """
    if by_triton(belief):
        return call(_LabelNLL(), [belief, labels])[0]
    return _plain(belief, labels)


def _plain(belief: Tensor, labels: Tensor) -> Tensor:
    log_probs = torch.log_softmax(full(belief), -1).flatten(0, 1)
    return F.nll_loss(log_probs, labels.flatten(), ignore_index=-1, reduction="sum") / len(belief)


class _LabelNLL:
    """See `ops.program.Program`."""

    def forward(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor | None]]:
        from torchlgm.ops.gpu import score

        costs, grad = score(tensors[0].detach(), tensors[1])
        return [costs.squeeze(1) if costs.shape[1] == 1 else costs.sum(1)], [grad]

    def backward(
        self, saved: Sequence[Tensor | None], wanted: Sequence[bool], grads: Sequence[Tensor | None]
    ) -> list[Tensor | None]:
        (grad,), (outer,) = saved, grads
        assert grad is not None
        assert outer is not None
        return [grad * outer.reshape(-1, 1, 1, 1) if wanted[0] else None, None]

    def eager(self, tensors: Sequence[Any]) -> list[Tensor]:
        return [_plain(*tensors)]
