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
from torchlgm.sklearn.knots import Lines
from torchlgm.sklearn.mixture import Mixture

if TYPE_CHECKING:
    from torchlgm.sklearn.classifier import LGMClassifier


class TableScale:
    """Values `(B, columns)` in the units of a table, of categories their numbers, to [0, 1] and back.

    What `Column.scale` does, as tensor operations alone.
    """

    def __init__(self, columns: Sequence[Column | None]) -> None:
        self.lines = Lines([_knots(column) for column in columns])
        self.empty = torch.tensor([torch.nan if column is None else 0.0 for column in columns], dtype=torch.float64)

    def scale(self, x: Tensor) -> Tensor:
        """Values, float64 -> [0, 1], float32; NaN where a column had no value in the training."""
        return (self.lines.scale(x) + self.empty).float()

    def unscale(self, x: Tensor) -> Tensor:
        """Shares of the range of each column -> values."""
        return self.lines.low + x.double() * (self.lines.high - self.lines.low)


def _knots(column: Column | None) -> Sequence[float]:
    if column is None:
        return (0.0,)
    return range(column.labels) if isinstance(column, Categories) else column.knots


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
