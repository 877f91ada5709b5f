"""What can be trained on: `Data` with one class for each sample, or `Samples` with any targets of an objective."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from torchlgm._utils.tracing import is_traced
from torchlgm.data import Data
from torchlgm.data.arrays import as_tensor
from torchlgm.errors import DataError, EvidenceError, TrainingError
from torchlgm.learn.objectives import Inputs, Objective, answering
from torchlgm.model import LGM


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
        outside = _outside(self.inputs, 1) if self.inputs.is_floating_point() else None
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


def source_of(objective: object) -> Inputs | None:
    """How an objective turns inputs into evidence, if it does."""
    source = getattr(objective, "inputs", None)
    return source if isinstance(source, Inputs) else None


def check_range(model: nn.Module, source: Inputs | None, x: Tensor) -> None:
    """Raise EvidenceError unless inputs are in [0, 1] or NaN or, if they are integers, labels of the model's layer.

    Where values cannot be looked at, as in a capture, nothing is checked.
    """
    lgm = next((part for part in model.modules() if isinstance(part, LGM)), None)
    if source is None or lgm is None or is_traced(x):
        return
    most = 1 if x.is_floating_point() else source.layer_in(lgm.graph).labels - 1
    outside = _outside(x, most)
    if outside is None:
        return
    if x.is_floating_point():
        raise EvidenceError(
            f"inputs of layer '{source.layer}' must be in [0, 1], NaN = missing, got {outside}; scale them first, "
            "images of 0 to 255 as x / 255"
        )
    raise EvidenceError(
        f"integer inputs are labels, 0 to {most} in layer '{source.layer}', got {outside}; pass other values as floats "
        "in [0, 1], images of 0 to 255 as x / 255"
    )


def _outside(x: Tensor, most: float) -> str | None:
    """From where to where values go, NaN aside, if some are not in 0 .. `most`."""
    if x.numel() == 0:
        return None
    low, high = x.aminmax()
    if bool(low.isnan()):
        low, high = x.nan_to_num(0, torch.inf, -torch.inf).aminmax()
    low, high = low.item(), high.item()
    return None if low >= 0 and high <= most else f"{low:g} to {high:g}"


def check_fits(model: nn.Module, objective: Objective, data: Labelled, hides: bool, unknown: bool = False) -> None:
    """One clear error if the objective cannot score the model on such data; all targets may be `unknown`, if so."""
    source = source_of(objective)
    if source is not None and not source.missing and (hides or data.has_missing):
        raise TrainingError(f"{data.name}: entries are missing or hidden, but Inputs(missing=False) rules that out")
    if hides and not data.inputs.is_floating_point():
        raise TrainingError(f"{data.name}: entries of integer inputs cannot be hidden; pass visible=None")
    device = next(model.parameters()).device
    try:
        check_range(model, source, data.inputs)
        with answering(model):
            nodes, labels = objective.log_probs(model, data.inputs[:1].to(device)).shape[1:]
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
        outside = _outside(data.targets, torch.finfo(data.targets.dtype).max)
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
