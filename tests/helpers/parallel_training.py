"""Trainings over processes; run by torchrun in the tests, or alone for comparison."""

import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed

from helpers.tiny_training import Watcher, bars, figures, posterior, settings, weights
from torchlgm import Posterior
from torchlgm.learn import JointLikelihood, Objective, Result, fit
from torchlgm.learn.distributed import Group

OBJECTIVE = JointLikelihood()


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
        if next(steps) == 12 and rank == 1:
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
    }
    (folder / f"rank-{group.rank}.json").write_text(json.dumps(answer))
    until_interrupted(folder / "endless")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
