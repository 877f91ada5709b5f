"""A trained model with all that is needed to use it: class probabilities of inputs, and inputs without gaps."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from torchlgm.errors import CheckpointError, DataError, LGMError
from torchlgm.inference import METHODS, Method
from torchlgm.learn import predict_proba
from torchlgm.model import LGM, load_with_card, save
from torchlgm.posterior import Posterior

CARD = "torchlgm.classifier"
MOST_EDGES = 2**24  # of a batch, so that its messages fit into memory


@dataclass(frozen=True)
class Inference:
    """A method of inference in words."""

    name: str = "lbp"
    schedule: str = "sweep"
    iterations: int = 1
    damping: float = 0.0

    @property
    def method(self) -> Method:
        if self.name not in METHODS:
            raise DataError(f"method {self.name!r}: expected one of {', '.join(METHODS)}")
        return METHODS[self.name](self.iterations, self.schedule, damping=self.damping)

    def __str__(self) -> str:
        times = "1 iteration" if self.iterations == 1 else f"{self.iterations} iterations"
        return f"{self.name}, {self.schedule}, {times}" + (f", damping {self.damping:g}" if self.damping else "")


@dataclass(frozen=True, eq=False)
class Classifier:
    """A layered graphical model that classifies inputs `(N, *shape)` in [0, 1], NaN = missing."""

    model: LGM
    inference: Inference
    classes: tuple[str, ...]
    input: str = ""  # the first layer of the graph
    target: str = ""  # its root
    temperature: float = 1.0  # of its class probabilities

    def __post_init__(self) -> None:
        graph = self.model.graph
        object.__setattr__(self, "input", self.input or graph.layers[0].name)
        object.__setattr__(self, "target", self.target or graph.root)
        if graph.layer(self.target).labels != len(self.classes) or graph.layer(self.target).nodes != 1:
            raise DataError(
                f"layer '{self.target}' is not one node with {len(self.classes)} labels, one for each class"
            )
        _ = self.posterior  # raises if there is no such method

    @cached_property
    def posterior(self) -> Posterior:
        posterior = Posterior(self.model, self.inference.method, self.input, self.target)
        posterior.temperature = self.temperature
        return posterior

    @property
    def shape(self) -> tuple[int, ...]:
        return self.model.graph.layer(self.input).sizes

    @property
    def batch(self) -> int:
        """How many samples to treat at once."""
        return max(1, min(1000, MOST_EDGES // self.model.graph.edges))

    def predict_proba(self, x: Tensor) -> Tensor:
        """Class probabilities `(N, K)`."""
        return predict_proba(self.posterior, self._checked(x), self.batch).cpu()

    def complete(self, x: Tensor) -> Tensor:
        """`x` with every missing entry replaced by the value that is expected there."""
        x = self._checked(x)
        with torch.no_grad():
            return torch.cat([self.posterior.complete(part).cpu() for part in x.split(self.batch)])

    def _checked(self, x: Tensor) -> Tensor:
        if tuple(x.shape[1:]) != self.shape or len(x) == 0:
            expected = ", ".join(["N", *map(str, self.shape)])
            raise DataError(f"the model takes samples shaped ({expected}), N > 0, got {tuple(x.shape)}")
        if not x.is_floating_point():
            raise DataError(f"the model takes floating point numbers in [0, 1], got {x.dtype}; scale them first")
        return x

    def save(self, path: str | Path) -> Path:
        card = {
            "card": CARD,
            "inference": asdict(self.inference),
            "classes": list(self.classes),
            "input": self.input,
            "target": self.target,
            "temperature": self.temperature,
        }
        return save(self.model, path, card)

    @staticmethod
    def load(path: str | Path, device: str | torch.device = "cpu") -> Classifier:
        model, card = load_with_card(path, device)
        if card.get("card") != CARD:
            raise CheckpointError(f"{path}: a model, but not one with classes; train one with `torchlgm train`")
        try:
            return Classifier(
                model,
                Inference(**card["inference"]),
                tuple(map(str, card["classes"])),
                card["input"],
                card["target"],
                float(card["temperature"]),
            )
        except (KeyError, TypeError, ValueError, LGMError) as error:
            raise CheckpointError(f"{path}: the description of the classifier is damaged ({error})") from error
