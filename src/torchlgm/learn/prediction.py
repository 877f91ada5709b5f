"""Answers of a predictor about many samples, batch by batch, and how good they are."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchlgm._utils.arrays import Array, as_tensor
from torchlgm._utils.validate import check_int
from torchlgm.errors import InferenceError
from torchlgm.learn.ensemble import Ensemble, by_node
from torchlgm.learn.learner import evaluation
from torchlgm.learn.objectives import nll
from torchlgm.learn.samples import Trainable, as_labelled
from torchlgm.posterior import Predictor


def predict_log_proba(predictor: nn.Module, inputs: Array, batch_size: int = 1000) -> Tensor:
    """Predict log-probabilities of the target, batch by batch, on the device of the predictor.

    Parameters
    ----------
    predictor : Posterior, Ensemble or Module
        A module other than the first two gives logits.
    inputs : Tensor or array_like
        `(N, *shape)`, NaN = missing.
    batch_size : int
        Samples at a time.

    Returns
    -------
    Tensor
        `(N, K)` for a target with one node, otherwise `(N, *shape, K)`.
    """
    batch_size = check_int("batch_size", batch_size, error=InferenceError)
    device = next(predictor.parameters()).device
    inputs = as_tensor("inputs", inputs)
    with evaluation(predictor):
        parts = [predictor(x.to(device)) for x in inputs.split(batch_size)]
    log_probs = torch.cat(parts)
    return log_probs if isinstance(predictor, Predictor | Ensemble) else torch.log_softmax(log_probs, -1)


def predict_proba(predictor: nn.Module, inputs: Array, batch_size: int = 1000) -> Tensor:
    """Predict probabilities of the target, batch by batch; arguments and result are as for `predict_log_proba`."""
    return predict_log_proba(predictor, inputs, batch_size).exp()


def evaluate_loss(predictor: nn.Module, data: Trainable, batch_size: int = 1000) -> tuple[float, float]:
    """Compute the negative log-likelihood, without smoothing, and the accuracy over the known target nodes.

    Parameters
    ----------
    predictor : Posterior, Ensemble or Module
        A module other than the first two gives logits.
    data : Data, Samples, tuple or Dataset
        Inputs and targets.
    batch_size : int
        Samples at a time.

    Returns
    -------
    loss, accuracy : float
        Means over samples, and over known nodes.
    """
    data = as_labelled("data", data)
    return loss_and_accuracy(by_node(predict_log_proba(predictor, data.inputs, batch_size)), data.targets)


def loss_and_accuracy(log_probs: Tensor, targets: Tensor) -> tuple[float, float]:
    """Of log-probabilities `(N, nodes, K)`; nodes without a target are left out."""
    loss = float(nll(log_probs, targets.to(log_probs.device)))
    targets, predicted = targets.cpu(), log_probs.argmax(-1).cpu()
    if targets.is_floating_point():
        probs = targets.reshape(log_probs.shape).double()
        weights, labels = probs.sum(-1).nan_to_num(0.0), probs.argmax(-1)
    else:
        labels = targets.reshape(log_probs.shape[:2])
        weights = labels >= 0
    right = weights * (predicted == labels)
    return loss, float(right.sum() / weights.sum())  # NaN where no target is known
