"""Several models of one shape trained in one step, and asked as one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from torchlgm.errors import TrainingError
from torchlgm.learn.objectives import Inputs, Likelihood, Objective, looks_at_values


class Ensemble(nn.Module):
    """Models of one shape as one: each parameter has a leading axis of members.

    Every member has a gradient, and with Adam a step, of its own: `fit` trains it as it would alone, up to its own best
    weights. On a GPU ten small models cost much less than ten times one.

    >>> import torchlgm as lgm
    >>> ensemble = Ensemble([lgm.LGM(lgm.zoo.dense(inputs=4, hidden=[3], classes=2)) for _ in range(5)])
    >>> len(ensemble), len(ensemble.members())
    (5, 5)
    """

    def __init__(self, models: Iterable[nn.Module]) -> None:
        super().__init__()
        if not isinstance(models, Iterable):
            raise TrainingError(f"an ensemble needs a list of models, got a single {type(models).__name__}")
        models = list(models)
        if not models:
            raise TrainingError("an ensemble needs one model at least, got none")
        for model in models:
            if not isinstance(model, nn.Module):
                raise TrainingError(
                    f"an ensemble needs a list of models, got {model!r}; such as [LGM(graph), LGM(graph)]"
                )
        for model in models:
            _require_alike(models[0], model)
        self.stacked = deepcopy(models[0])
        for name, _ in models[0].named_parameters():
            together = torch.stack([model.get_parameter(name).detach() for model in models])
            _set(self.stacked, name, nn.Parameter(together))

    def __len__(self) -> int:
        return len(next(self.stacked.parameters()))

    def condition(self, evidence: object = None) -> NoReturn:
        raise TrainingError(
            "an ensemble is trained and asked through learn.Together(objective); its members() are single models"
        )

    @property
    def graph(self) -> NoReturn:
        self.condition()

    def members(self) -> list[nn.Module]:
        """Copies of the single models."""
        return [self._member(i) for i in range(len(self))]

    def _member(self, i: int) -> nn.Module:
        one = deepcopy(self.stacked)
        for name, p in self.stacked.named_parameters():
            _set(one, name, nn.Parameter(p.detach()[i].clone()))
        return one

    def each(self, ask: Callable[..., Tensor], *args: Any, apart: bool = False) -> Tensor:
        """`ask(member, *args)` for every member, along a new first axis; `apart`: tensors have one for members too."""
        asked = _Asked(self.stacked, ask)
        own = {f"model.{name}": p for name, p in self.stacked.named_parameters()}
        axes = tuple(0 if apart and isinstance(x, Tensor) else None for x in args)
        one = vmap(lambda p, *xs: functional_call(asked, p, xs), in_dims=(0, *axes), randomness="same")
        return one(own, *args)

    def clip_gradients(self, most: float) -> None:
        """Scale the gradient of every member down to the norm `most` at most."""
        grads = [p.grad for p in self.parameters() if p.grad is not None]
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads]).norm(dim=0)
        shrink = (most / (norms + 1e-6)).clamp(max=1)
        for g in grads:
            g.mul_(shrink.reshape(-1, *[1] * (g.dim() - 1)))


def _require_alike(first: nn.Module, other: nn.Module) -> None:
    """Members differ by their parameters alone."""
    shapes = [{name: p.shape for name, p in model.named_parameters()} for model in (first, other)]
    if shapes[0] != shapes[1]:
        raise TrainingError(f"an ensemble needs models of one shape, got parameters shaped {shapes[0]} and {shapes[1]}")
    kinds = [{f"{p.dtype} on {p.device}" for p in model.parameters()} for model in (first, other)]
    if kinds[0] != kinds[1]:
        here, there = (" and ".join(sorted(kind)) for kind in kinds)
        raise TrainingError(f"an ensemble needs models of one dtype on one device, got {here}, but also {there}")
    if len(shapes[0]) < len(list(first.named_parameters(remove_duplicate=False))):
        raise TrainingError("an ensemble cannot have models with tied parameters")
    for what in ("graph", "scale"):
        if getattr(first, what, None) != getattr(other, what, None):
            raise TrainingError(f"an ensemble needs models of one {what}")
    for (name, here), there in zip(first.named_buffers(), other.buffers(), strict=True):
        if not torch.equal(here, there):
            raise TrainingError(f"an ensemble needs models with the same buffers, but {name!r} differs")


class _Asked(nn.Module):
    """A question about a model as a module that is called."""

    def __init__(self, model: nn.Module, ask: Callable[..., Tensor]) -> None:
        super().__init__()
        self.model, self.ask = model, ask

    def forward(self, *args: Any) -> Tensor:
        return self.ask(self.model, *args)


@dataclass(frozen=True)
class Together:
    """The objective of every member of an `Ensemble`.

    The loss is the mean over members, the gradient of each member that of its own loss. With `own_batches` every member
    learns from batches of its own, which have a leading axis of members: member i goes through the data in the order of
    the seed `Settings.seed + i`. Else all see the same batches and differ by their first weights alone. The ensemble's
    answer is the mean of its members' probabilities.
    """

    objective: Objective
    own_batches: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.objective, Together):
            raise TrainingError("Together(Together(...)); expected the objective of a single model")
        if looks_at_values(self.objective) or getattr(self.method, "gradient", None) == "checkpoint":
            raise TrainingError(
                "several models in one step cannot be inferred exactly, with a tolerance or with checkpoints; use a "
                "method with a fixed number of iterations, or train one by one"
            )

    @property
    def method(self) -> Any:
        return getattr(self.objective, "method", None)

    @property
    def inputs(self) -> Any:
        return getattr(self.objective, "inputs", None)

    def loss(self, model: Ensemble, x: Tensor, y: Tensor, whole: Tensor | None = None) -> Tensor:
        losses = _ensemble(model).each(self.objective.loss, x, y, whole, apart=self.own_batches)
        total = losses.sum()
        return total - (total - losses.mean()).detach()

    def log_probs(self, model: Ensemble, x: Tensor) -> Tensor:
        return _ensemble(model).each(self.objective.log_probs, x).logsumexp(0) - math.log(len(model))


def of_whole_inputs(objective: Objective) -> Objective:
    """The same objective for inputs of which none is missing, where that is faster."""
    if isinstance(objective, Together):
        return replace(objective, objective=of_whole_inputs(objective.objective))
    if type(objective) is not Likelihood or not isinstance(objective.inputs, Inputs):  # others may count on a mask
        return objective
    return replace(objective, inputs=replace(objective.inputs, missing=False))


@dataclass(frozen=True)
class EachMember:
    """Asks every member for itself, and a single model as the only one: `log_probs` are `(B, members, nodes, K)`."""

    objective: Objective

    @property
    def method(self) -> Any:
        return getattr(self.objective, "method", None)

    @property
    def inputs(self) -> Any:
        return getattr(self.objective, "inputs", None)

    def log_probs(self, model: nn.Module, x: Tensor) -> Tensor:
        if isinstance(model, Ensemble) and isinstance(self.objective, Together):
            return model.each(self.objective.objective.log_probs, x).transpose(0, 1)
        return self.objective.log_probs(model, x).unsqueeze(1)


def _ensemble(model: nn.Module) -> Ensemble:
    if not isinstance(model, Ensemble):
        raise TrainingError(
            f"Together(objective) is for an Ensemble, got {type(model).__name__}; use the objective itself"
        )
    return model


def _set(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
    *path, last = name.split(".")
    owner = module.get_submodule(".".join(path))
    if isinstance(owner, nn.ParameterDict):
        owner[last] = parameter
    else:
        setattr(owner, last, parameter)
