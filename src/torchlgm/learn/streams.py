"""Several trainings at the same time on one GPU, each in a thread with a stream of its own."""

from __future__ import annotations

import torch


def before_threads(device: torch.device) -> None:
    """To be called once the data is on the device, before threads train on it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # other streams will read the data
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])  # imports much of PyTorch, better not in all threads


def take_stream(device: torch.device) -> None:
    """Give this thread a stream of its own, as captured steps need that run beside others."""
    if device.type == "cuda":
        torch.cuda.set_stream(torch.cuda.Stream(device))
