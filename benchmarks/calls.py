"""How many Python functions a training step of a small model calls, and how often it goes from one package of torchlgm
to another: what a step costs beside its arithmetic. 64-50-10 nodes, batch 20, one sweep of belief propagation."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

import torch
from common import milliseconds, table

import torchlgm as lgm
from torchlgm import learn

ROOT = Path(lgm.__file__).parent
BATCH = 20


class Calls(NamedTuple):
    functions: Counter[str]  # calls by function, comprehensions not counted
    crossings: Counter[tuple[str, str]]  # calls from one package to another, through other libraries as well

    @property
    def total(self) -> int:
        return self.functions.total()

    @property
    def crossed(self) -> int:
        return self.crossings.total()


def count_calls(work: Callable[[], object]) -> Calls:
    """The calls of functions of torchlgm that `work` makes in this thread."""
    calls = Calls(Counter(), Counter())

    def profile(frame: FrameType, event: str, _: object) -> None:
        callee = _package(frame.f_code)
        if event != "call" or callee is None or frame.f_code.co_name.startswith("<"):
            return
        calls.functions[f"{callee}: {frame.f_code.co_qualname}"] += 1
        back = frame.f_back
        while back is not None and _package(back.f_code) is None:
            back = back.f_back
        caller = None if back is None else _package(back.f_code)
        if caller not in (None, callee):
            calls.crossings[caller, callee] += 1

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def _package(code: CodeType) -> str | None:
    """The package, or the module, right below torchlgm that the code is in."""
    file = Path(code.co_filename)
    return file.relative_to(ROOT).parts[0].removesuffix(".py") if file.is_relative_to(ROOT) else None


def training_step(joint: bool) -> Callable[[], None]:
    """A loss and its gradients, with 40 % of the inputs missing; `joint` scores beliefs about these as well."""
    torch.manual_seed(0)
    model = lgm.LGM(lgm.zoo.dense((1, 8, 8), (50,), 10))
    x, y = torch.rand(BATCH, 1, 8, 8), torch.randint(10, (BATCH,))
    holes = x.masked_fill(torch.rand_like(x) < 0.4, torch.nan)
    predictor = lgm.Posterior(model, lgm.lbp(1))
    objective = learn.JointLikelihood() if joint else learn.Likelihood()

    def step() -> None:
        objective.loss(predictor, holes, y, x).backward()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--functions", type=int, default=0, metavar="N", help="list the N functions called most often")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for joint in (False, True):
        for name in ("eager", "native"):
            step = training_step(joint)
            with lgm.backend(name):
                step()  # plans are made, and code is compiled
                calls = count_calls(step)
                fastest = min(milliseconds(step, 200))
            loss = "class and inputs" if joint else "classes"
            row = {"loss": loss, "backend": name, "calls": calls.total, "crossings": calls.crossed, "ms": fastest}
            rows.append(row)
            for function, count in calls.functions.most_common(options.functions):
                print(f"{count:6} {function}")
    print(table(rows))


if __name__ == "__main__":
    main()
