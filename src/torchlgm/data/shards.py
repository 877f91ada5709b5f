"""Rows that are read while a model is trained on them, by each process and each worker another part of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info


class Shards(IterableDataset[tuple[Tensor, Tensor]]):
    """Batches of samples, of which every process and every worker of a `DataLoader` reads a part of its own.

    A subclass has to define `shard` alone. `torchlgm.fit` says by `begin` which process this is and which epoch begins.
    A loader takes the batches as they are: `DataLoader(shards, batch_size=None, num_workers=2)`.

    >>> import torch
    >>> class Numbers(Shards):
    ...     def shard(self, index, count):
    ...         for i in range(index, 4, count):
    ...             yield torch.full((2, 1), i / 4), torch.tensor([0, 1])
    >>> numbers = Numbers()
    >>> numbers.begin(epoch=0, process=1, processes=2)
    >>> [x[0].item() for x, y in numbers]
    [0.25, 0.75]
    """

    @abstractmethod
    def shard(self, index: int, count: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and targets, batch by batch, of part `index` of `count` parts that together are all samples."""

    def begin(self, epoch: int, process: int = 0, processes: int = 1) -> None:
        """What is read next is this epoch, counted from 0, by this one of so many processes."""
        self._place.copy_(torch.tensor([epoch, process, processes]))

    @property
    def epoch(self) -> int:
        return int(self._place[0])

    @property
    def process(self) -> int:
        return int(self._place[1])

    @property
    def processes(self) -> int:
        return int(self._place[2])

    @cached_property
    def _place(self) -> Tensor:
        """In memory that is shared with the workers of a loader, which may live through several epochs."""
        return torch.tensor([0, 0, 1]).share_memory_()

    def share(self, batch_size: int) -> int:
        """How much of a batch of all processes is this one's."""
        return max(1, batch_size // self.processes + (self.process < batch_size % self.processes))

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        worker = get_worker_info()
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        return self.shard(self.process + self.processes * number, self.processes * workers)
