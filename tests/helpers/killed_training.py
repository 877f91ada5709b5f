"""Trainings in processes of their own, to be interrupted and killed. Run by the tests of resumption."""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from helpers.tiny_training import Watcher, train, weights
from torchlgm._utils.signals import Terminated

EPOCHS = 30


def interrupted(folder: Path) -> None:
    """Says when it is in the middle of the second epoch, and waits there for a signal."""
    arrived, end = os.pipe()
    os.set_blocking(end, False)
    signal.set_wakeup_fd(end)

    def act(epoch: int, done: int) -> None:
        if epoch == 2 and done == 20:
            print("ready", flush=True)
            os.read(arrived, 1)

    try:
        train(folder, reporters=[Watcher(act)])
    except (KeyboardInterrupt, Terminated) as stop:
        print(stop, flush=True)
        sys.exit(getattr(stop, "code", 130))


def _life(folder: Path, answer: Path) -> None:
    trained, _ = train(folder, resume=True, epochs=EPOCHS, visible=0.7)
    torch.save(weights(trained), answer)
    os._exit(0)


def killed(folder: Path) -> None:
    """Trains in one forked process after another, kills each at a random moment, and tells how that went."""
    uninterrupted, _ = train(epochs=EPOCHS, visible=0.7)
    answer, chance = folder.parent / "answer.pt", random.Random(0)
    kills, patience = 0, 0.05
    while True:
        child = os.fork()
        if child == 0:
            _life(folder, answer)
        time.sleep(chance.uniform(0, patience))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            break
        kills, patience = kills + 1, patience * 1.1
    same = torch.equal(torch.load(answer), weights(uninterrupted))
    print(json.dumps({"kills": kills, "exit": os.WEXITSTATUS(status), "same": same}))


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"interrupted": interrupted, "killed": killed}[sys.argv[1]](Path(sys.argv[2]))
