"""How far a training is, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Progress:
    """The progress of a training: `epoch` full epochs are done, and `at` samples of the next one.

    `loss_sum` and `spent` (seconds) belong to the epoch under way, `seconds` to those that are done. The figures of an
    ensemble are means over its members, of which each has its own in `members`.
    """

    epoch: int = 0
    at: int = 0
    loss_sum: float = 0.0
    spent: float = 0.0
    seconds: float = 0.0
    best_epoch: int = 0
    best_loss: float = float("inf")
    history: list[dict[str, Any]] = field(default_factory=list)
    members: list[Progress] = field(default_factory=list)

    def record(self, row: dict[str, Any]) -> bool:
        """Take down an epoch; whether it is the best so far."""
        self.history.append(row)
        self.epoch, self.at, self.loss_sum, self.spent = self.epoch + 1, 0, 0.0, 0.0
        better = row["valid_loss"] < self.best_loss
        if better:
            self.best_loss, self.best_epoch = row["valid_loss"], self.epoch
        return better

    def out_of(self, patience: int | None) -> bool:
        """Whether there was no better epoch for too long; of an ensemble, for every member."""
        if self.members:
            return all(member.out_of(patience) for member in self.members)
        return patience is not None and self.epoch - self.best_epoch >= patience

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Progress:
        return cls(**{**saved, "members": [cls.from_dict(member) for member in saved["members"]]})

    def result(self) -> Result:
        members = tuple(member.result() for member in self.members)
        return Result(self.history, self.best_epoch, self.best_loss, self.seconds, members)


@dataclass(frozen=True)
class Result:
    """What came of a training; the predictor holds the weights of `best_epoch`.

    Of an ensemble, these are means over those of its `members` that had not stopped; each holds the weights of its own
    best epoch. Their `train_loss` is the mean over all.
    """

    history: list[dict[str, Any]]
    best_epoch: int
    best_loss: float
    seconds: float
    members: tuple[Result, ...] = ()

    @property
    def best(self) -> dict[str, Any]:
        """The figures of the best epoch."""
        return self.history[self.best_epoch - 1]
