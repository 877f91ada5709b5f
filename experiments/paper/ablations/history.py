"""The epochs of a training, and where rules of stopping would have ended it."""

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

WINDOW = 5  # epochs over which a loss is smoothed


class Epoch(NamedTuple):
    loss: float  # on validation data
    accuracy: float  # on test data


class End(NamedTuple):
    best: Epoch  # of the lowest loss
    last: Epoch
    epochs: int


def means(ends: Sequence[End]) -> tuple[float, float]:
    """Test accuracies of the best weights and of the last, the mean over trainings."""
    return fmean(end.best.accuracy for end in ends), fmean(end.last.accuracy for end in ends)


def stop(history: Sequence[Epoch], patience: int | None, losses: Sequence[float] | None = None) -> End:
    """Where a training with this patience stops: by the validation loss, or other `losses` of the epochs."""
    losses = [epoch.loss for epoch in history] if losses is None else losses
    count = next((n for n in range(1, len(history)) if stopped(losses[:n], patience)), len(history))
    return End(history[losses.index(min(losses[:count]))], history[count - 1], count)


def stopped(losses: Sequence[float], patience: int | None) -> bool:
    return patience is not None and bool(losses) and len(losses) - 1 - losses.index(min(losses)) >= patience


def smoothed(history: Sequence[Epoch]) -> list[float]:
    """The validation loss, the mean over the last epochs."""
    return [fmean(epoch.loss for epoch in history[max(0, n - WINDOW) : n]) for n in range(1, len(history) + 1)]


def as_text(history: Sequence[Epoch]) -> str:
    """Loss and accuracy of each epoch, short enough for a file of results."""
    return " ".join(f"{epoch.loss:.5g}/{epoch.accuracy:.4f}" for epoch in history)


def from_text(text: str) -> list[Epoch]:
    return [Epoch(*map(float, word.split("/"))) for word in text.split()]
