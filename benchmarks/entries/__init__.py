"""One module for each row of the table of benchmarks; `run(setting)` measures it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from subjects import Incorrect


class Skipped(Exception):
    """Cannot be measured here, and why."""


@dataclass(frozen=True)
class Setting:
    """Where and how much to measure."""

    device: torch.device
    quick: bool = False

    @property
    def cuda(self) -> bool:
        return self.device.type == "cuda"

    @property
    def repeats(self) -> int:
        return 2 if self.quick else 10

    def sizes(self, full: tuple[Any, ...], quick: tuple[Any, ...]) -> tuple[Any, ...]:
        return quick if self.quick else full

    def require_gpu(self, why: str) -> None:
        if not self.cuda:
            raise Skipped(f"needs a GPU: {why}")


def rows(measure: Callable[..., dict[str, Any]], cases: Iterable[tuple[Any, ...]], *rest: Any) -> list[dict[str, Any]]:
    """A row for each case; one whose answers are wrong says so and has no times."""
    found = []
    for case in cases:
        try:
            found.append(measure(*case, *rest))
        except Incorrect as reason:
            found.append({"model": case[0], "incorrect": str(reason)})
        print(found[-1], flush=True)  # what is measured is known even if the rest fails
    return found
