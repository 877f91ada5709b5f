"""Work at the same time on one GPU: trainings in threads with streams of their own, and parts of a captured step."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


def before_threads(device: torch.device) -> None:
    """Call this once the data is on the device, before threads train on it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # other streams will read the data
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])  # imports much of PyTorch, better not in all threads


def take_stream(device: torch.device) -> None:
    """Give this thread a stream of its own, as captured steps need that run concurrently."""
    if device.type == "cuda":
        torch.cuda.set_stream(torch.cuda.Stream(device))


class SideStream:
    """While a graph is captured: a second stream from this point on, until the current one waits for it.

    It is of use in this graph only. Memory that is used in both must stay referenced until then, and none may be taken
    in it that the current stream has given back in between. Elsewhere all is done in the current stream.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, None
        capturing = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        self._begin = torch.cuda.current_stream(device).record_event() if capturing else None

    def __call__(self) -> AbstractContextManager[object]:
        if self._begin is None:
            return nullcontext()
        if self._stream is None:
            self._stream = torch.cuda.Stream(self._device, priority=-1)  # other trainings have none of these
            self._stream.wait_event(self._begin)
        return torch.cuda.stream(self._stream)

    def join(self) -> None:
        if self._stream is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)
