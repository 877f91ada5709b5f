"""What can be trained on: `Data` with one class for each sample, or `Samples` with any targets of an objective."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from torchlgm.data import Data
from torchlgm.errors import DataError, EvidenceError, GraphError, TrainingError
from torchlgm.learn.objectives import Inputs, Objective


@dataclass(frozen=True, eq=False)
class Samples:
    """Inputs `(N, *shape)` in [0, 1], NaN = missing, or integer labels; targets as the objective takes them.

    That is labels `(N,)` or `(N, nodes)`, -1 = missing, or probabilities `(N, nodes, K)`, NaN = missing.
    """

    inputs: Tensor
    targets: Tensor
    name: str = "samples"

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.targets) or self.inputs.ndim < 2 or self.inputs.numel() == 0:
            raise DataError(
                f"{self.name}: expected inputs (N, ...) and targets (N, ...) with the same N > 0, "
                f"got {tuple(self.inputs.shape)} and {tuple(self.targets.shape)}."
            )
        if self.inputs.is_floating_point() and bool(((self.inputs < 0) | (self.inputs > 1)).any()):
            raise DataError(f"{self.name}: expected inputs in [0, 1] or NaN (missing); scale them first.")

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def has_missing(self) -> bool:
        return bool(self.inputs.isnan().any())

    def to(self, device: torch.device | str) -> Samples:
        return replace(self, inputs=self.inputs.to(device), targets=self.targets.to(device))

    def require_trainable(self) -> None:
        """Raise DataError unless two targets differ."""
        if bool((self.targets == self.targets[:1]).all()):
            raise DataError(f"{self.name}: all {len(self)} targets are the same; there is nothing to learn.")


Labelled = Data | Samples


def check_fits(model: torch.nn.Module, objective: Objective, data: Labelled, hides: bool) -> None:
    """One clear error if the objective cannot score the model on such data."""
    inputs = getattr(objective, "inputs", None)
    if isinstance(inputs, Inputs) and not inputs.missing and (hides or data.has_missing):
        raise TrainingError(f"{data.name}: entries are missing or hidden, but Inputs(missing=False) rules that out")
    if hides and not data.inputs.is_floating_point():
        raise TrainingError(f"{data.name}: entries of integer inputs cannot be hidden; pass visible=None")
    device = next(model.parameters()).device
    try:
        with torch.no_grad():
            nodes, labels = objective.log_probs(model, data.inputs[:1].to(device)).shape[1:]
    except (EvidenceError, GraphError) as error:
        raise DataError(f"{data.name}: {error}") from error
    each = data.targets[0].numel()
    if each != (nodes * labels if data.targets.is_floating_point() else nodes):
        raise DataError(
            f"{data.name}: targets shaped {tuple(data.targets.shape)} do not fit {nodes} target nodes "
            f"with {labels} labels each"
        )
    if not data.targets.is_floating_point():
        for label in (int(data.targets.max()), int(data.targets.min())):
            if not -1 <= label < labels:
                raise DataError(
                    f"{data.name}: label {label} does not fit target nodes with {labels} labels, expected 0 to "
                    f"{labels - 1}, or -1 for a missing one"
                )
