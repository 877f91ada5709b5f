"""Any column from all others: its probabilities, and which seen entries look wrong."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from torchlgm._utils.validate import check_int
from torchlgm.errors import InferenceError
from torchlgm.inference import solve
from torchlgm.joint.inputs import InputNodes, Table, column_numbers, known_rows, names_of, posterior_of
from torchlgm.joint.star import conditionals_of
from torchlgm.posterior import Posterior

TINY = 1e-30


def predict_column(model: Posterior | Table, X: Any, column: Any, y: Any = None) -> Tensor:
    """Probabilities `(N, labels)` of a column given all others; what stands in the column itself does not count.

    `y` `(N,)` are labels of the target that are known, -1 where not; None asks without the class. A column is named, or
    numbered.
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

    @property
    def of_rows(self) -> Tensor:
        """The pseudo-log-likelihood of each row per seen entry, `(N,)`; NaN for a row without any."""
        return self.log_probs.nanmean(1)

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
    return LeftOut(log_probs.cpu(), label.cpu(), best.cpu())


def _target(posterior: Posterior, y: Any, count: int) -> Tensor:
    labels = torch.as_tensor(y)
    like = posterior.model.unary[posterior.target]
    number = posterior.model.graph.layer(posterior.target).labels
    if labels.shape != (count,) or bool((labels.long() >= number).any()) or bool((labels.long() < -1).any()):
        raise InferenceError(
            f"y is shaped {tuple(labels.shape)}; expected ({count},) labels 0 to {number - 1}, -1 where not known"
        )
    labels = labels.long().to(like.device)
    one_hot = torch.nn.functional.one_hot(labels.clamp(min=0), number).to(like.dtype)
    shape = posterior.model.graph.layer(posterior.target).sizes
    return one_hot.masked_fill((labels < 0).unsqueeze(1), torch.nan).reshape(count, *shape, number)
