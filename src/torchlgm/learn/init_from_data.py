"""Where learning starts: unaries from the data, so that a node that nothing is known about has the data's mean."""

from __future__ import annotations

import torch
from torch import Tensor

from torchlgm._utils.arrays import as_tensor
from torchlgm._utils.validate import check_positive
from torchlgm.errors import TrainingError
from torchlgm.model import LGM, encode
from torchlgm.spec import Graph


def start_from_data(
    model: LGM, layer: str, values: object, pseudo_count: float = 1.0, weights: Tensor | None = None
) -> None:
    """Set the unaries of a layer to minus the log-odds of the data, in place.

    Parameters
    ----------
    model : LGM
        The model to change.
    layer : str
        The layer.
    values : Tensor or array_like
        What the layer takes as evidence, `(N, *shape)`; NaN = missing, which does not count. For the classes of a
        single output node, pass `targets[:, None]`.
    pseudo_count : float
        Samples with all labels alike that are added, so that energies of constant nodes stay finite.
    weights : Tensor, optional
        How often each sample counts, `(N,)`.
    """
    check_positive("pseudo_count", pseudo_count, error=TrainingError)
    graph: Graph = model.graph
    graph.layer(layer)
    unary = model.unary[layer]
    q, free = encode(graph, {layer: values}, torch.float64, torch.device("cpu"))[layer]
    count = torch.ones(len(q), dtype=torch.float64) if weights is None else _checked(weights, len(q))
    count = count.reshape(-1, 1, 1)
    seen = count.sum(0) if free is None else ((~free).unsqueeze(-1) * count).sum(0)
    more = pseudo_count / graph.layer(layer).labels
    counts = (q * count).sum(0)
    rest = seen - counts.sum(-1, keepdim=True)  # of label 0
    with torch.no_grad():
        unary.copy_(torch.log(rest + more) - torch.log(counts + more))


def _checked(weights: object, samples: int) -> Tensor:
    """Finite weights `(N,)` in float64, none of them negative."""
    values = as_tensor("weights", weights).cpu().double()
    if tuple(values.shape) != (samples,):
        raise TrainingError(f"weights shaped {tuple(values.shape)}; expected one for each of the {samples} samples")
    wrong = ~(values.isfinite() & (values >= 0))
    if wrong.any():
        raise TrainingError(f"a weight is {values[wrong][0]:g}; expected finite numbers >= 0")
    return values
