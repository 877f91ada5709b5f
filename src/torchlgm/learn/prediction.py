"""Class probabilities and figures of a model on data, batch by batch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchlgm.data.arrays import Array, as_tensor
from torchlgm.learn.objectives import Answers, answering, nll
from torchlgm.learn.samples import Labelled, check_range, source_of


def predict_log_probs(model: nn.Module, objective: Answers, inputs: Array, batch: int = 1000) -> Tensor:
    """log of the target's beliefs `(N, nodes, K)`, batch by batch on the model's device."""
    device = next(model.parameters()).device
    inputs = as_tensor("inputs", inputs)
    check_range(model, source_of(objective), inputs)
    with answering(model):
        return torch.cat([objective.log_probs(model, x.to(device)) for x in inputs.split(batch)])


def evaluate_loss(model: nn.Module, objective: Answers, data: Labelled, batch: int = 1000) -> tuple[float, float]:
    """Negative log-likelihood, without smoothing, and accuracy over the known target nodes."""
    return figures(predict_log_probs(model, objective, data.inputs, batch), data.targets)


def figures(log_probs: Tensor, targets: Tensor) -> tuple[float, float]:
    """Loss and accuracy of answers `(N, nodes, K)`."""
    loss = float(nll(log_probs, targets.to(log_probs.device)))
    targets, predicted = targets.cpu(), log_probs.argmax(-1).cpu()
    if targets.is_floating_point():
        known = targets.reshape(log_probs.shape).double()
        weights, labels = known.sum(-1).nan_to_num(0.0), known.argmax(-1)
    else:
        labels = targets.reshape(log_probs.shape[:2])
        weights = labels >= 0
    right = weights * (predicted == labels)
    return loss, right.sum().item() / weights.sum().item()
