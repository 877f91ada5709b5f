"""Data-parallel training over processes: every process has the same model and a share of each batch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

from torchlgm._utils.machine import usable_device
from torchlgm.errors import LGMError, TrainingError

Result = TypeVar("Result")


class Group:
    """This process among its peers; a group of one outside `torchrun`.

    What its methods do happens in all processes at once: every process has to call them in the same order.
    """

    def __init__(self, device: str | torch.device = "cpu") -> None:
        called = "RANK" in os.environ and "WORLD_SIZE" in os.environ
        shared = called and str(device) == "cuda"
        own = _own_device(int(os.environ.get("LOCAL_RANK", 0))) if shared else device
        self.device = usable_device(own, TrainingError)
        if shared:
            torch.cuda.set_device(self.device)
        self.started = called and not distributed.is_initialized()
        if self.started:
            _meet("nccl" if self.device.type == "cuda" else "gloo")
        self.active = distributed.is_available() and distributed.is_initialized()
        self.rank = distributed.get_rank() if self.active else 0
        self.size = distributed.get_world_size() if self.active else 1

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def share(self, index: Tensor) -> Tensor:
        """This process's part of a batch; empty for some if the batch has fewer samples than there are processes."""
        return index[self.rank :: self.size]

    def average(self, tensors: Iterable[Tensor], weight: float) -> None:
        """Replace each tensor by its mean over the processes, weighted by `weight`, in place."""
        if not self.active:
            return
        tensors = list(tensors)
        flat = torch.cat([t.reshape(-1) * weight for t in tensors] + [tensors[0].new_tensor([weight])])
        with _together():
            distributed.all_reduce(flat)
        flat = flat[:-1] / flat[-1]
        for t, mean in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            t.copy_(mean.reshape(t.shape))

    def copy_from_leader(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite each tensor by the leader's, in place."""
        if self.active:
            with _together():
                for t in tensors:
                    distributed.broadcast(t, src=0)

    def from_leader(self, numbers: Sequence[float]) -> list[float]:
        """The leader's numbers."""
        return self._of_leader(list(numbers))

    def decided(self, work: Callable[[], Result]) -> Result:
        """What `work` gives in the leader, or the error that it raises there."""
        if not self.active:
            return work()
        result, error = None, None
        if self.leads:
            try:
                result = work()
            except LGMError as raised:
                error = raised
        result, error = self._of_leader((result, error))
        if error is not None:
            raise error
        return result

    def _of_leader(self, value: Any) -> Any:
        if not self.active:
            return value
        shared = [value]
        with _together():
            distributed.broadcast_object_list(shared, src=0, device=self.device)
        return shared[0]

    def any(self, value: bool) -> bool:
        """Whether `value` is true in any process."""
        return bool(self._reduced([int(value)], distributed.ReduceOp.MAX)[0]) if self.active else value

    def part(self, count: int) -> slice:
        """Which of so many things are this process's; empty for some if there are fewer than processes."""
        return slice(self.rank * count // self.size, (self.rank + 1) * count // self.size)

    def gathered(self, mine: Tensor, count: int) -> Tensor:
        """What all processes have, out of the `part` of so many things that is this one's."""
        if not self.active:
            return mine
        whole = torch.zeros(count, *mine.shape[1:], dtype=mine.dtype, device=self.device)
        whole[self.part(count)] = mine.to(self.device)
        with _together():
            distributed.all_reduce(whole)
        return whole.to(mine.device)

    def sums(self, numbers: Sequence[int]) -> list[int]:
        """The sum over the processes of each number."""
        return self._reduced(numbers, distributed.ReduceOp.SUM) if self.active else list(numbers)

    def same(self, number: int) -> bool:
        """Whether all processes have the same number."""
        if not self.active:
            return True
        most, least = self._reduced([number, -number], distributed.ReduceOp.MAX)
        return most == -least

    def _reduced(self, numbers: Sequence[int], how: Any) -> list[int]:
        together = torch.tensor(numbers, device=self.device)
        with _together():
            distributed.all_reduce(together, how)
        return together.tolist()

    def close(self) -> None:
        if self.started:
            distributed.destroy_process_group()


def _own_device(number: int) -> torch.device:
    """The CUDA device of one of the processes of this machine."""
    if number >= torch.cuda.device_count():
        raise TrainingError(
            f"process {number + 1} of this machine needs a CUDA device of its own, but there are "
            f"{torch.cuda.device_count()}; start as many processes as devices, or train on the CPU"
        )
    return torch.device("cuda", number)


def _meet(backend: str) -> None:
    """Wait for the other processes that the environment speaks of."""
    try:
        distributed.init_process_group(backend)
    except (RuntimeError, ValueError) as error:
        raise TrainingError(
            f"RANK={os.environ['RANK']} and WORLD_SIZE={os.environ['WORLD_SIZE']} are set, as torchrun does, but the "
            f"processes do not meet ({' '.join(str(error).split())[:200]}); start this by torchrun, or unset them"
        ) from error


@contextmanager
def processes(device: str | torch.device) -> Iterator[Group]:
    """This process among those of `torchrun`, if any, for as long as it lasts."""
    group = Group(device)
    try:
        yield group
    finally:
        group.close()


def require_same(group: Group, number: int, what: str) -> None:
    """Raise unless all processes have the same number, such as a checksum of `what`."""
    if not group.same(number):
        raise TrainingError(
            f"the {group.size} processes have different {what}; they train one model together, so give the same to all"
        )


@contextmanager
def _together() -> Iterator[None]:
    """What all processes do at once: it fails where one of them has ended."""
    try:
        yield
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise TrainingError(
            f"another process of this training has ended ({reason}); the same command goes on from the last state, "
            "with any number of processes"
        ) from error
