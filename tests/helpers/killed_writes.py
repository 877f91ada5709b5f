"""Processes that are killed at one of the calls that write. Run by the tests of what is left after a crash.

python -m helpers.killed_writes WHAT FOLDER STEP does WHAT, once in each of many forked processes. The first is killed
at its first call that makes, opens, moves or deletes a file, the next at a later one, and so on, a STEP apart. A file
about to be opened is left empty or half-written every other time. Then WHAT is taken up again, and what is there is
compared with what an undisturbed process leaves. Prints how many were killed.
"""

import io
import json
import os
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import torch

import torchlgm as lgm
from helpers.runs import QUICK, write_halves
from helpers.tiny_training import train, weights
from torchlgm.cli import console
from torchlgm.cli.main import app

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
CHANGES = ("os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod")


def die_at(call: int, below: Path) -> None:
    """Have this process be killed at one of its calls that write below a folder."""
    count, busy, base = 0, False, os.path.realpath(below)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count, busy
        opens = event == "open" and arguments[2] & WRITES
        if busy or not (opens or event in CHANGES) or not isinstance(arguments[0], str | os.PathLike):
            return
        within = arguments[1] if event in ("os.remove", "os.rmdir") else -1  # of a folder that is deleted whole
        path = os.path.realpath(os.path.join(f"/proc/self/fd/{within}" if within >= 0 else "", arguments[0]))
        if not path.startswith(base):
            return
        count += 1
        if count == call:
            busy = True
            if opens and call % 2:
                Path(path).write_bytes(b"{" * (call % 4 // 2))
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def in_a_fork(work: Callable[[], Any]) -> bool:
    """Whether it came to its end."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "failed instead of being killed"
    return os.WIFEXITED(status)


def contents(folder: Path) -> list[str]:
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    return [name for name in names if "state-" not in name and not name.endswith(".lock")]


class Fit:
    """A training with its states in a folder."""

    def do(self, folder: Path) -> None:
        train(folder / "run", resume=True, epochs=3, reporters=[])

    again = do

    def check(self, folder: Path, like: Path) -> None:
        found, expected = (weights(train(f / "run", resume=True, epochs=3, reporters=[])[0]) for f in (folder, like))
        assert torch.equal(found, expected)
        assert len(list((folder / "run").glob("state-*"))) == 1


class Command:
    """`torchlgm train`, with all that is in its folder."""

    def do(self, folder: Path) -> None:
        run("train", folder.parent / "halves.npz", "--out", folder / "run", "--no-compare", "--no-pictures", *QUICK)

    def again(self, folder: Path) -> None:
        there = folder / "run"
        if (there / "metrics.json").exists() and not (there / "training").exists():
            return
        if (there / "config.json").exists():
            run("train", "--resume", there)
        else:
            for part in there.glob(".config.json.*.part"):
                part.unlink()  # nothing was begun
            self.do(folder)

    def check(self, folder: Path, like: Path) -> None:
        run("predict", folder / "run", folder.parent / "halves.npz", "--out", folder / "probs.csv")
        run("predict", like / "run", folder.parent / "halves.npz", "--out", like / "probs.csv")
        assert (folder / "probs.csv").read_text() == (like / "probs.csv").read_text()
        for f in (folder, like):
            (f / "probs.csv").unlink()


class Save:
    """A model that replaces another one of the same name: one of both is there at any time."""

    def do(self, folder: Path) -> None:
        for value in (1.0, 2.0):
            model = lgm.LGM(lgm.zoo.dense(inputs=4, hidden=[3], classes=2), init="zero")
            torch.nn.init.constant_(model.unary["classes"], value)
            lgm.save(model, folder / "model")

    def again(self, folder: Path) -> None:
        if list(folder.glob("*model*")):
            first = not list(folder.glob("*model")) and not (folder / ".model.old").exists()
            assert first or float(lgm.load(folder / "model").unary["classes"].detach()) in (1.0, 2.0)
        self.do(folder)

    def check(self, folder: Path, like: Path) -> None:
        assert float(lgm.load(folder / "model").unary["classes"].detach()) == 2.0


def run(*arguments: object) -> None:
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        assert console.run(app, [*map(str, arguments)]) == 0


def main(what: str, folder: Path, step: int) -> None:
    task = {"fit": Fit, "command": Command, "save": Save}[what]()
    warnings.simplefilter("ignore")
    np.random.seed(0)  # noqa: NPY002
    write_halves(folder / "halves.npz")
    like = folder / "like"
    like.mkdir()
    task.do(like)
    kills, call = 0, 1
    while True:
        one = folder / str(call)
        one.mkdir()

        def killed(one: Path = one, call: int = call) -> None:
            die_at(call, one)
            task.do(one)

        if in_a_fork(killed):
            break
        kills += 1
        task.again(one)
        task.check(one, like)
        assert contents(one) == contents(like), (call, contents(one), contents(like))
        call += step
    print(json.dumps({"kills": kills}))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
