"""What can be trained on: samples in memory, or a stream of batches. Whatever else a user has becomes one of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data.distributed import DistributedSampler

from torchlgm._utils.arrays import Array, as_tensor
from torchlgm.data import Data, Dataset, Shards
from torchlgm.errors import DataError, EvidenceError, TrainingError
from torchlgm.learn.learner import Learner, evaluation
from torchlgm.model.encoding import range_outside
from torchlgm.posterior import Predictor


@dataclass(frozen=True, eq=False)
class Samples:
    """Inputs and targets, for targets other than one class for each sample.

    Arrays become tensors, and their masked entries are missing.

    Parameters
    ----------
    inputs : Tensor or array_like
        `(N, *shape)` in [0, 1], NaN = missing, or integer labels.
    targets : Tensor or array_like
        Labels `(N,)` or `(N, nodes)`, -1 = missing; or probabilities `(N, nodes, K)`, NaN = missing, times a weight if
        samples count differently.
    name : str
        What errors call them.

    Examples
    --------
    >>> x, y = Samples(torch.rand(6, 4), torch.tensor([0, 1, 0, 1, 0, 1]))[2]
    >>> x.shape, y
    (torch.Size([4]), tensor(0))
    """

    inputs: Tensor
    targets: Tensor
    name: str = "samples"

    def __post_init__(self) -> None:
        for part, missing in (("inputs", None), ("targets", -1)):
            object.__setattr__(self, part, as_tensor(f"{self.name}: {part}", getattr(self, part), missing))
        if not self.targets.is_floating_point():
            object.__setattr__(self, "targets", self.targets.long())
        if (
            self.inputs.ndim < 2
            or self.targets.ndim < 1
            or len(self.inputs) != len(self.targets)
            or self.inputs.numel() == 0
        ):
            raise DataError(
                f"{self.name}: expected inputs (N, ...) and targets (N, ...) with the same N > 0, "
                f"got {tuple(self.inputs.shape)} and {tuple(self.targets.shape)}"
            )
        outside = range_outside(self.inputs, 1) if self.inputs.is_floating_point() else None
        if outside is not None:
            raise DataError(
                f"{self.name}: expected inputs in [0, 1] or NaN (missing), got {outside}; scale them first, images of "
                "0 to 255 as x / 255"
            )

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: Any) -> tuple[Tensor, Tensor]:
        """Inputs and targets, as a DataLoader takes them."""
        return self.inputs[index], self.targets[index]

    @property
    def has_missing(self) -> bool:
        return bool(self.inputs.isnan().any())

    def to(self, device: torch.device | str) -> Samples:
        return replace(self, inputs=self.inputs.to(device), targets=self.targets.to(device))

    def require_trainable(self) -> None:
        """Raise DataError unless two targets differ."""
        flat = self.targets.reshape(len(self), -1)
        seen = flat[~flat.isnan().all(1) if flat.is_floating_point() else (flat != -1).any(1)]
        if len(seen) > 1 and bool((seen == seen[:1]).all()):  # `check_fits` has a clearer error for no targets
            raise DataError(f"{self.name}: all {len(seen)} known targets are the same; there is nothing to learn")


Labelled = Data | Samples


@dataclass(frozen=True, eq=False)
class Stream:
    """Batches of a loader, read again in every epoch: of the samples, one batch at a time is in memory."""

    loader: DataLoader[Any]
    name: str = "train"

    def __iter__(self) -> Iterator[Samples]:
        for batch in self.loader:
            yield _batch(batch, f"{self.name}: a batch")

    @property
    def batch_size(self) -> int | None:
        return self.loader.batch_size

    @property
    def apart(self) -> bool:
        """Whether every process reads samples of its own; else all read the same ones."""
        return isinstance(self.loader.dataset, Shards) or isinstance(self.loader.sampler, DistributedSampler)

    def begin(self, epoch: int, process: int, processes: int) -> None:
        """Read this epoch next, in this one of so many processes."""
        if isinstance(self.loader.dataset, Shards):
            self.loader.dataset.begin(epoch, process, processes)
        elif isinstance(self.loader.sampler, DistributedSampler):
            self.loader.sampler.set_epoch(epoch)

    @property
    def samples(self) -> int:
        """In an epoch; 0 if that is not known."""
        try:
            return len(self.loader.dataset)  # pyright: ignore[reportArgumentType]
        except TypeError:
            return 0


# What `fit` takes for training: also a pair of tensors or arrays, a Dataset of PyTorch, or a DataLoader.
Trainable = Labelled | Stream | tuple[Array, Array] | TorchDataset[Any] | DataLoader[Any]


def as_labelled(what: str, data: Trainable) -> Labelled:
    """All samples of `data`, in memory; `what` it is, for errors."""
    if isinstance(data, Data | Samples):
        return data
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        return Samples(data.tensors[0], data.tensors[1], what)
    if isinstance(data, tuple | list) and len(data) == 2 and not isinstance(data[0], tuple | list):
        return Samples(as_tensor(f"{what}: inputs", data[0]), as_tensor(f"{what}: targets", data[1], -1), what)
    if isinstance(data, DataLoader | TorchDataset | Stream):
        return _read(what, data if isinstance(data, Stream) else Stream(_loader(data), what))
    advice = "pass one of its parts, such as data.train" if isinstance(data, Dataset) else "got " + _kind(data)
    raise TrainingError(
        f"{what} must be Data, Samples, a pair (inputs, targets) of tensors or arrays, a Dataset of PyTorch or a "
        f"DataLoader; {advice}"
    )


def as_trainable(what: str, data: Trainable, batch_size: int) -> Labelled | Stream:
    """`data` in memory, or as a stream if it is a DataLoader or an IterableDataset."""
    if isinstance(data, Stream):
        return data
    if isinstance(data, DataLoader | IterableDataset):
        return Stream(_loader(data, batch_size), what)
    return as_labelled(what, data)


def _loader(data: TorchDataset[Any] | DataLoader[Any], batch_size: int = 1000) -> DataLoader[Any]:
    if isinstance(data, DataLoader):
        return data
    return DataLoader(data, None if isinstance(data, Shards) else batch_size)


def _read(what: str, stream: Stream) -> Samples:
    """Everything that a loader gives, once."""
    stream.begin(0, 0, 1)
    batches = list(stream)
    if not batches:
        raise DataError(f"{what}: the {_kind(stream.loader.dataset)} has no samples; expected at least one")
    return Samples(torch.cat([b.inputs for b in batches]), torch.cat([b.targets for b in batches]), what)


def _batch(batch: Any, name: str) -> Samples:
    if not (isinstance(batch, tuple | list) and len(batch) == 2 and all(isinstance(part, Tensor) for part in batch)):
        got = f"{len(batch)} parts" if isinstance(batch, tuple | list) else _kind(batch)
        raise DataError(f"{name}: expected tensors (inputs, targets), got {got}; choose them in collate_fn=")
    return Samples(batch[0], batch[1], name)


def _kind(value: object) -> str:
    return type(value).__name__


def check_fits(learner: Learner, data: Labelled, hides: bool, unknown: bool = False) -> None:
    """One clear error if the predictor cannot be trained on such data; all targets may be `unknown`, if so."""
    check_inputs(learner, data, hides)
    check_targets(data, *target_size(learner, data), unknown)


def target_size(learner: Learner, data: Labelled) -> tuple[int, int]:
    """How many target nodes there are, and how many labels each has, by a look at the first sample."""
    device = next(learner.predictor.parameters()).device
    try:
        with evaluation(learner.predictor):
            nodes, labels = learner.log_probs(data.inputs[:1].to(device)).shape[2:]
    except EvidenceError as error:
        raise DataError(f"{data.name}: {error}") from error
    return nodes, labels


def check_inputs(learner: Learner, data: Labelled, hides: bool) -> None:
    one = learner.one
    if isinstance(one, Predictor) and not one.encoding.missing and (hides or data.has_missing):
        raise TrainingError(
            f"{data.name}: entries are missing or hidden, but the predictor's inputs are declared "
            "complete; leave out missing=False"
        )
    if hides and not data.inputs.is_floating_point():
        raise TrainingError(f"{data.name}: entries of integer inputs cannot be hidden; pass visible=None")
    try:
        learner.check_inputs(data.inputs)
    except EvidenceError as error:
        raise DataError(f"{data.name}: {error}") from error


def check_targets(data: Labelled, nodes: int, labels: int, unknown: bool = False) -> None:
    """Raise DataError unless targets suit that many nodes with so many labels."""
    each = data.targets[0].numel()
    if each != (nodes * labels if data.targets.is_floating_point() else nodes):
        kind = "probabilities (floats)" if data.targets.is_floating_point() else "labels (integers)"
        raise DataError(
            f"{data.name}: targets shaped {tuple(data.targets.shape)}, taken for {kind}, do not fit {nodes} target "
            f"nodes with {labels} labels each; expected integers (N, {nodes}), or floats (N, {nodes}, {labels})"
        )
    if not unknown and not bool(has_target(data.targets, nodes).any()):
        raise DataError(f"{data.name}: no target is known, all {len(data)} are missing; pass samples with targets")
    if data.targets.is_floating_point():
        outside = range_outside(data.targets, torch.finfo(data.targets.dtype).max)
        if outside is not None:
            raise DataError(
                f"{data.name}: targets are floats, taken for probabilities, but go from {outside}; pass labels as "
                "integers, and NaN for a missing probability"
            )
    else:
        for label in (int(data.targets.max()), int(data.targets.min())):
            if not -1 <= label < labels:
                raise DataError(
                    f"{data.name}: label {label} does not fit target nodes with {labels} labels, expected 0 to "
                    f"{labels - 1}, or -1 for a missing one"
                )


def has_target(targets: Tensor, nodes: int) -> Tensor:
    """Which nodes have a target."""
    if targets.is_floating_point():
        return ~targets.reshape(len(targets), nodes, -1).isnan().any(-1)
    return targets != -1
