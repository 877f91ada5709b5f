"""Data-parallel training over processes: every process has the same model and a share of each batch."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, distributed


class Group:
    """This process among its peers; a group of one outside `torchrun`.

    What its methods do happens in all processes at once: every process has to call them in the same order.
    """

    def __init__(self, device: str | torch.device = "cpu") -> None:
        self.device = torch.device(device)
        called = "RANK" in os.environ and "WORLD_SIZE" in os.environ
        if self.device.type == "cuda" and self.device.index is None and called:
            self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
            torch.cuda.set_device(self.device)
        self.started = called and not distributed.is_initialized()
        if self.started:
            distributed.init_process_group("nccl" if self.device.type == "cuda" else "gloo")
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
        distributed.all_reduce(flat)
        flat = flat[:-1] / flat[-1]
        for t, mean in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
            t.copy_(mean.reshape(t.shape))

    def copy_from_leader(self, tensors: Iterable[Tensor]) -> None:
        """Overwrite each tensor by the leader's, in place."""
        if self.active:
            for t in tensors:
                distributed.broadcast(t, src=0)

    def from_leader(self, numbers: Sequence[float]) -> list[float]:
        """The leader's numbers."""
        if not self.active:
            return list(numbers)
        shared = [list(numbers)]
        distributed.broadcast_object_list(shared, src=0, device=self.device)
        return shared[0]

    def any(self, value: bool) -> bool:
        """Whether `value` is true in any process."""
        if not self.active:
            return value
        flag = torch.tensor(int(value), device=self.device)
        distributed.all_reduce(flag, distributed.ReduceOp.MAX)
        return bool(flag)

    def close(self) -> None:
        if self.started:
            distributed.destroy_process_group()
