"""Trainings over processes; run by torchrun in the tests, or alone for comparison."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed
from torch.utils.data import IterableDataset

from helpers.tiny_training import Watcher, bars, figures, posterior, settings, weights
from torchlgm import LGMClassifier, Posterior, lbp
from torchlgm.data import Shards
from torchlgm.errors import TrainingError
from torchlgm.learn import Ensemble, JointLikelihood, Objective, Result, Samples, fit
from torchlgm.learn.distributed import Group

OBJECTIVE = JointLikelihood()
SAMPLES = bars(41)


@dataclass(frozen=True, repr=False)
class Acting(Objective):
    """The objective, with something done before each loss."""

    act: Any

    def __repr__(self) -> str:
        return repr(OBJECTIVE)

    def loss(self, predictor: Posterior, x: Tensor, y: Tensor, complete: Tensor | None = None) -> Tensor:
        self.act()
        return OBJECTIVE.loss(predictor, x, y, complete)


def train(
    folder: Path, seed: int = 0, act: Any = None, epochs: int = 4, resume: bool = False, reporters: Any = ()
) -> tuple[Posterior, Result]:
    """On 41 samples in batches of 10: the last batch has one sample, so one of two processes has none."""
    trained = posterior(seed)
    objective = OBJECTIVE if act is None else Acting(act)
    data = bars(41), bars(20, seed=1)
    return trained, fit(
        trained, *data, objective, settings(visible=0.6, epochs=epochs), folder, resume, reporters=reporters
    )


class Rows(IterableDataset[Any]):
    """The samples of `bars(41)`, which every process reads."""

    def __iter__(self) -> Iterator[Any]:
        yield from zip(SAMPLES.inputs.to(torch.get_default_dtype()), SAMPLES.targets, strict=True)


class Parts(Shards):
    """Batches of ten of them, in parts: of the last, of one sample, a second process has nothing."""

    def shard(self, index: int, count: int) -> Iterator[Any]:
        for batch in torch.arange(len(SAMPLES)).split(10):
            if len(mine := batch[index::count]):
                yield SAMPLES.inputs[mine].to(torch.get_default_dtype()), SAMPLES.targets[mine]


class Different(Rows):
    """Rows in another order in each process."""

    def __iter__(self) -> Iterator[Any]:
        rows = list(super().__iter__())
        return reversed(rows) if int(os.environ.get("RANK", 0)) else iter(rows)


# How a training gets its samples, and what of it is hidden.
WAYS: dict[str, tuple[Any, Any]] = {
    "every process reads all": (Rows(), 0.6),
    "each reads its part": (Parts(), None),
    "an ensemble with batches of its own": (SAMPLES, 0.6),
}


def train_on(way: str) -> tuple[torch.nn.Module, Result]:
    data, visible = WAYS[way]
    trained = Ensemble([posterior(seed) for seed in range(2)]) if "ensemble" in way else posterior()
    some = settings(visible=visible, epochs=6, patience=1, learning_rate=0.3)
    valid = Samples(bars(20, seed=1).inputs, torch.arange(20) // 2 % 2)  # half of the labels are wrong, so it stops
    return trained, fit(trained, data, valid, OBJECTIVE, some, reporters=())


def answers() -> dict[str, Any]:
    found = {}
    for way in WAYS:
        trained, result = train_on(way)
        found[way] = {"weights": weights(trained).tolist(), "history": figures(result)}
    return found


CLASSIFIERS: dict[str, dict[str, Any]] = {
    "members side by side": {"n_members": 6, "random_state": 0},
    "more processes than members": {"n_members": 1, "random_state": 1},
    "one model": {"warm_start": True, "epochs": 5, "early_stopping": True, "n_iter_no_change": 1, "random_state": 2},
}


def classify(**parameters: Any) -> dict[str, list[float]]:
    """Of a classifier that stops early: what it answers, and the loss of each epoch."""
    draw = np.random.default_rng(0)
    X, y = draw.normal(size=(300, 4)), draw.integers(0, 2, 300)
    X[draw.random(X.shape) < 0.2] = np.nan
    fitted = LGMClassifier(**{"hidden": 6, "n_iter_no_change": 2, **parameters}).fit(X, y)
    found = [p.detach().double().flatten() for model in fitted.members_ for p in model.parameters()]
    return {"weights": torch.cat(found).tolist(), "losses": fitted.loss_curve_}


def complaints() -> list[str]:
    """What is said where processes have different data."""
    rank = int(os.environ["RANK"])
    X = np.random.default_rng(rank).normal(size=(40, 3))
    others = bars(20, seed=rank)
    found = []
    for work in (
        lambda: LGMClassifier(hidden=2).fit(X, X[:, 0] > 0),
        lambda: fit(posterior(), others, bars(20), settings=settings(), reporters=()),
        lambda: LGMClassifier(hidden=2 + rank).fit(X, X[:, 0] > 0),
        lambda: LGMClassifier(hidden=2, warm_start=True).fit(X[:, rank:], X[:, 0] > 0),
        lambda: fit(posterior(), bars(), bars(20), settings=settings(epochs=2 + rank), reporters=()),
        lambda: fit(posterior(), bars(), bars(20), settings=settings(batch_size=10 + rank), reporters=()),
        lambda: fit(posterior(method=lbp(2 + rank)), bars(), bars(20), settings=settings(), reporters=()),
    ):
        try:
            work()
        except TrainingError as error:
            found.append(str(error))
    return found


def complaint() -> str:
    try:
        fit(posterior(), Different(), bars(20, seed=1), settings=settings(), reporters=())
    except TrainingError as error:
        return str(error)
    return "none"


def check_group(group: Group) -> None:
    rank = group.rank
    assert (group.size, group.leads, group.started, group.active) == (2, rank == 0, True, True)
    mine, one = group.share(torch.arange(5)), group.share(torch.arange(1))
    assert mine.tolist() == [[0, 2, 4], [1, 3]][rank]
    assert len(one) == 1 - rank
    matrix, scalar = torch.full((2, 3), float(rank)), torch.tensor(10.0 * rank)
    group.average([matrix, scalar], weight=len(mine))
    torch.testing.assert_close(matrix, torch.full((2, 3), 0.4))
    torch.testing.assert_close(scalar, torch.tensor(4.0))
    group.average([scalar.fill_(rank + 1)], weight=len(one))
    torch.testing.assert_close(scalar, torch.tensor(1.0))
    assert group.sums([3, rank]) == [6, 1]
    assert (group.same(7), group.same(rank)) == (True, False)
    tensors = [torch.full((3,), float(rank)), torch.full((2, 2), rank)]
    group.copy_from_leader(tensors)
    assert all(bool((t == 0).all()) for t in tensors)
    assert group.from_leader([0.1 + rank, 2.0]) == [0.1, 2.0]
    assert group.any(rank == 1)
    assert not group.any(False)
    second = Group()
    second.close()
    assert distributed.is_initialized(), "a group that was there before is not the second one's to end"


def interrupted_in_one_process(folder: Path, rank: int) -> Posterior:
    """Ctrl-C reaches the second process alone, in the middle of the third epoch; then both go on."""
    steps = iter(range(1000))

    def act() -> None:
        if next(steps) == 10 and rank == 1:  # which has no sample of the fifth batch
            os.kill(os.getpid(), signal.SIGINT)

    try:
        train(folder, seed=rank, act=act)
    except KeyboardInterrupt as stop:
        reason = str(stop)
    else:
        raise AssertionError("was not interrupted")
    assert "stopped in epoch 3: the state is saved" in reason
    return train(folder, seed=rank, resume=True)[0]


def until_interrupted(folder: Path) -> None:
    """Says when it is in the second epoch, and goes on until Ctrl-C."""

    def say(epoch: int, done: int) -> None:
        if (epoch, done) == (2, 20):
            print("ready", flush=True)

    train(folder, act=lambda: time.sleep(0.02), epochs=10_000, reporters=[Watcher(say)])


def main(folder: Path) -> None:
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    group = Group()
    check_group(group)
    trained, result = train(folder / "uninterrupted", seed=group.rank)  # the leader's weights count
    resumed = interrupted_in_one_process(folder / "stopped", group.rank)
    answer = {
        "history": figures(result),
        "weights": weights(trained).tolist(),
        "resumed": torch.equal(weights(resumed), weights(trained)),
        "ways": answers(),
        "complaint": complaint(),
        "classifiers": {name: classify(**parameters) for name, parameters in CLASSIFIERS.items()},
        "without a seed": classify(n_members=2, epochs=2),
        "complaints": complaints(),
    }
    (folder / f"rank-{group.rank}.json").write_text(json.dumps(answer))
    until_interrupted(folder / "endless")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
