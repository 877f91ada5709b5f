"""A predictor as training sees it: by itself, or as an ensemble whose members each have a loss of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from torchlgm.errors import TrainingError
from torchlgm.learn.ensemble import Ensemble, log_probs_of
from torchlgm.learn.objectives import Likelihood, Objective, masked_in_each
from torchlgm.learn.settings import Settings
from torchlgm.learn.threads import SMALL_STEP
from torchlgm.model import LGM
from torchlgm.posterior import Predictor


@dataclass(frozen=True, eq=False)
class Learner:
    """What is trained, and what for."""

    predictor: nn.Module
    objective: Objective = field(default_factory=Likelihood)

    def __post_init__(self) -> None:
        if isinstance(self.predictor, LGM) or not isinstance(self.predictor, nn.Module):
            raise TrainingError(
                f"{type(self.predictor).__name__} is no predictor; expected lgm.Posterior(model, method), an Ensemble "
                "of them, or a network that maps inputs to logits"
            )
        if not isinstance(self.objective, Objective):
            raise TrainingError(
                f"objective={self.objective!r}; expected an instance of learn.Objective, such as learn.Likelihood()"
            )
        self.objective.check(self.one)

    @cached_property
    def ensemble(self) -> Ensemble | None:
        return self.predictor if isinstance(self.predictor, Ensemble) else None

    @property
    def members(self) -> int:
        """Of an ensemble; 0 for a predictor by itself."""
        return 0 if self.ensemble is None else len(self.ensemble)

    @property
    def one(self) -> nn.Module:
        """The predictor, or the form that all members have."""
        return self.predictor if self.ensemble is None else self.ensemble.stacked

    @property
    def own_batches(self) -> bool:
        return self.ensemble is not None and self.ensemble.own_batches

    @cached_property
    def capturable(self) -> bool:
        asked = [part for part in self.predictor.modules() if isinstance(part, Predictor)]
        return self.objective.capturable and all(part.capturable for part in asked)

    @property
    def edges(self) -> int:
        """Of the graphs; a network counts as large."""
        each = self.one.model.graph.edges if isinstance(self.one, Predictor) else SMALL_STEP
        return max(1, self.members) * each

    def for_complete_inputs(self) -> Learner:
        """The same, quicker, for inputs of which none is missing."""
        if isinstance(self.predictor, Predictor | Ensemble):
            return replace(self, predictor=self.predictor.for_complete_inputs())
        return self

    def loss(self, x: Tensor, y: Tensor, complete: Tensor | None = None, masked: Tensor | None = None) -> Tensor:
        """The objective's loss; of an ensemble, each member has the gradient of its own loss.

        Of a part of a batch, `masked` is how many entries are masked in a sample of the whole batch, on average.
        """
        if self.ensemble is None:
            return self._loss(self.predictor, x, y, complete, masked)
        return self.ensemble.mean_loss(self._loss, x, y, complete, masked)

    def _loss(
        self, predictor: nn.Module, x: Tensor, y: Tensor, complete: Tensor | None, masked: Tensor | None
    ) -> Tensor:
        with masked_in_each(masked):
            return self.objective.loss(predictor, x, y, complete)

    def log_probs(self, x: Tensor) -> Tensor:
        """What each member answers, `(B, members or 1, nodes, K)`."""
        if self.ensemble is None:
            return log_probs_of(self.predictor, x).unsqueeze(1)
        return self.ensemble.each(log_probs_of, x).transpose(0, 1)

    def check_inputs(self, x: Tensor) -> None:
        """Raise EvidenceError if a value is out of range."""
        if isinstance(self.one, Predictor):
            self.one.encoding.check(self.one.model.graph, x)

    def order(self, settings: Settings, epoch: int, samples: int) -> Tensor:
        """In which the samples come in an epoch, `(N,)`, or `(members, N)` where each member has its own."""
        if not self.own_batches:
            return settings.order(epoch, samples)
        return torch.stack([settings.order(epoch, samples, member) for member in range(self.members)])

    def clip_gradients(self, most: float) -> None:
        if self.ensemble is None:
            nn.utils.clip_grad_norm_(self.predictor.parameters(), most)
        else:
            self.ensemble.clip_gradients(most)


@contextmanager
def evaluation(predictor: nn.Module) -> Iterator[None]:
    """Not in training mode, and without gradients."""
    training = predictor.training
    if training:  # setting the mode walks over all modules
        predictor.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        if training:
            predictor.train()
