"""Restricted Boltzmann machines of scikit-learn as models."""

from __future__ import annotations

from typing import Any

import torch

from torchlgm import zoo
from torchlgm.errors import DataError
from torchlgm.model import LGM


def from_bernoulli_rbm(fitted: Any) -> LGM:
    """Turn a fitted `BernoulliRBM` of scikit-learn into a model with the layers "visible" and "hidden".

    p(hidden | visible) is that of `fitted.transform`; with all of "visible" observed, log Z is minus the free energy.

    Parameters
    ----------
    fitted : sklearn.neural_network.BernoulliRBM
        A fitted machine.

    Returns
    -------
    LGM
        With the same distribution.
    """
    try:
        weights, hidden, visible = (
            torch.as_tensor(getattr(fitted, name))
            for name in ("components_", "intercept_hidden_", "intercept_visible_")
        )
    except AttributeError as error:
        raise DataError(f"{fitted!r} is not a fitted BernoulliRBM: {error}; call its fit first") from error
    if weights.shape != (len(hidden), len(visible)):
        raise DataError(f"weights shaped {tuple(weights.shape)} for {len(hidden)} hidden, {len(visible)} visible units")
    model = LGM(zoo.rbm(len(visible), len(hidden)), init="zero")
    with torch.no_grad():
        model.unary["visible"].copy_(-visible.unsqueeze(-1))
        model.unary["hidden"].copy_(-hidden.unsqueeze(-1))
        model.table["visible-hidden"].copy_(-weights.T[..., None, None])
    return model
