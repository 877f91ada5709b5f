"""Where the labels of a numeric column stand: some of its values, the least and the greatest among them; and where
values stand between them.

Values `(V,)` rise, counts `(V, classes)` say how often each occurs in each class.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

SCALINGS = ("tree", "quantile", "minmax")
LEAST = 0.005  # of all rows on either side of a cut
KNOTS_OF_A_LEAF = 3  # a tree has a third as many leaves as there are knots


def knots_of(values: np.ndarray, counts: np.ndarray, knots: int, scaling: str) -> np.ndarray:
    if scaling == "minmax":
        return np.linspace(values[0], values[-1], knots)
    if scaling == "quantile":
        return _quantiles(values, counts.sum(1), knots)
    return _by_tree(values, counts, knots)


def _quantiles(values: np.ndarray, counts: np.ndarray, knots: int) -> np.ndarray:
    """Quantiles, ends included; where they coincide, of the distinct values instead."""
    upto = np.cumsum(counts)
    at = np.searchsorted(upto, np.linspace(0, upto[-1], knots)[1:-1] - 1e-9 * upto[-1])  # ties, however rounded
    chosen = np.unique(np.concatenate([values[[0, -1]], values[np.minimum(at, len(values) - 1)]]))
    if len(chosen) < knots:
        chosen = values[np.round(np.linspace(0, len(values) - 1, knots)).astype(int)]
    return chosen


def _by_tree(values: np.ndarray, counts: np.ndarray, knots: int) -> np.ndarray:
    """Both sides of the cuts that a small tree would make, so that an energy can jump there; the others, one by one,
    in the middle of the most rows between two knots."""
    chosen = {0, len(values) - 1}
    for cut in _cuts(counts, max(2, knots // KNOTS_OF_A_LEAF)):
        if len(chosen | {cut - 1, cut}) <= knots:
            chosen |= {cut - 1, cut}
    upto = np.cumsum(counts.sum(1))
    places = sorted(chosen)
    while len(places) < min(knots, len(values)):
        between = [upto[b - 1] - upto[a] if b > a + 1 else -1.0 for a, b in pairwise(places)]
        widest = int(np.argmax(between))
        a, b = places[widest : widest + 2]
        middle = int(np.searchsorted(upto, upto[a] + between[widest] / 2))
        places.insert(widest + 1, min(max(middle, a + 1), b - 1))
    return values[places]


def _cuts(counts: np.ndarray, leaves: int) -> list[int]:
    """The first places above the cuts of a tree that grows where impurity falls most."""
    least = LEAST * float(counts.sum())
    candidates = [_best_cut(counts, 0, len(counts), least)]
    cuts: list[int] = []
    while len(cuts) < leaves - 1:
        best = max(range(len(candidates)), key=lambda i: candidates[i][0])
        gain, low, cut, high = candidates.pop(best)
        if gain <= 0:
            break
        cuts.append(cut)
        candidates += [_best_cut(counts, low, cut, least), _best_cut(counts, cut, high, least)]
    return cuts


def _best_cut(counts: np.ndarray, low: int, high: int, least: float) -> tuple[float, int, int, int]:
    """(fall of the Gini impurity, low, cut, high) of the best cut of the values from `low` below `high`."""
    left = np.cumsum(counts[low:high], 0)
    total, left = left[-1], left[:-1]
    right = total - left
    sizes = left.sum(1), right.sum(1)
    fine = (np.minimum(*sizes) >= least * (1 - 1e-9)).nonzero()[0]
    if len(fine) == 0:
        return 0.0, low, low, high
    gains = sum((part[fine] ** 2).sum(1) / size[fine] for part, size in zip((left, right), sizes, strict=True))
    gains = gains - (total**2).sum() / total.sum()
    best = int(gains.argmax())
    return float(gains[best]) - 1e-9 * float(total.sum()), low, low + 1 + int(fine[best]), high


class Lines:
    """Numeric columns, each of which rises from 0 at its first knot to 1 at its last, by the same step from knot to
    knot; a column of one knot is 0."""

    def __init__(self, knots: Sequence[Sequence[float]]) -> None:
        own = [torch.tensor(k, dtype=torch.float64) for k in knots]
        steps = max([1, *(len(k) - 1 for k in own)])
        self.start = torch.zeros(len(own), steps, dtype=torch.float64)  # (columns, steps)
        self.width = torch.full_like(self.start, torch.inf)  # of steps that a column does not have
        for j, k in enumerate(own):
            self.start[j, : len(k) - 1], self.width[j, : len(k) - 1] = k[:-1], k.diff()
        self.count = torch.tensor([max(1, len(k) - 1) for k in own], dtype=torch.float64)
        ends = torch.tensor([(k[0], k[-1]) for k in knots], dtype=torch.float64).reshape(-1, 2)
        self.low, self.high = ends.unbind(1)

    def scale(self, x: Tensor) -> Tensor:
        """Numbers `(N, columns)` -> [0, 1], float64; what lies outside counts as the nearest knot."""
        return ((x.double().unsqueeze(-1) - self.start) / self.width).clamp(0, 1).sum(-1) / self.count
