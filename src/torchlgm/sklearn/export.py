"""A fitted LGMClassifier as a file that runs without torchlgm, on values in the units of its table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from torchlgm.inference import Star, star_layers
from torchlgm.interop import Exported
from torchlgm.interop import export as export_predictor
from torchlgm.posterior import Posterior, Predictor
from torchlgm.sklearn.columns import Categories, Column
from torchlgm.sklearn.mixture import Mixture

if TYPE_CHECKING:
    from torchlgm.sklearn.classifier import LGMClassifier


class TableScale:
    """Values `(B, columns)` in the units of a table, of categories their numbers, to [0, 1] and back.

    What `Column.scale` does, as tensor operations alone: between two knots a column rises by the same step.
    """

    def __init__(self, columns: Sequence[Column | None]) -> None:
        knots = [_knots(column) for column in columns]
        steps = max(1, *(len(k) - 1 for k in knots))
        self.start = torch.zeros(len(knots), steps, dtype=torch.float64)  # (columns, steps)
        self.width = torch.full_like(self.start, torch.inf)  # of steps that a column does not have
        for j, k in enumerate(knots):
            self.start[j, : len(k) - 1], self.width[j, : len(k) - 1] = k[:-1], k.diff()
        self.count = torch.tensor([max(1, len(k) - 1) for k in knots], dtype=torch.float64)
        self.empty = torch.tensor([torch.nan if column is None else 0.0 for column in columns], dtype=torch.float64)
        self.low, self.high = (torch.stack([k[end] for k in knots]) for end in (0, -1))

    def scale(self, x: Tensor) -> Tensor:
        """Values, float64 -> [0, 1], float32; NaN where a column had no value in the training."""
        risen = ((x.double().unsqueeze(-1) - self.start) / self.width).clamp(0, 1).sum(-1)
        return (risen / self.count + self.empty).float()

    def unscale(self, x: Tensor) -> Tensor:
        """Shares of the range of each column -> values."""
        return self.low + x.double() * (self.high - self.low)


def _knots(column: Column | None) -> Tensor:
    if column is None:
        return torch.zeros(1, dtype=torch.float64)
    places = range(column.labels) if isinstance(column, Categories) else column.knots
    return torch.tensor(list(places), dtype=torch.float64)


class _Members(Predictor):
    """All members of an ensemble as one predictor: in closed form where there is one, else member by member."""

    def __init__(self, posteriors: Sequence[Posterior], mixture: Mixture) -> None:
        first = posteriors[0]
        super().__init__(first.model, first.encoding, first.target)
        self.members, self.mixture = nn.ModuleList(posteriors), mixture
        self.star = star_layers(first.model.graph, first.method, first.target)

    def log_probs(self, x: Tensor, seen: Tensor | None = None) -> Tensor:
        members = cast("list[Posterior]", list(self.members))
        if self.star is None:
            beliefs = torch.stack([member.log_probs(x, seen)[:, 0] for member in members])
        else:
            evidence = self.encoding(self.model, x, seen)
            beliefs = Star.of([member.model for member in members], self.star).log_probs(evidence)
        missing = (x.isnan() if seen is None else x.isnan() | ~seen).flatten(1).to(x.dtype).mean(1)
        return self.mixture.mix(beliefs, missing).unsqueeze(1)


def export(classifier: LGMClassifier, path: str | Path) -> tuple[Exported, dict[str, Any]]:
    """Write class probabilities given values `(B, columns)` to a .onnx or .pt2 file, and what is said about them in it.

    Values are float64, in the units of the table; a category is its place in the list of its column.
    """
    posteriors = classifier._posteriors
    predictor = _Members(posteriors, classifier.mixture_)
    columns = classifier._plan.columns
    names = classifier.input_names
    about = {
        "classes": [str(name) for name in classifier.classes_],
        "inference": repr(posteriors[0].method),
        "columns": [str(name) for name in names],
        "categories": {
            str(name): column.texts
            for name, column in zip(names, columns, strict=True)
            if isinstance(column, Categories)
        },
    }
    return export_predictor(predictor, path, about, TableScale(columns)), about
