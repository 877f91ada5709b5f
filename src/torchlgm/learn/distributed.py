"""Data-parallel training over processes: every process has the same model and a share of each batch."""

from __future__ import annotations

import os
from collections.abc import Iterable

import torch
from torch import Tensor, distributed


class Group:
    """This process among its peers; a group of one outside `torchrun`."""

    def __init__(self) -> None:
        self.started = False
        if "RANK" in os.environ and "WORLD_SIZE" in os.environ and not distributed.is_initialized():
            distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
            self.started = True
        self.active = distributed.is_available() and distributed.is_initialized()
        self.rank = distributed.get_rank() if self.active else 0
        self.size = distributed.get_world_size() if self.active else 1

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def share(self, index: Tensor) -> Tensor:
        """This process's part of a batch."""
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

    def close(self) -> None:
        if self.started:
            distributed.destroy_process_group()
