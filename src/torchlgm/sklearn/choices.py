"""What "auto" stands for: capacity and length of training that follow from the table.

There are two ways to train. Members of an ensemble are trained side by side where the graph is a star and the class is
all that is asked for; else a single model is trained by `torchlgm.fit`.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from torchlgm.inference import lbp
from torchlgm.learn import Settings
from torchlgm.sklearn.members import FOLDS, Course, Regime
from torchlgm.sklearn.training import passes

POLICY = "policy"  # `visible`: show what acquisition asks for
HOLES = Regime(complete=0.1, low=0.05, high=1.0)
COMPLETE = Regime(complete=0.8, low=0.3, high=1.0)
PENALTY = 0.3
FEW_ROWS = 5000  # below, energies may need a penalty, and more members help
STEPS, PASSES = 1000, 40  # the longer of the two
STEPS_AS_ASKED, RATE_AS_ASKED = 7000, 0.03  # there is more to learn from rows of which little is seen
BATCH_SIZES = (64, 512)
HIDDEN, MOST_DOUBLED = 64, 2


@dataclass(frozen=True)
class Choices:
    """Parameters of a classifier for a table of so many different `rows` and `classes`; `came` counts repeats too.

    `single` says that one model is trained whatever the parameters, as `partial_fit` does.
    """

    parameters: dict[str, Any]
    rows: int
    classes: int
    came: int = 0
    single: bool = False

    @property
    def side_by_side(self) -> bool:
        p = self.parameters
        star = p["architecture"] == "dense" and len(self.hidden) == 1 and p["method"] in (None, lbp(1))
        return star and p["fill_weight"] in ("auto", 0) and not p["warm_start"] and not self.single

    @property
    def hidden(self) -> tuple[int, ...]:
        """A layer doubles with every tenfold of what the labels could say, `rows * log(classes)`."""
        hidden = self.parameters["hidden"]
        if hidden == "auto":
            tenfold = math.floor(math.log10(max(1.0, self.rows * math.log(self.classes)))) - 2
            return (HIDDEN * 2 ** int(np.clip(tenfold, 0, MOST_DOUBLED)),)
        return tuple(map(int, hidden)) if isinstance(hidden, tuple | list) else (int(hidden),)

    @property
    def bins(self) -> int:
        return self._or("bins", 12 if self.side_by_side else 5)

    @property
    def batch_size(self) -> int:
        usual = 2 ** int(math.log2(max(2, self.rows // 16)))
        return self._or("batch_size", int(np.clip(usual, *BATCH_SIZES)) if self.side_by_side else 32)

    @property
    def learning_rate(self) -> float:
        return self._or("learning_rate", 0.1 if self.side_by_side else 0.03)

    @property
    def early_stopping(self) -> bool:
        return self._or("early_stopping", self.side_by_side)

    @property
    def fill_weight(self) -> float:
        return self._or("fill_weight", 0.0 if self.side_by_side else 0.5)

    @property
    def visible(self) -> tuple[float, float] | None:
        """Of a single model."""
        if self.parameters["visible"] == POLICY:
            raise ValueError(
                "visible='policy' is for ensembles: of architecture='dense' with one hidden layer, and default method, "
                "fill_weight and warm_start, by fit; use 'auto' or shares (low, high)"
            )
        return self._or("visible", (0.2, 1.0))

    @property
    def repeated(self) -> bool:
        """Whether most rows are repeats."""
        return self.came > 2 * self.rows

    def epochs(self, rows: int) -> int:
        """Of a single model that is trained on so many rows."""
        return self._or("epochs", passes(rows, self.batch_size, self.repeated))

    def settings(self, epochs: int, rows: int, seed: int) -> Settings:
        """Of a single model that is trained on so many rows."""
        return Settings(
            epochs=epochs,
            batch_size=min(self.batch_size, rows),
            learning_rate=self.learning_rate,
            patience=int(self.parameters["n_iter_no_change"]) if self.early_stopping else None,
            seed=seed,
            visible=self.visible,
            capture="never",  # columns are picked by lists, which a captured step cannot do
        )

    def course(self, seed: int, asked: np.ndarray | None = None) -> Course:
        """Of members side by side; `asked` is what a policy asks for."""
        regimes = self._regimes()
        members = self.parameters["n_members"]
        each = (4 if self.rows < FEW_ROWS else 2) if members == "auto" else max(1, members // len(regimes))
        steps_of_pass = max(1, self.rows // self.batch_size)
        usual = max(STEPS if asked is None else STEPS_AS_ASKED, PASSES * steps_of_pass)
        epochs = self.parameters["epochs"]
        return Course(
            regimes=regimes,
            members=each,
            steps=usual if epochs == "auto" else epochs * max(1, self._trained_rows // self.batch_size),
            batch_size=self.batch_size,
            learning_rate=self.learning_rate if asked is None else self._or("learning_rate", RATE_AS_ASKED),
            patience=self.parameters["n_iter_no_change"] if self.early_stopping else None,
            seed=seed,
            threads=self.threads,
            asked=asked,
        )

    @property
    def _trained_rows(self) -> int:
        """Of a member, which holds out a fold."""
        holds_out = self.early_stopping and self.rows >= 2 * FOLDS
        return self.rows - math.ceil(self.rows / FOLDS) if holds_out else self.rows

    @property
    def threads(self) -> int:
        jobs = self.parameters["n_jobs"]
        return torch.get_num_threads() if jobs is None else (os.cpu_count() or 1) if jobs == -1 else int(jobs)

    def _regimes(self) -> tuple[Regime, ...]:
        visible, members = self.parameters["visible"], self.parameters["n_members"]
        if visible is None:
            usual = [Regime(1.0, 1.0, 1.0)]
        elif visible in ("auto", POLICY):
            usual = [HOLES, COMPLETE]
        else:
            usual = [Regime(0.0, *visible)]
        if self.rows < FEW_ROWS:
            usual.append(usual[0]._replace(penalty=PENALTY))
        return tuple(usual[: len(usual) if members == "auto" else members])

    def _or(self, name: str, usual: Any) -> Any:
        given = self.parameters[name]
        return usual if isinstance(given, str) and given == "auto" else given
