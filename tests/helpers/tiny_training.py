"""A training that takes milliseconds, for tests that run it whole, in parts and in other processes."""

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchlgm import LGM, Init, Posterior, lbp, zoo
from torchlgm.data import Data
from torchlgm.inference import Exact, Method
from torchlgm.learn import Likelihood, Result, Settings, fit

METHOD = lbp(2)
OBJECTIVE = Likelihood()


def bars(count: int = 45, seed: int = 0, missing: float = 0.0) -> Data:
    """Noisy pictures `(N, 1, 3, 3)` with a bright first row (class 0) or first column (class 1)."""
    generator = torch.Generator().manual_seed(seed)
    x = 0.25 * torch.rand(count, 1, 3, 3, generator=generator, dtype=torch.float32)
    y = torch.arange(count) % 2
    x[y == 0, 0, 0] += 0.7
    x[y == 1, 0, :, 0] += 0.7
    x[torch.rand(x.shape, generator=generator) < missing] = math.nan
    return Data(x, y, ("row", "column"), "bars")


def model(seed: int = 0, classes: int = 2) -> LGM:
    generator = torch.Generator().manual_seed(seed)
    return LGM(zoo.dense((1, 3, 3), (6,), classes), Init(0.3, 0.1), generator=generator)


def posterior(seed: int = 0, method: Method | Exact = METHOD, classes: int = 2) -> Posterior:
    return Posterior(model(seed, classes), method)


def settings(**changes: Any) -> Settings:
    plain = {"epochs": 4, "batch_size": 10, "learning_rate": 0.03, "patience": None, "scheduler": None}
    return Settings(**{**plain, **changes})


def train(folder: Path | None = None, resume: bool = False, **changes: Any) -> tuple[Posterior, Result]:
    """`changes` of the settings, `method`, `objective` and `reporters`."""
    objective, reporters = changes.pop("objective", OBJECTIVE), changes.pop("reporters", None)
    trained = posterior(method=changes.pop("method", METHOD))
    return trained, fit(
        trained, bars(), bars(20, seed=1), objective, settings(**changes), folder, resume, reporters=reporters
    )


def weights(of: torch.nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in of.parameters()])


def figures(result: Result) -> list[dict[str, Any]]:
    """The history without the clock."""
    return [{k: v for k, v in row.items() if k not in ("seconds", "samples_per_second")} for row in result.history]


class Watcher:
    """A reporter that calls `act(epoch, done)` after each step."""

    def __init__(self, act: Any) -> None:
        self.act = act

    def step(self, epoch: int, epochs: int, done: int, samples: int) -> None:
        self.act(epoch, done)

    def epoch(self, row: Any) -> None: ...

    def close(self) -> None: ...
