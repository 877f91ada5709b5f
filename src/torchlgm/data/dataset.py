"""What every loader returns: inputs in [0, 1] with NaN for missing, integer targets, class names."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from torchlgm.errors import DataError, DataWarning, warn

FEW_FAR = 0.05  # of the values of a column, far outside its range
MOST_MEASURED = 10  # different numbers that may be classes though hardly one occurs twice


def mask_out(values: Tensor, missing_value: float | None, where: object = None, span: float = 1.0) -> Tensor:
    """`values` with NaN wherever they equal `missing_value`, unless that is None, over their `span`.

    If none does, a warning says so of `where` they are from, unless that is None.
    """
    if missing_value is None:
        return values
    equal = values == missing_value / span
    if where is not None and not equal.any():
        warn(f"{where}: nothing in it equals the missing value {missing_value:g}", DataWarning)
    return values.masked_fill(equal, math.nan)


def warn_of_bits(values: Tensor, where: object) -> None:
    """Warn of bytes, NaN = missing, that are 0 or 1 only, and so would hardly differ when divided by 255."""
    if values.numel() and values.nan_to_num(0).max() == 1:
        warn(
            f"{where}: uint8 is divided by 255, but nothing in it exceeds 1; pass bool or floats if 1 is the most",
            DataWarning,
        )


@dataclass(frozen=True, eq=False)
class Data:
    """Labelled samples: inputs (N, *shape) float32 in [0, 1], NaN = missing; targets (N,) int64."""

    inputs: Tensor
    targets: Tensor
    classes: tuple[str, ...]
    name: str = "data"

    def __post_init__(self) -> None:
        self._check_shapes()
        self._check_values()

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        """Inputs and class of a sample, as a DataLoader takes them."""
        return self.inputs[index], self.targets[index]

    @property
    def has_missing(self) -> bool:
        return bool(self.inputs.isnan().any())

    def take(self, indices: Tensor | Sequence[int]) -> Data:
        """Take some of the samples.

        Parameters
        ----------
        indices : Tensor or sequence of int
            Their numbers, in the order that is wanted, or a mask of N booleans.

        Returns
        -------
        Data
            These samples, with the same names of classes.
        """
        index = torch.as_tensor(indices, device=self.targets.device)
        index = index if index.dtype == torch.bool else index.long()
        return replace(self, inputs=self.inputs[index], targets=self.targets[index])

    def to(self, device: torch.device | str) -> Data:
        return replace(self, inputs=self.inputs.to(device), targets=self.targets.to(device))

    def require_trainable(self, total: int | None = None) -> None:
        """Raise DataError unless samples of at least two classes are present; `total` counts all parts' samples."""
        present = self.targets.unique()
        if len(present) < 2:
            of_all = "" if total is None else f" (of {total} in all)"
            raise DataError(
                f"{self.name}: training needs samples of at least two classes, but all {len(self)} in the training "
                f"part{of_all} belong to class {self.classes[int(present[0])]!r}; add samples of another class"
            )

    def _check_shapes(self) -> None:
        if self.inputs.dtype != torch.float32 or self.targets.dtype != torch.int64:
            raise DataError(
                f"{self.name}: expected float32 inputs and int64 targets, "
                f"got {self.inputs.dtype} and {self.targets.dtype}; convert them first"
            )
        if self.targets.ndim != 1 or self.inputs.ndim < 2 or len(self.inputs) != len(self.targets):
            raise DataError(
                f"{self.name}: expected inputs (N, ...) and targets (N,) with the same N, "
                f"got {tuple(self.inputs.shape)} and {tuple(self.targets.shape)}"
            )
        if self.inputs.numel() == 0:
            raise DataError(f"{self.name}: expected at least one sample, got inputs {tuple(self.inputs.shape)}")

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.inputs.shape[1:]))
        return f"Data({self.name}: {len(self):,} samples of {shape}, {len(self.classes)} classes)"

    def _check_values(self) -> None:
        outside = (self.inputs < 0) | (self.inputs > 1)
        if outside.any():
            worst = self.inputs[outside][0].item()
            raise DataError(f"{self.name}: expected inputs in [0, 1] or NaN (missing), got {worst}; scale them first")
        low, high = int(self.targets.min()), int(self.targets.max())
        if low < 0 or high >= len(self.classes):
            raise DataError(
                f"{self.name}: expected targets in 0..{len(self.classes) - 1}, the numbers of its classes, "
                f"got {low}..{high}"
            )


