"""Devices that lack something, imitated on the CPU."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class NoFloat64(TorchDispatchMode):
    """As on Apple's GPUs, no operation makes a float64 tensor; the message names the operation."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for x in tree_leaves(made):
            if isinstance(x, torch.Tensor) and x.dtype == torch.float64:
                raise TypeError(f"{func} made a float64 tensor; this device has none")
        return made
