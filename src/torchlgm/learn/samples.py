"""What can be trained on: `Data` with one class for each sample, or `Samples` with any targets of an objective."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from torchlgm.data import Data
from torchlgm.data.arrays import as_tensor
from torchlgm.errors import DataError, EvidenceError, TrainingError
from torchlgm.learn.learner import Learner, evaluation
from torchlgm.model.encoding import range_outside
from torchlgm.posterior import Predictor


@dataclass(frozen=True, eq=False)
class Samples:
    """Inputs `(N, *shape)` in [0, 1], NaN = missing, or integer labels; targets as the objective takes them.

    That is labels `(N,)` or `(N, nodes)`, -1 = missing, or probabilities `(N, nodes, K)`, NaN = missing, times a weight
    if samples count differently. Arrays become tensors, their masked entries are missing.

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
                f"got {tuple(self.inputs.shape)} and {tuple(self.targets.shape)}."
            )
        outside = range_outside(self.inputs, 1) if self.inputs.is_floating_point() else None
        if outside is not None:
            raise DataError(
                f"{self.name}: expected inputs in [0, 1] or NaN (missing), got {outside}; scale them first, images of "
                "0 to 255 as x / 255."
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
        if len(seen) > 1 and bool((seen == seen[:1]).all()):  # that there are none, `check_fits` says more clearly
            raise DataError(f"{self.name}: all {len(seen)} known targets are the same; there is nothing to learn.")


Labelled = Data | Samples


def check_fits(learner: Learner, data: Labelled, hides: bool, unknown: bool = False) -> None:
    """One clear error if the predictor cannot be trained on such data; all targets may be `unknown`, if so."""
    one = learner.one
    if isinstance(one, Predictor) and not one.encoding.missing and (hides or data.has_missing):
        raise TrainingError(
            f"{data.name}: entries are missing or hidden, but the predictor's inputs are said to be "
            "complete; leave out missing=False"
        )
    if hides and not data.inputs.is_floating_point():
        raise TrainingError(f"{data.name}: entries of integer inputs cannot be hidden; pass visible=None")
    device = next(learner.predictor.parameters()).device
    try:
        learner.check_inputs(data.inputs)
        with evaluation(learner.predictor):
            nodes, labels = learner.log_probs(data.inputs[:1].to(device)).shape[2:]
    except EvidenceError as error:
        raise DataError(f"{data.name}: {error}") from error
    each = data.targets[0].numel()
    if each != (nodes * labels if data.targets.is_floating_point() else nodes):
        kind = "probabilities (floats)" if data.targets.is_floating_point() else "labels (integers)"
        raise DataError(
            f"{data.name}: targets shaped {tuple(data.targets.shape)}, taken for {kind}, do not fit {nodes} target "
            f"nodes with {labels} labels each; expected integers (N, {nodes}), or floats (N, {nodes}, {labels})"
        )
    if not unknown and not bool(known(data.targets, nodes).any()):
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


def known(targets: Tensor, nodes: int) -> Tensor:
    """Which nodes have a target."""
    if targets.is_floating_point():
        return ~targets.reshape(len(targets), nodes, -1).isnan().any(-1)
    return targets != -1
