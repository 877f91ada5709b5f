"""Rows of a table as slots of a star: every label of every column is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from torchlgm.ops.star import ALL, Draws, EncodedRows, Shape
from torchlgm.sklearn.encoding import Place


@dataclass(frozen=True, eq=False)
class Slots:
    """Columns are in the order of the layers.

    A category has a free value for each label. A number's values add up from knot to knot, by steps that are alike
    before anything is learned: neighbouring knots share what they learn.
    """

    places: tuple[Place, ...]
    ordered: np.ndarray  # (columns,): whether labels are knots
    device: torch.device

    @cached_property
    def labels(self) -> np.ndarray:
        """Of each column."""
        return np.array([place.labels for place in self.places for _ in place.columns])

    @cached_property
    def column(self) -> Tensor:
        """Of each slot."""
        return torch.as_tensor(np.repeat(np.arange(len(self.labels)), self.labels), device=self.device)

    @cached_property
    def first(self) -> Tensor:
        """The slot of label 0 of each column."""
        return torch.as_tensor(self._first[:-1].astype(np.int64), device=self.device)

    @cached_property
    def _first(self) -> np.ndarray:
        return np.concatenate([[0], self.labels.cumsum()]).astype(np.int32)

    @cached_property
    def _step(self) -> np.ndarray:
        return np.where(self.ordered, np.maximum(self.labels - 1, 1) ** -0.5, 0).astype(np.float32)

    @cached_property
    def _scale(self) -> Tensor:
        """Of the steps, by slot; 0 at label 0."""
        scale = np.repeat(self._step, self.labels)
        scale[self._first[:-1]] = 0
        return torch.as_tensor(scale, device=self.device).unsqueeze(1)

    @cached_property
    def _ordered(self) -> Tensor:
        return torch.as_tensor(np.repeat(self.ordered, self.labels), device=self.device).unsqueeze(1)

    def shape(self, hidden: int, classes: int) -> Shape:
        return Shape(self._first, self._step, hidden, classes)

    def values(self, free: Tensor) -> Tensor:
        """Free numbers `(M, slots, H)` -> minus the energies, up to a constant of each column."""
        if not self.ordered.any():
            return free
        upto = (free * self._scale).cumsum(1)
        steps = upto - upto.index_select(1, self.first).index_select(1, self.column)
        return torch.where(self._ordered, steps, free)

    def encode(self, x: np.ndarray, label: np.ndarray, weight: np.ndarray) -> EncodedRows:
        """Rows `(N, columns)` in [0, 1], NaN = missing."""
        order = [j for place in self.places for j in place.columns]
        at = np.nan_to_num(x[:, order], nan=-1.0).astype(np.float32) * (self.labels - 1).astype(np.float32)
        below = np.floor(at + 1e-6)
        share = (at - below).clip(0, 1)
        share[share < 1e-6] = 0
        missing = at < 0
        slot, share = np.where(missing, -1, below + self._first[:-1]), np.where(missing, 0, share)
        types = np.int32, np.float32, np.int32, np.float32
        return EncodedRows(
            *(np.ascontiguousarray(a, t) for a, t in zip((slot, share, label, weight), types, strict=True))
        )

    def seen(self, rows: EncodedRows, draws: Draws) -> np.ndarray:
        """What is shown of the rows and not missing, `(steps, M, batch, columns)`."""
        return (draws.noise < draws.shown[..., None]) & (rows.slot[draws.rows] >= 0)

    def dense(self, rows: EncodedRows, draws: Draws) -> Tensor:
        """What multiplies values, and what is sent while missing: `(steps, M, batch, slots + columns)`."""
        seen, slot, share = self.seen(rows, draws), rows.slot[draws.rows], rows.share[draws.rows]
        out = torch.zeros(
            *slot.shape[:-1], len(self.column) + len(self.labels), dtype=torch.float32, device=self.device
        )
        absent = len(self.column) + np.arange(len(self.labels))
        for place, mass in ((np.where(seen, slot, absent), np.where(seen, 1 - share, 1)), (slot + 1, seen * share)):
            place = torch.as_tensor(place.astype(np.int64), device=self.device)
            out.scatter_add_(-1, place, torch.as_tensor(mass.astype(np.float32), device=self.device))
        return out


def whole(rows: np.ndarray, columns: int) -> Draws:
    """All that there is of some rows of each member, `(M, batch)`."""
    shape = 1, *rows.shape
    return Draws(rows.reshape(shape), np.full(shape, ALL, np.uint16), np.zeros((*shape, columns), np.uint8))


def even(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Lists of rows as one array, cut to the length of the shortest."""
    length = min(map(len, parts))
    return np.stack([part[:length] for part in parts])
