"""How probable what is seen of a row is."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchlgm.errors import TooLargeError
from torchlgm.inference import Exact, Method, exact, infer, lbp
from torchlgm.joint.inputs import InputNodes, Table, known_rows, posterior_of
from torchlgm.mrf import Evidence
from torchlgm.posterior import Posterior

CONVERGED = lbp(500, damping=0.3, tolerance=1e-5)


class LogProb(NamedTuple):
    """log p(what is seen) `(N,)`, NaN where inference did not converge, and its kind: "exact" or "estimate"."""

    value: Tensor
    kind: str


def log_prob_of_seen(model: Posterior | Table, X: Any, method: Method | Exact | None = None) -> LogProb:
    """log p of what is seen of each row, the class and missing entries summed out.

    It is log Z given the row less log Z of the model: exact where the graph allows it, else an estimate by loopy belief
    propagation that has converged, or by `method`. Values between two labels count by their expected energy, which is
    not a log-probability: it is one for labels alone.

    Parameters
    ----------
    model : Posterior or LGMClassifier
        The model; its own method of inference is not used.
    X : Tensor, DataFrame or array_like
        Rows, or inputs `(N, *shape)`, NaN = missing.
    method : Method or Exact, optional
        None for exact inference where that is possible, else loopy belief propagation to convergence.

    Returns
    -------
    LogProb
        With its kind; NaN where inference did not converge.
    """
    posterior = posterior_of(model)
    evidence = InputNodes.of(posterior).evidence(known_rows(model, X))
    if method is not None:
        return _log_prob(posterior, evidence, method)
    try:
        return _log_prob(posterior, evidence, exact())
    except TooLargeError:
        return _log_prob(posterior, evidence, CONVERGED)


def _log_prob(posterior: Posterior, evidence: Evidence, method: Method | Exact) -> LogProb:
    with torch.no_grad():
        given, without = (infer(posterior.model, known, method) for known in (evidence, {}))
        value = given.log_z - without.log_z
        if isinstance(method, Exact):
            return LogProb(value.cpu(), "exact")
        for beliefs in (given, without):
            if beliefs.converged is not None:
                value = torch.where(beliefs.converged, value, torch.nan)
        return LogProb(value.cpu(), "estimate")
