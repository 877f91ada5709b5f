"""Any column from all others: its probabilities, and which seen entries look wrong."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchlgm._utils.arrays import as_tensor
from torchlgm._utils.validate import check_int
from torchlgm.errors import InferenceError
from torchlgm.inference import solve
from torchlgm.joint.inputs import InputNodes, Table, column_numbers, known_rows, names_of, posterior_of
from torchlgm.joint.star import conditionals_of
from torchlgm.posterior import Posterior

TINY = 1e-30


def predict_column(model: Posterior | Table, X: Any, column: Any, y: Any = None) -> Tensor:
    """Probabilities of a column given all others; values in the column itself are ignored.

    Parameters
    ----------
    model : Posterior or LGMClassifier
        A model of tables, of images or of any other graph that has learned about its inputs.
    X : Tensor, DataFrame or array_like
        Rows, or inputs `(N, *shape)`, NaN = missing.
    column : str or int
        The name of a column, or the number of an input.
    y : Tensor or array_like, optional
        `(N,)` labels of the target that are known, -1 where not; None asks without the class.

    Returns
    -------
    Tensor
        `(N, labels)`.
    """
    posterior, nodes = posterior_of(model), InputNodes.of(posterior_of(model))
    number, *others = column_numbers(names_of(model), column, "column")
    if others:
        raise InferenceError(f"column={column!r}; expected one column")
    known = known_rows(model, X)
    known = known.without(torch.full((len(known.seen),), number, device=known.q.device))
    evidence: dict[str, Any] = dict(nodes.evidence(known))
    if y is not None:
        evidence[posterior.target] = _target(posterior, y, len(known.seen))
    layer, node = nodes.place(number)
    with torch.no_grad():
        beliefs = solve(posterior.model.condition(evidence), posterior.method, (layer,))
        return beliefs[layer].probs.flatten(1, -2)[:, node]


class LeftOut(NamedTuple):
    """What all other entries of a row say of each seen entry; NaN where it is missing."""

    log_probs: Tensor  # (N, columns): of what was seen
    expected: Tensor  # (N, columns): the most probable label
    expected_log_probs: Tensor  # (N, columns)
    labels: Tensor  # (columns,): how many a column has

    @property
    def of_rows(self) -> Tensor:
        """log-probabilities that no entry of a row is wrong, `(N,)`; 0 where nothing was seen.

        By Bayes' rule, if a row is as likely to have no wrong entry as to have any one, whose label then is as likely
        to be one as another: `-log(1 + sum_j 1 / (K_j p_j))` with p_j of its K_j labels for entry j.
        """
        odds = (-self.log_probs - self.labels.to(self.log_probs).log()).nan_to_num(-torch.inf)
        return -torch.nn.functional.pad(odds, (1, 0)).logsumexp(1)

    def first(self, columns: int) -> LeftOut:
        """The same of some columns alone, from the first on."""
        log_probs, expected, best, labels = (part[..., :columns] for part in self)
        return LeftOut(log_probs, expected, best, labels)

    def most_suspicious(self, n: int = 20) -> list[tuple[int, int]]:
        """Row and column of the `n` entries that are least probable."""
        check_int("n", n, error=InferenceError)
        order = self.log_probs.flatten().nan_to_num(torch.inf).argsort()
        count = min(n, int((~self.log_probs.isnan()).sum()))
        width = self.log_probs.shape[1]
        return [(i // width, i % width) for i in order[:count].tolist()]


def leave_one_out(model: Posterior | Table, X: Any) -> LeftOut:
    """The log-probability of every seen entry given all others of its row, and what was expected instead.

    An entry that lies between two labels counts with both.

    Parameters
    ----------
    model : Posterior or LGMClassifier
        A model of tables, of images or of any other graph that has learned about its inputs.
    X : Tensor, DataFrame or array_like
        Rows, or inputs `(N, *shape)`, NaN = missing.

    Returns
    -------
    LeftOut
        Of `(N, columns)` entries, images flattened.
    """
    conditionals = conditionals_of(posterior_of(model))
    known = known_rows(model, X)
    rows, columns = known.seen.nonzero(as_tuple=True)
    nothing = known.q.new_full(known.seen.shape, torch.nan)
    log_probs, best, label = nothing.clone(), nothing.clone(), nothing.clone()
    if len(rows):
        with torch.no_grad():
            probs = conditionals.left_out(known, rows, columns)
        log_probs[rows, columns] = (probs * known.q[rows, columns]).sum(1).clamp(min=TINY).log()
        most, which = probs.max(1)
        best[rows, columns], label[rows, columns] = most.log(), which.to(label.dtype)
    return LeftOut(log_probs.cpu(), label.cpu(), best.cpu(), conditionals.nodes.labels.cpu())


def _target(posterior: Posterior, y: Any, count: int) -> Tensor:
    """Known labels of a target of one node as evidence."""
    layer = posterior.model.graph.layer(posterior.target)
    if layer.nodes != 1:
        raise InferenceError(f"the target has {layer.nodes} nodes; y takes labels of one")
    labels = as_tensor("y", y).double()
    known = labels.shape == (count,) and bool((labels == labels.round()).all())
    if not known or bool((labels >= layer.labels).any()) or bool((labels < -1).any()):
        raise InferenceError(
            f"y is shaped {tuple(labels.shape)}; expected ({count},) labels 0 to {layer.labels - 1}, -1 where not known"
        )
    like = posterior.model.unary[posterior.target]
    labels = labels.long().to(like.device)
    one_hot = torch.nn.functional.one_hot(labels.clamp(min=0), layer.labels).to(like.dtype)
    return one_hot.masked_fill((labels < 0).unsqueeze(1), torch.nan).reshape(count, *layer.sizes, layer.labels)