@dataclass(frozen=True)
class Columns:
    """The columns of numbers of a table: their names, and the range of the values of each in the training."""

    names: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        if not len(self.names) == len(self.low) == len(self.high):
            raise DataError(f"expected a range for each column, got {self}")
        for name, low, high in zip(self.names, self.low, self.high, strict=True):
            if not -math.inf < low <= high < math.inf:
                raise DataError(f"column {name!r}: expected a range of finite numbers, got {low} to {high}")

    def warn_of_other_units(self, values: Tensor, advice: str) -> None:
        """Warn of values (N, columns), more than a few, that are outside the range by more than its width.

        The `advice` is for one number that may stand for missing.
        """
        low, span = self._low_and_span()
        outside = (values < low - span) | (values > low + 2 * span)
        far, distinct = outside.sum(0), values[outside].unique()
        repeated = len(distinct) == 1 and int(far.sum()) > 1
        if repeated or bool((far > FEW_FAR * len(values)).any()):
            worst = int(far.argmax())
            question = "are they in the same units?"
            if repeated:
                question = f"all of them are {distinct.item():g}: if that stands for missing, {advice}."
            warn(
                f"{int(far.sum()):,} of {values.numel():,} values lie far outside the range that the training saw and "
                f"are cut off, most in column {self.names[worst]} ({self.low[worst]:g} to {self.high[worst]:g} in the "
                f"training); {question}",
                DataWarning,
            )

    def _low_and_span(self) -> tuple[Tensor, Tensor]:
        low, high = (torch.tensor(ends, dtype=torch.float64) for ends in (self.low, self.high))
        return low, torch.where(high > low, high - low, 1.0)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training and a test part with the same classes and the same shape of sample.

    `split_here` says that the source had one part only.
    """

    train: Data
    test: Data
    split_here: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        shapes = [tuple(part.inputs.shape[1:]) for part in (self.train, self.test)]
        if shapes[0] != shapes[1]:
            raise DataError(f"{self.train.name}: training samples are {shapes[0]} but test samples {shapes[1]}")
        if self.train.classes != self.test.classes:
            raise DataError(
                f"{self.train.name}: the parts name different classes, {self.train.classes} and {self.test.classes}"
            )


def number_labels(labels: Sequence[str], where: object) -> tuple[tuple[str, ...], Tensor]:
    """Class names in order (numbers by value, "3.0" the same as "3") and each label's index in them (N,).

    If one of them is no number, such as "01" and words, all are words. `where` they were found is for errors.
    """
    try:
        named = [_plain_number(label) for label in labels]
    except ValueError:
        named = list(labels)
        classes = tuple(sorted(set(named)))
    else:
        classes = tuple(sorted(set(named), key=lambda name: (float(name), name)))
        _require_classes(classes, len(labels), where)
    if len(classes) == len(labels) > MOST_MEASURED:
        warn(
            f"{where}: every sample has a label of its own, such as {labels[0]}; are these the labels?",
            DataWarning,
        )
    index = {label: number for number, label in enumerate(classes)}
    return classes, torch.tensor([index[label] for label in named], dtype=torch.int64)


def _require_classes(numbers: Sequence[str], samples: int, where: object) -> None:
    """Numbers with fractions most of which occur once are measurements."""
    fractions = [number for number in numbers if not float(number).is_integer()]
    if fractions and len(numbers) > max(samples / 2, MOST_MEASURED):
        raise DataError(
            f"{where}: the labels are {len(numbers)} different numbers in {samples} samples, such as {fractions[0]}, "
            "which are no classes; take another column for the labels, or divide them into a few ranges"
        )


def _plain_number(label: str) -> str:
    if re.fullmatch(r"-?(0|[1-9]\d*)", label, re.ASCII):
        return label
    number = float(label)
    if not math.isfinite(number) or "_" in label or re.match(r"[+-]?0\d", label):
        raise ValueError(label)
    return str(int(number)) if number.is_integer() else str(number)
