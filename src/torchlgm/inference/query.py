"""The questions a user asks of a model: beliefs, samples, probabilities of labels, and brackets around them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from torchlgm._utils.validate import check_int
from torchlgm.errors import InferenceError
from torchlgm.inference.beliefs import Beliefs, with_observed
from torchlgm.inference.methods import Exact, Method, lbp, mean_field, require_method, trw
from torchlgm.inference.results import ExactResult, MessagePassingResult
from torchlgm.inference.rules import Message
from torchlgm.inference.run import run
from torchlgm.inference.sampling import gibbs
from torchlgm.inference.schedule import Hop
from torchlgm.mrf import MRF, Clamp, Evidence, check_labels


class Model(Protocol):
    """Anything that turns evidence into an MRF."""

    def condition(self, evidence: Evidence | None = None) -> MRF: ...


def infer(
    model: Model,
    evidence: Evidence | None = None,
    method: Method | Exact | None = None,
    want: Iterable[str] | None = None,
    start: Mapping[Hop, Message] | None = None,
) -> Beliefs:
    """Infer the beliefs of a model given evidence.

    Everything is computed in the dtype of the parameters; `torch.autocast` has no effect.

    Parameters
    ----------
    model : LGM
        Or anything with `condition(evidence) -> MRF`.
    evidence : mapping, optional
        Observed values by layer name, with a leading batch axis; NaN, or an `Observed` with a mask, where missing.
    method : Method or Exact, optional
        `lbp()` (the default), `trw()`, `mean_field()` or `exact()`.
    want : iterable of str, optional
        The layers whose beliefs are needed; whatever cannot affect them is not computed. None for all.
    start : mapping, optional
        The `messages` of an earlier answer to continue from.

    Returns
    -------
    Beliefs
        Beliefs by layer name, and everything else that was inferred.

    Examples
    --------
    >>> import torchlgm as lgm
    >>> model = lgm.LGM(lgm.zoo.dense(inputs=5, hidden=[4], classes=3))
    >>> beliefs = infer(model, {"inputs": torch.tensor([[0.0, 1.0, 0.5, torch.nan, torch.nan]])}, lgm.lbp())
    >>> beliefs["classes"].probs.shape, beliefs["inputs"].probs.shape
    (torch.Size([1, 1, 3]), torch.Size([1, 5, 2]))
    >>> beliefs["inputs"].probs[0, 2].tolist()  # what was observed is believed
    [0.5, 0.5]
    """
    if not hasattr(model, "condition"):
        raise InferenceError(f"model is of type {type(model).__name__}; expected an LGM; of an MRF ask torchlgm.solve")
    return solve(model.condition(evidence), method or lbp(), want, start)


def solve(
    mrf: MRF,
    method: Method | Exact,
    want: Iterable[str] | None = None,
    start: Mapping[Hop, Message] | None = None,
) -> Beliefs:
    """Infer the beliefs of an MRF, such as `model.condition(evidence)`.

    Parameters
    ----------
    mrf : MRF
        A batch of models over their free nodes.
    method : Method or Exact
        `lbp()`, `trw()`, `mean_field()` or `exact()`.
    want, start
        As for `infer`.

    Returns
    -------
    Beliefs
        Beliefs by layer name, and everything else that was inferred.
    """
    if not isinstance(mrf, MRF):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InferenceError(f"mrf is of type {type(mrf).__name__}; expected an MRF, as of model.condition(evidence)")
    if want is not None:
        if not isinstance(want, Iterable):
            raise InferenceError(f"want={want!r}; expected names of layers")
        want = (want,) if isinstance(want, str) else tuple(want)
        unknown = [name for name in want if not isinstance(name, str) or name not in mrf.shapes]
        if unknown:
            raise InferenceError(f"want= names unknown layer '{unknown[0]}'; the graph has {', '.join(mrf.shapes)}")
    require_method(method)
    if isinstance(method, Exact):
        return Beliefs(mrf, ExactResult(mrf, method))
    return Beliefs(mrf, MessagePassingResult(mrf, method, run(mrf, method, want, start)))


def log_prob(model: Model, evidence: Evidence | None, labels: Evidence, method: Method | Exact | None = None) -> Tensor:
    """Log-probability of labels given evidence, `log Z(evidence and labels) - log Z(evidence)`.

    With an approximate method this is a difference of two approximations.

    Parameters
    ----------
    model : LGM
        Or anything with `condition(evidence) -> MRF`.
    evidence : mapping or None
        As for `infer`.
    labels : mapping
        Labels by layer name, of layers that are not in the evidence.
    method : Method or Exact, optional
        `lbp()` unless another one is given.

    Returns
    -------
    Tensor
        `(B,)`.

    Examples
    --------
    >>> import torchlgm as lgm
    >>> model = lgm.LGM(lgm.zoo.dense(inputs=2, hidden=[3], classes=2))
    >>> x = {"inputs": torch.tensor([[1.0, 0.0]])}
    >>> each = [log_prob(model, x, {"classes": torch.tensor([[k]])}, lgm.exact()).exp() for k in (0, 1)]
    >>> round(sum(each).item(), 4)
    1.0
    """
    if not isinstance(labels, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InferenceError(f"labels={labels!r}; expected a mapping from layer names to labels")
    evidence = dict(evidence or {})
    both = sorted(set(evidence) & set(labels))
    if both:
        raise InferenceError(f"layer '{both[0]}' is in the evidence and in the labels asked about")
    joint = infer(model, {**evidence, **labels}, method)
    return joint.log_z - infer(model, evidence, method).log_z


class Bracket(NamedTuple):
    """Bounds on p(label | evidence) for every node and label of a layer: `lower` and `upper`, `(B, *shape, K)` each."""

    lower: Tensor
    upper: Tensor

    @property
    def width(self) -> Tensor:
        return self.upper - self.lower


def bracket(
    model: Model,
    evidence: Evidence | None,
    layer: str,
    below: Method | Exact | None = None,
    above: Method | Exact | None = None,
) -> Bracket:
    """Bound p(x_i = k | evidence) for the nodes i of a layer, from runs with each label clamped.

    With L and U the bounds of Z with the label clamped: L_k / (L_k + sum of the other U) <= p <= U_k / (U_k + sum of
    the other L). The bounds are tight on small models and wide on large ones; check `width`.

    Parameters
    ----------
    model : LGM
        Or anything with `condition(evidence) -> MRF`.
    evidence : mapping or None
        As for `infer`.
    layer : str
        A layer without evidence.
    below : Method or Exact, optional
        A method with a lower bound on log Z; mean field unless another one is given.
    above : Method or Exact, optional
        A method with an upper bound on log Z; tree-reweighted belief propagation unless another one is given.

    Returns
    -------
    Bracket
        Where the upper method has not converged, bounds widen to 0 and 1.

    Examples
    --------
    >>> import torchlgm as lgm
    >>> model = lgm.LGM(lgm.zoo.grid(2, 2), lgm.Init(table=0.5))
    >>> bounds = bracket(model, {}, "cells")
    >>> truth = infer(model, {}, lgm.exact())["cells"].probs
    >>> bool((bounds.lower <= truth + 1e-4).all() and (truth <= bounds.upper + 1e-4).all())
    True
    """
    below = below or mean_field(iterations=200, schedule="sweep", tolerance=1e-4)
    above = above or trw(iterations=500, schedule="sweep", damping=0.3, tolerance=1e-4)
    mrf = model.condition(evidence)
    if layer not in mrf.unary or layer in mrf.clamps:
        raise InferenceError(f"bracket needs a layer without evidence; '{layer}' is unknown or observed")
    like = mrf.unary[layer]
    nodes, k = like.shape[1:]
    lower, upper = [], []
    for node in range(nodes):
        for label in range(k + 1):
            clamps = {**mrf.clamps, layer: _one_node(like, mrf.batch, node, label)}
            clamped = model.condition(clamps)
            low, high = solve(clamped, below).log_z_lower, solve(clamped, above).log_z_upper
            if low is None or high is None:
                raise InferenceError(
                    "bracket needs a method with a lower bound (mean_field) and one with an upper (trw)"
                )
            lower.append(low)
            upper.append(high)
    shape = (mrf.batch, *mrf.shapes[layer], k + 1)
    low, high = torch.stack(lower, 1).reshape(shape), torch.stack(upper, 1).reshape(shape)
    return Bracket(_share(low, high), _share(high, low))


def _one_node(like: Tensor, batch: int, node: int, label: int) -> Clamp:
    nodes, k = like.shape[1:]
    q = like.new_zeros(batch, nodes, k)
    if label:
        q[:, node, label - 1] = 1
    if nodes == 1:
        return Clamp(q)
    free = torch.ones(batch, nodes, dtype=torch.bool, device=like.device)
    free[:, node] = False
    return Clamp(q, free)


def _share(mine: Tensor, others: Tensor) -> Tensor:
    """exp(mine_k) / (exp(mine_k) + sum of exp(others) but for k), over the last axis; infinite bounds give 0 or 1."""
    k = mine.shape[-1]
    of_others = others.unsqueeze(-2).expand(*others.shape, k)
    same = torch.eye(k, dtype=torch.bool, device=mine.device)
    rest = of_others.masked_fill(same, -torch.inf).logsumexp(-1)
    both_infinite = torch.isinf(mine) & (mine > 0)
    return torch.where(both_infinite, 1.0, torch.sigmoid(mine - rest))


def sample(
    model: Model,
    evidence: Evidence | None = None,
    *,
    sweeps: int,
    generator: torch.Generator | None = None,
    start: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Draw labels of all layers by block Gibbs sampling.

    Parameters
    ----------
    model : LGM
        Or anything with `condition(evidence) -> MRF`.
    evidence : mapping, optional
        As for `infer`. Observed nodes get their most probable observed label.
    sweeps : int
        How many times to visit all layers.
    generator : torch.Generator, optional
        PyTorch's default generator if None.
    start : mapping, optional
        Labels of an earlier sample to continue from.

    Returns
    -------
    dict
        Labels `(B, *shape)` by layer name.
    """
    sweeps = check_int("sweeps", sweeps, error=InferenceError)
    if generator is not None and not isinstance(generator, torch.Generator):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InferenceError(f"generator={generator!r}; expected torch.Generator().manual_seed(...) or None")
    with torch.no_grad():
        mrf = model.condition(evidence)
        begin = None
        if start is not None:
            check_labels(mrf, start)
            other = [len(start[n]) for n in mrf.unary if len(start[n]) != mrf.batch]
            if other:
                raise InferenceError(f"start= has labels of {other[0]} samples, the evidence is of {mrf.batch}")
            begin = {n: _free_only(start[n].flatten(1), mrf.clamps.get(n)) for n in mrf.unary}
        state = next(islice(gibbs(mrf, generator, begin), sweeps - 1, None))
    return with_observed(mrf, state)


def _free_only(labels: Tensor, clamp: Clamp | None) -> Tensor:
    return labels if clamp is None or clamp.free is None else torch.where(clamp.free, labels, 0)
