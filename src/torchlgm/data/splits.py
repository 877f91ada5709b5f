"""Dividing data into two parts."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchlgm._utils.validate import check_int, is_number
from torchlgm.data.dataset import Data, Dataset
from torchlgm.errors import DataError


def paper_split(data: Data) -> tuple[Data, Data]:
    """Split off the last 20 % for validation, keeping the order: 48,000 and 12,000 samples of MNIST.

    Parameters
    ----------
    data : Data
        The samples.

    Returns
    -------
    train, valid : Data
        The two parts.
    """
    _require_data(data)
    count = _first_count(len(data), 0.8)
    train, validate = torch.arange(len(data)).tensor_split([count])
    first, second = data.take(train), data.take(validate)
    unseen = set(second.targets.tolist()) - set(first.targets.tolist())
    if unseen:
        names = ", ".join(data.classes[label] for label in sorted(unseen))
        raise DataError(
            f"{data.name}: the first 80 % hold no sample of class {names}; "
            f"the data seem sorted by class, use random_split instead"
        )
    return first, second


def random_split(data: Data, share: float, seed: int, stratify: bool = True) -> tuple[Data, Data]:
    """Shuffle and split in two parts.

    Parameters
    ----------
    data : Data
        The samples.
    share : float
        The share of the first part, which has `floor(share * N)` samples.
    seed : int
        The seed of the order.
    stratify : bool
        Whether to keep the share of each class in both parts.

    Returns
    -------
    first, second : Data
        The two parts.
    """
    _require_data(data)
    first, second = _split_indices(data.targets.cpu(), share, seed, stratify)
    return data.take(first), data.take(second)


def holdout_indices(targets: Tensor) -> tuple[Tensor, Tensor]:
    """Training and test indices of the fixed stratified 80/20 split that one-part sources get."""
    return _split_indices(targets, 0.8, seed=0, stratify=True)


def split_holdout(data: Data) -> Dataset:
    train, test = holdout_indices(data.targets)
    return Dataset(data.take(train), data.take(test), split_here=True)


def _require_data(data: object) -> None:
    if not isinstance(data, Data):
        advice = (
            "split its part data.train" if isinstance(data, Dataset) else "make Data(inputs, targets, classes) first"
        )
        raise DataError(f"expected Data to split, got {type(data).__name__}; {advice}")


def _split_indices(targets: Tensor, share: float, seed: int, stratify: bool) -> tuple[Tensor, Tensor]:
    count, seed = _first_count(len(targets), share), check_int("seed", seed, 0, error=DataError)
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(seed))
    if not stratify:
        return order[:count], order[count:]
    chosen = _choose_by_class(targets[order], count)
    return order[chosen], order[~chosen]


def _first_count(total: int, share: float) -> int:
    if not (is_number(share) and 0 < share < 1):
        raise DataError(f"share={share!r}; expected a number between 0 and 1")
    count = math.floor(share * total + 1e-9)
    if not 0 < count < total:
        raise DataError(f"{total} samples cannot be split {share:g} to {1 - share:g}: one part would be empty")
    return count


def _choose_by_class(targets: Tensor, count: int) -> Tensor:
    """Mask of `count` samples: each class's fair number rounded down, the rest to the largest remainders."""
    sizes = targets.bincount()
    fair = sizes.double() * count / len(targets)
    numbers = fair.floor().long()
    left = count - int(numbers.sum())
    numbers[(fair - numbers).argsort(descending=True, stable=True)[:left]] += 1
    chosen = torch.zeros(len(targets), dtype=torch.bool)
    for label, number in enumerate(numbers.tolist()):
        chosen[(targets == label).nonzero()[:number, 0]] = True
    return chosen
