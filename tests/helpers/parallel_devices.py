"""Trainings of every kind on a device, all of which stop early, and what they end with: alone, or under torchrun.

python -m helpers.parallel_devices DEVICE OUT.pt
torchrun --nproc-per-node 1 -m helpers.parallel_devices DEVICE OUT.pt
python -m helpers.parallel_devices compare ONE.pt OTHER.pt TOLERANCE
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from helpers.parallel_training import SAMPLES, Parts, Rows
from helpers.tiny_training import bars, posterior, settings, weights
from torchlgm import LGMClassifier
from torchlgm.learn import Ensemble, JointLikelihood, Samples, fit
from torchlgm.learn.distributed import Group
from torchlgm.learn.samples import Trainable


def _fit(predictor: nn.Module, data: Trainable, device: str, visible: float | None) -> Tensor:
    """The weights, and the number of epochs."""
    how = settings(visible=visible, epochs=8, patience=1, learning_rate=0.1)
    valid = Samples(bars(20, seed=1).inputs, torch.arange(20) // 2 % 2)  # half of the labels are wrong
    result = fit(predictor, data, valid, JointLikelihood(), how, device=device, reporters=())
    return torch.cat([weights(predictor).cpu(), torch.tensor([float(len(result.history))])])


def _classify(device: str) -> Tensor:
    draw = np.random.default_rng(0)
    X, y = draw.normal(size=(300, 4)), draw.integers(0, 2, 300)
    X[draw.random(X.shape) < 0.2] = np.nan
    fitted = LGMClassifier(hidden=6, n_members=3, n_iter_no_change=2, random_state=0, device=device).fit(X, y)
    return torch.cat([*[weights(model).cpu() for model in fitted.members_], torch.tensor([float(fitted.n_iter_)])])


TRAININGS: dict[str, Callable[[str], Tensor]] = {
    "samples": lambda device: _fit(posterior(), SAMPLES, device, 0.6),
    "an ensemble": lambda device: _fit(Ensemble([posterior(seed) for seed in range(2)]), SAMPLES, device, 0.6),
    "a stream": lambda device: _fit(posterior(), Rows(), device, 0.6),
    "parts of a stream": lambda device: _fit(posterior(), Parts(), device, None),
    "a classifier of tables": _classify,
}


def main(device: str, out: Path) -> None:
    torch.set_default_dtype(torch.float64 if device == "cpu" else torch.float32)
    torch.set_num_threads(1)
    group = Group(device)
    found = {name: train(device).double().cpu() for name, train in TRAININGS.items()}
    if group.active:
        print(f"{torch.distributed.get_backend()}, {group.size} processes, {group.device}")
    if group.leads:
        torch.save(found, out)
    group.close()


def compare(one: Path, other: Path, tolerance: float) -> None:
    both = torch.load(one), torch.load(other)
    for name in TRAININGS:
        difference, steps = float((both[0][name] - both[1][name]).abs().max()), int(both[0][name][-1])
        print(f"{name}: weights differ by at most {difference:.2g}, after {steps} epochs or steps")
        torch.testing.assert_close(both[0][name], both[1][name], rtol=0, atol=tolerance)


if __name__ == "__main__":
    if sys.argv[1] == "compare":
        compare(Path(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4]))
    else:
        main(sys.argv[1], Path(sys.argv[2]))
