"""Class probabilities and figures of a model on data, batch by batch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchlgm.learn.objectives import Objective, nll
from torchlgm.learn.samples import Labelled


def predict_log_probs(model: nn.Module, objective: Objective, inputs: Tensor, batch: int = 1000) -> Tensor:
    """log of the target's beliefs `(N, nodes, K)`, batch by batch on the model's device."""
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    with torch.no_grad():
        log_probs = torch.cat([objective.log_probs(model, x.to(device)) for x in inputs.split(batch)])
    model.train(training)
    return log_probs


def evaluate_loss(model: nn.Module, objective: Objective, data: Labelled, batch: int = 1000) -> tuple[float, float]:
    """Negative log-likelihood, without smoothing, and accuracy over the known target nodes."""
    log_probs = predict_log_probs(model, objective, data.inputs, batch)
    targets = data.targets.to(log_probs.device)
    labels = targets
    if targets.is_floating_point():
        targets = targets.reshape(log_probs.shape)
        labels = torch.where(targets.isnan().any(-1), -1, targets.argmax(-1))
    labels = labels.reshape(log_probs.shape[:2])
    right = log_probs.argmax(-1) == labels
    return float(nll(log_probs, targets)), float(right[labels >= 0].double().mean())
