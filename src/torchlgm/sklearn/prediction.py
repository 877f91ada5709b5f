"""What a trained model says about rows `(N, *shape)` in [0, 1], NaN = missing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchlgm.inference import Star, infer, sample, star_layers
from torchlgm.joint import Conditionals, MixedStars, conditionals_of
from torchlgm.learn import predict_log_proba
from torchlgm.model import LGM
from torchlgm.mrf import Clamp
from torchlgm.posterior import Posterior
from torchlgm.sklearn.encoding import Plan
from torchlgm.sklearn.mixture import Mixture

MOST_EDGES = 2**22  # of a batch, so that its messages fit into memory


class Uncertainty(NamedTuple):
    """`entropy` `(N,)` of the class belief in nats, and how much of it the missing entries account for."""

    entropy: np.ndarray
    from_missing: np.ndarray

    @property
    def remaining(self) -> np.ndarray:
        """What is expected to remain once the missing entries are known."""
        return self.entropy - self.from_missing


def precision(device: str) -> torch.dtype:
    """The most precise dtype that a device has: Apple's GPUs have no float64."""
    return torch.float32 if torch.device(device).type == "mps" else torch.float64


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers in double precision where the device has it, so that they do not depend on which rows are asked about
    together.

    Questions about columns are asked of the first member.
    """

    posteriors: tuple[Posterior, ...]
    mixture: Mixture
    plan: Plan
    star: Star | None  # of all members, where there is a closed form
    labels_of_class: Tensor | None  # p(k | y) of each column, where it was learned

    @staticmethod
    def of(
        posteriors: Sequence[Posterior], mixture: Mixture, plan: Plan, device: str, labels_of_class: Tensor | None
    ) -> Answers:
        posteriors = tuple(deepcopy(p).to(precision(device)).to(device) for p in posteriors)
        nothing = torch.full((1, *plan.shape), math.nan)
        for posterior in posteriors:
            posterior.checked(nothing)
        layers = star_layers(plan.graph, posteriors[0].method, plan.target)
        with torch.no_grad():
            star = None if layers is None else Star.of([p.model for p in posteriors], layers)
        return Answers(posteriors, mixture, plan, star, labels_of_class)

    @property
    def posterior(self) -> Posterior:
        return self.posteriors[0]

    @cached_property
    def of_class(self) -> Conditionals:
        """What is known of the class, and of what missing entries will show."""
        return conditionals_of(self.posterior) if self.labels_of_class is None else self.together

    @cached_property
    def together(self) -> MixedStars:
        assert self.labels_of_class is not None
        return MixedStars.of(self.posteriors, self.mixture.log_weights, self.labels_of_class)

    @property
    def batch(self) -> int:
        return max(1, MOST_EDGES // self.plan.graph.edges)

    def log_probs(self, x: Tensor) -> Tensor:
        """log of the class probabilities `(N, classes)`."""
        missing = x.flatten(1).isnan().double().mean(1)
        return self.mixture.mix(self.of_members(x), missing)

    def of_members(self, x: Tensor) -> Tensor:
        """log of the class probabilities that each member gives, `(M, N, classes)`."""
        if self.star is None:
            return torch.stack([predict_log_proba(p, x, self.batch).cpu() for p in self.posteriors])
        with torch.no_grad():
            parts = [self.star.log_probs(self._evidence(part)).cpu() for part in x.split(self.batch)]
        return torch.cat(parts, 1)

    def _evidence(self, x: Tensor) -> dict[str, Clamp]:
        """Of rows from the plan, which need no check."""
        predictor = self.posterior.quicker(x)
        return predictor.encoding(predictor.model, x.to(self.star.hidden if self.star else x))

    def of_columns(self, x: Tensor) -> list[np.ndarray]:
        """Probabilities `(N, labels)` for each column; at observed entries what was observed."""
        with torch.no_grad():
            parts = [self.plan.by_column(self.posterior.infer(part)) for part in x.split(self.batch)]
        return [np.concatenate(column) for column in zip(*parts, strict=True)]

    def uncertainty(self, x: Tensor, samples: int, sweeps: int, generator: torch.Generator) -> Uncertainty:
        whole = _entropy(self.log_probs(x).exp())
        return Uncertainty(whole.numpy(), (whole * self._share_of_missing(x, samples, sweeps, generator)).numpy())

    def _share_of_missing(self, x: Tensor, samples: int, sweeps: int, generator: torch.Generator) -> Tensor:
        """Which share of the entropy of the class the missing entries account for, `(N,)`; 0 for complete rows."""
        share = torch.zeros(len(x), dtype=torch.float64)
        holes = x.flatten(1).isnan().any(1).nonzero().squeeze(1)
        for some in holes.split(max(1, self.batch // samples)):
            drawn = self._given_draws(x[some].repeat_interleave(samples, 0), sweeps, generator)
            each = drawn.unflatten(0, (len(some), samples))
            whole = _entropy(each.mean(1))
            share[some] = ((whole - _entropy(each).mean(1)) / whole.clamp(min=1e-12)).clamp(0, 1)
        return share

    def _given_draws(self, x: Tensor, sweeps: int, generator: torch.Generator) -> Tensor:
        """Class probabilities `(B, classes)`, the missing entries of each row drawn once."""
        model, target = self.posterior.model, self.posterior.target
        seen = self.posterior.evidence(x)
        drawn = sample(model, seen, sweeps=sweeps, generator=generator)
        with torch.no_grad():
            complete = self.plan.rows.filled(seen, drawn)
            return infer(model, complete, self.posterior.method, (target,))[target].probs[:, 0].cpu()


class CachedAnswers(NamedTuple):
    """Answers, and what they hold for: members whose energies have not changed since, and some options."""

    members: list[LGM]
    energies: list[Tensor]
    versions: list[int]
    options: tuple[str, ...]
    answers: Answers

    @classmethod
    def of(cls, members: list[LGM], options: tuple[str, ...], answers: Answers) -> CachedAnswers:
        energies: list[Tensor] = [p for model in members for p in model.parameters()]
        return cls(members, energies, [p._version for p in energies], options, answers)

    def hold(self, members: list[LGM], options: tuple[str, ...]) -> bool:
        same = members is self.members and options == self.options
        return same and [p._version for p in self.energies] == self.versions


def _entropy(probs: Tensor) -> Tensor:
    """The entropy of probabilities in the last axis, in nats."""
    return torch.special.entr(probs).sum(-1)
