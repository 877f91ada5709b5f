"""Why a model believes what it does: the evidence of observed nodes for and against a label; beliefs by iteration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from torchlgm.errors import InferenceError
from torchlgm.inference import Beliefs, Exact, Method, infer, lbp, solve
from torchlgm.model import LGM
from torchlgm.mrf import MRF, Clamp, Evidence
from torchlgm.ops import probs


def influence(
    model: LGM,
    evidence: Evidence,
    source: str,
    target: str,
    method: Method | Exact | None = None,
    node: int = 0,
    batch_size: int = 256,
) -> Tensor:
    """How much each observed node of `source` moved the log-odds of each label of a node of `target`.

    `L_k(evidence) - L_k(evidence without node i)` with `L_k = log p(k) - log(1 - p(k))`. A node that is withdrawn is
    missing, not set to some value: the model has a belief about it. For hard evidence and exact inference this is the
    weight of evidence, `log p(x_i | k, rest) - log p(x_i | not k, rest)`; it is not additive over nodes that carry the
    same information. Takes an inference for every observed node.

    Parameters
    ----------
    model : LGM
        The model.
    evidence : mapping
        As for `torchlgm.infer`.
    source, target : str
        The layer whose evidence is withdrawn, and the layer whose beliefs are compared.
    method : Method or Exact, optional
        `lbp()` unless another one is given.
    node : int
        Which node of the target.
    batch_size : int
        How many inferences to run at a time.

    Returns
    -------
    Tensor
        `(B, *source shape, K)`: above 0 for the label, below 0 against it, 0 at nodes that were not observed.

    Examples
    --------
    >>> import torch, torchlgm as lgm
    >>> model = lgm.LGM(lgm.zoo.classification_rbm(visible=3, hidden=2, classes=4))
    >>> seen = torch.tensor([[1.0, 0.0, torch.nan]])
    >>> moved = influence(model, {"visible": seen}, "visible", "label", lgm.exact())
    >>> moved.shape, moved[0, 2]
    (torch.Size([1, 3, 4]), tensor([0., 0., 0., 0.]))
    """
    method = method or lbp()
    if batch_size < 1:
        raise InferenceError(f"batch_size={batch_size}; expected at least 1")
    with torch.no_grad():
        mrf = _checked(model, evidence, source, target, node)
        complete = log_odds(solve(mrf, method, want=(target,)), target, node)
        clamp = mrf.clamps[source]
        samples, nodes = (~_free(clamp)).nonzero(as_tuple=True)
        moved = complete.new_zeros(*clamp.q.shape[:2], complete.shape[-1])
        for rows, left_out in zip(samples.split(batch_size), nodes.split(batch_size), strict=True):
            without = infer(model, _withdrawn(mrf.clamps, source, rows, left_out), method, want=(target,))
            moved[rows, left_out] = complete[rows] - log_odds(without, target, node)
    return moved.unflatten(1, mrf.shapes[source])


def quick_influence(
    model: LGM, evidence: Evidence, source: str, target: str, method: Method | None = None, node: int = 0
) -> Tensor:
    """`influence` to first order: the gradient of the log-odds in what was observed of each node, times how far that
    is from the belief of the rest of the model about the node.

    Takes two inferences and K gradients for any number of nodes. The belief of the rest is that of the node
    given the beliefs of all other layers; with one iteration no message has come back to the node, and only its unary
    counts. Good where each node matters little; poor where few nodes decide, as when most are missing. Parameters and
    what is returned are those of `influence`.
    """
    method = method or lbp()
    _require_iterations(method)
    with torch.no_grad():
        mrf = _checked(model, evidence, source, target, node)
    with torch.inference_mode(False), torch.enable_grad():
        clamps = {n: Clamp(c.q.clone(), None if c.free is None else c.free.clone()) for n, c in mrf.clamps.items()}
        seen, free = clamps[source]
        beliefs = infer(model, {**clamps, source: Clamp(seen.requires_grad_(), free)}, method)
        odds = log_odds(beliefs, target, node).sum(0)
        slopes = [torch.autograd.grad(odd, seen, retain_graph=True)[0] for odd in odds]
    with torch.no_grad():
        rest = _expected(model, beliefs, source, use_messages=method.iterations > 1)
        moved = torch.stack([(slope * (seen - rest)).sum(-1) for slope in slopes], -1)
        moved = moved if free is None else moved.masked_fill(free.unsqueeze(-1), 0)
    return moved.unflatten(1, mrf.shapes[source])


def trace(model: LGM, evidence: Evidence | None, method: Method, want: Iterable[str]) -> dict[str, Tensor]:
    """Beliefs after 1, 2, ... `method.iterations` iterations.

    A tolerance is left out of account, so that every sample makes all iterations.

    Parameters
    ----------
    model : LGM
        The model.
    evidence : mapping or None
        As for `torchlgm.infer`.
    method : Method
    want : iterable of str
        Layers.

    Returns
    -------
    dict
        `(T, B, *shape, K)` for each layer in `want`.

    Examples
    --------
    >>> import torchlgm as lgm
    >>> model = lgm.LGM(lgm.zoo.grid(2, 3))
    >>> trace(model, {}, lgm.lbp(iterations=4), ["cells"])["cells"].shape
    torch.Size([4, 1, 1, 2, 3, 2])
    """
    _require_iterations(method)
    want = (want,) if isinstance(want, str) else tuple(want)
    one = replace(method, iterations=1, tolerance=None, gradient="unroll")
    rows: dict[str, list[Tensor]] = {layer: [] for layer in want}
    with torch.no_grad():
        mrf = model.condition(evidence)
        beliefs = None
        for _ in range(method.iterations):
            beliefs = solve(mrf, one, start=None if beliefs is None or not mrf.links else beliefs.messages)
            for layer in want:
                rows[layer].append(beliefs[layer].probs)
    return {layer: torch.stack(steps) for layer, steps in rows.items()}


def log_odds(beliefs: Beliefs, layer: str, node: int = 0) -> Tensor:
    """`log p(k) - log(1 - p(k))` of each label of a node, counted row by row: `(B, K)`."""
    return odds_of(beliefs[layer].log_probs.flatten(1, -2)[:, node])


def odds_of(log_probs: Tensor) -> Tensor:
    """Log-odds of each label against all others, of log-probabilities `(B, K)`."""
    labels = log_probs.shape[-1]
    same = torch.eye(labels, dtype=torch.bool, device=log_probs.device)
    return log_probs - log_probs.unsqueeze(-2).expand(-1, labels, -1).masked_fill(same, -torch.inf).logsumexp(-1)


def _require_iterations(method: object) -> None:
    if not isinstance(method, Method):
        raise InferenceError(f"method={method!r} has no iterations; expected lbp(), trw() or mean_field()")


def _checked(model: LGM, evidence: Evidence, source: str, target: str, node: int) -> MRF:
    mrf = model.condition(evidence)
    if source not in mrf.clamps:
        raise InferenceError(f"source='{source}' has no evidence to weigh; there is some about {', '.join(mrf.clamps)}")
    if target not in mrf.shapes or target in mrf.clamps:
        free = ", ".join(name for name in mrf.shapes if name not in mrf.clamps)
        raise InferenceError(f"target='{target}' is unknown or observed; expected one of {free}")
    nodes = model.graph.layer(target).nodes
    if not 0 <= node < nodes:
        raise InferenceError(f"node={node}; layer '{target}' has nodes 0 to {nodes - 1}")
    return mrf


def _expected(model: LGM, beliefs: Beliefs, layer: str, use_messages: bool) -> Tensor:
    """Probabilities `(1 or B, nodes, K-1)` of a layer's nodes from their unaries and, with `use_messages`, the beliefs
    about the other layers."""
    if not use_messages:
        return probs(-model.unary[layer]).unsqueeze(0)
    others = {name: Clamp(b.probs.flatten(1, -2)[..., 1:]) for name, b in beliefs.items() if name != layer}
    return infer(model, others, lbp(iterations=1), want=(layer,))[layer].probs.flatten(1, -2)[..., 1:]


def _free(clamp: Clamp) -> Tensor:
    return clamp.q.new_zeros(clamp.q.shape[:2], dtype=torch.bool) if clamp.free is None else clamp.free


def _withdrawn(clamps: Mapping[str, Clamp], source: str, samples: Tensor, nodes: Tensor) -> dict[str, Clamp]:
    """The evidence of these samples `(n,)`, each without one node `(n,)` of `source`."""
    taken = {
        name: Clamp(clamp.q[samples], None if clamp.free is None else clamp.free[samples])
        for name, clamp in clamps.items()
    }
    rows = torch.arange(len(samples), device=samples.device)
    q, free = taken[source].q.clone(), _free(clamps[source])[samples].clone()
    q[rows, nodes], free[rows, nodes] = 0, True
    return {**taken, source: Clamp(q, free)}
