"""Several predictors of one shape, trained in one step and asked as one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from torchlgm.errors import TrainingError
from torchlgm.inference import Exact
from torchlgm.model import LGM
from torchlgm.posterior import Posterior, Predictor, has_missing


class Ensemble(nn.Module):
    """Predictors of one shape, trained in one step; the answer is the mean of their probabilities.

    `fit` trains every member as it would be trained alone, by its own gradient up to its own best weights. On a GPU,
    ten small models take much less than ten times as long as one.

    Parameters
    ----------
    predictors : sequence of Module
        For example, posteriors of models of the same graph.
    own_batches : bool
        Whether member i goes through the data in the order of the seed `Settings.seed + i`. Otherwise, all see the same
        batches and differ only by their first weights.

    Examples
    --------
    >>> import torchlgm as lgm
    >>> graph = lgm.zoo.dense(inputs=4, hidden=[3], classes=2)
    >>> ensemble = Ensemble([lgm.Posterior(lgm.LGM(graph)) for _ in range(5)])
    >>> len(ensemble), len(ensemble.members()), ensemble(torch.rand(1, 4)).shape
    (5, 5, torch.Size([1, 2]))
    """

    def __init__(self, predictors: Iterable[nn.Module], own_batches: bool = True) -> None:
        super().__init__()
        if not isinstance(predictors, Iterable):
            raise TrainingError(f"an ensemble needs a list of predictors, got a single {type(predictors).__name__}")
        predictors = list(predictors)
        if not predictors:
            raise TrainingError("an ensemble needs one predictor at least, got none")
        for predictor in predictors:
            _require_member(predictor)
        for predictor in predictors:
            _require_alike(predictors[0], predictor)
        self.own_batches = own_batches
        self.stacked = deepcopy(predictors[0])
        for name, _ in predictors[0].named_parameters():
            stack = torch.stack([predictor.get_parameter(name).detach() for predictor in predictors])
            _set(self.stacked, name, nn.Parameter(stack))

    def __len__(self) -> int:
        return len(next(self.stacked.parameters()))

    def forward(self, x: Any) -> Tensor:
        """Log-probabilities `(B, K)` of a target of one node, else `(B, *target shape, K)`, as those of a member."""
        if not isinstance(self.stacked, Predictor):
            return self.answer(x)
        x = self.stacked.checked(x)[0]
        return (self if has_missing(x) else self.for_complete_inputs()).answer(x)

    def answer(self, x: Tensor) -> Tensor:
        """`forward` of values that are not checked."""
        return self.each(answer_of, x).logsumexp(0) - math.log(len(self))

    def for_complete_inputs(self) -> Ensemble:
        """The same ensemble, with the same parameters, for inputs of which none is missing: it may be faster."""
        if not isinstance(self.stacked, Predictor):
            return self
        twin = Ensemble.__new__(Ensemble)
        nn.Module.__init__(twin)
        twin.own_batches, twin.stacked = self.own_batches, self.stacked.for_complete_inputs()
        return twin

    def members(self) -> list[nn.Module]:
        """Copies of the single predictors."""
        return [self._member(i) for i in range(len(self))]

    def _member(self, i: int) -> nn.Module:
        one = deepcopy(self.stacked)
        for name, p in self.stacked.named_parameters():
            _set(one, name, nn.Parameter(p.detach()[i].clone()))
        return one

    def each(self, ask: Callable[..., Tensor], *args: Any, apart: bool = False) -> Tensor:
        """`ask(member, *args)` for every member, along a new first axis; `apart`: tensors have one for members too."""
        asked = _Asked(self.stacked, ask)
        parameters = {f"model.{name}": p for name, p in self.stacked.named_parameters()}
        axes = tuple(0 if apart and isinstance(x, Tensor) else None for x in args)
        one = vmap(lambda p, *xs: functional_call(asked, p, xs), in_dims=(0, *axes), randomness="same")
        return one(parameters, *args)

    def mean_loss(self, loss: Callable[..., Tensor], *args: Any) -> Tensor:
        """The mean of the members' losses, `loss(member, *args)`, with the gradient of each member's own."""
        losses = self.each(loss, *args, apart=self.own_batches)
        total = losses.sum()
        return total - (total - losses.mean()).detach()

    def clip_gradients(self, most: float) -> None:
        """Scale the gradient of every member down to the norm `most` at most."""
        grads = [p.grad for p in self.parameters() if p.grad is not None]
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads]).norm(dim=0)
        shrink = (most / (norms + 1e-6)).clamp(max=1)
        for g in grads:
            g.mul_(shrink.reshape(-1, *[1] * (g.dim() - 1)))


def answer_of(predictor: nn.Module, x: Tensor) -> Tensor:
    """Log-probabilities `(B, K)` or `(B, *target shape, K)` of any module that maps inputs to them, or to logits."""
    if isinstance(predictor, Predictor | Ensemble):
        return predictor.answer(x)
    return torch.log_softmax(predictor(x), -1)


def log_probs_of(predictor: nn.Module, x: Tensor) -> Tensor:
    """Those of each target node, `(B, nodes, K)`."""
    return by_node(answer_of(predictor, x))


def by_node(log_probs: Tensor) -> Tensor:
    """`(B, K)` or `(B, *shape, K)` -> `(B, nodes, K)`."""
    return log_probs.reshape(len(log_probs), -1, log_probs.shape[-1])


def _require_member(predictor: object) -> None:
    if isinstance(predictor, LGM | Ensemble) or not isinstance(predictor, nn.Module):
        what = type(predictor).__name__ if isinstance(predictor, nn.Module) else repr(predictor)
        raise TrainingError(
            f"an ensemble needs a list of predictors, got {what}; such as [Posterior(model), Posterior(other)]"
        )
    for part in predictor.modules():
        if not isinstance(part, Posterior):
            continue
        method = part.method
        if isinstance(method, Exact) or method.tolerance is not None or method.gradient == "checkpoint":
            raise TrainingError(
                "several models in one step cannot be inferred exactly, with a tolerance or with checkpoints; use a "
                "method with a fixed number of iterations, or train one by one"
            )


def _require_alike(first: nn.Module, other: nn.Module) -> None:
    """Members differ by their parameters alone."""
    shapes = [{name: p.shape for name, p in model.named_parameters()} for model in (first, other)]
    if shapes[0] != shapes[1]:
        raise TrainingError(f"an ensemble needs models of one shape, got parameters shaped {shapes[0]} and {shapes[1]}")
    kinds = [{f"{p.dtype} on {p.device}" for p in model.parameters()} for model in (first, other)]
    if kinds[0] != kinds[1]:
        ours, theirs = (" and ".join(sorted(kind)) for kind in kinds)
        raise TrainingError(f"an ensemble needs models of one dtype on one device, got {ours}, but also {theirs}")
    if len(shapes[0]) < len(list(first.named_parameters(remove_duplicate=False))):
        raise TrainingError("an ensemble cannot have models with tied parameters")
    for what, part, like in (("model", LGM, lambda m: (m.graph, m.scale)), ("kind", Predictor, repr)):
        ours, theirs = ([like(p) for p in module.modules() if isinstance(p, part)] for module in (first, other))
        if ours != theirs:
            raise TrainingError(f"an ensemble needs predictors of one {what}")
    for (name, buffer), same in zip(first.named_buffers(), other.buffers(), strict=True):
        if not torch.equal(buffer, same):
            raise TrainingError(f"an ensemble needs models with the same buffers, but {name!r} differs")


class _Asked(nn.Module):
    """A question about a model as a module that is called."""

    def __init__(self, model: nn.Module, ask: Callable[..., Tensor]) -> None:
        super().__init__()
        self.model, self.ask = model, ask

    def forward(self, *args: Any) -> Tensor:
        return self.ask(self.model, *args)


def _set(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
    *path, last = name.split(".")
    owner = module.get_submodule(".".join(path))
    if isinstance(owner, nn.ParameterDict):
        owner[last] = parameter
    else:
        setattr(owner, last, parameter)
