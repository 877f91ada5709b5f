"""The few exceptions and warnings a user meets. Each message says what was expected, what was given and what to do."""

from __future__ import annotations

import sys
import warnings


class LGMError(Exception):
    """Base of every error torchlgm raises on purpose."""


class GraphError(LGMError, ValueError):
    """A graph description that cannot be a layered graphical model."""


class EvidenceError(LGMError, ValueError):
    """Evidence that does not fit the graph it is meant for."""


class InferenceError(LGMError, ValueError):
    """A query that this method, or the messages kept from it, cannot answer."""


class TooLargeError(LGMError, MemoryError):
    """An exact computation that would not fit; use an approximate method or a smaller model."""


class DataError(LGMError, ValueError):
    """Data that is missing, damaged or of the wrong kind."""


class TrainingError(LGMError, RuntimeError):
    """Training that cannot start or go on."""


class DivergedError(TrainingError):
    """A loss that is no longer finite; the model has its best weights so far."""


class CheckpointError(LGMError, ValueError):
    """A saved model that is damaged, foreign or of another version."""


class MissingExtraError(LGMError, ImportError):
    """An optional library that is not installed."""


class DataWarning(UserWarning):
    """Data that can be used, but are perhaps not what was meant."""


class GraphWarning(UserWarning):
    """A legal graph that probably is not what was meant."""


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn with the line outside this package that called it."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == __package__:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
