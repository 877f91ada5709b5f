"""Adam for small models on a GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor
from torch.optim import Adam

from torchlgm._utils.torch_private import count_steps, fused_adam
from torchlgm.errors import TrainingError
from torchlgm.learn.cuda.streams import SideStream

PIECES = 36  # tensors that PyTorch's kernel takes in one launch
LEAST = 2048  # numbers that a block of it takes at once
MOST = 65_536  # numbers after which it starts another block by itself
LAUNCHES = 4  # that parameters are split for, at most
_CPU = torch.device("cpu")


class SplitAdam(Adam):
    """Adam by PyTorch's fused kernel, which is given the parameters in pieces.

    The kernel has a block of threads for every 65,536 numbers of a parameter, so it leaves most of a GPU idle where
    parameters are small. Here they get about as many blocks as a few launches can have, which in a captured graph run
    side by side. States and results are those of `torch.optim.Adam`, and either can go on from the other's state.
    """

    counting: SideStream | None = None  # where to count the next step, which waits for no gradient

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        maximize: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(
            params, lr, betas, eps, weight_decay, maximize=maximize, capturable=capturable, fused=True
        )  # fmt: skip
        self._step_supports_amp_scaling = False  # a scaler of gradients divides them itself

    # As they are without PyTorch's wrapping, which imports its compiler, for seconds, to switch that off
    add_param_group = unwrap(Adam.add_param_group)
    zero_grad = unwrap(Adam.zero_grad)
    state_dict = unwrap(Adam.state_dict)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        groups = [{**group, "fused": True} for group in state_dict["param_groups"]]
        for name in ("amsgrad", "decoupled_weight_decay"):
            if any(group.get(name) for group in groups):
                raise TrainingError(f"the state is of an Adam with {name}=True; go on with torch.optim.Adam")
        unwrap(Adam.load_state_dict)(self, {**state_dict, "param_groups": groups})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        counting, self.counting = self.counting or SideStream(_CPU), None
        for group in self.param_groups:
            self._move(group, counting)
        return loss

    def _move(self, group: dict[str, Any], counting: SideStream) -> None:
        params, grads, first, second, largest, steps = ([] for _ in range(6))
        self._init_group(group, params, grads, first, second, largest, steps)
        if not params:
            return
        with counting():
            count_steps(steps)
        counting.join()
        alike: dict[Any, list[tuple[Tensor, ...]]] = defaultdict(list)
        for row in zip(params, grads, first, second, steps, strict=True):
            alike[row[0].device, row[0].dtype].append(row)
        for (device, _), rows in alike.items():
            rate = group["lr"].to(device) if isinstance(group["lr"], Tensor) else group["lr"]
            pieces = list(_split(rows))
            others = [(pieces[i : i + PIECES], SideStream(device)) for i in range(PIECES, len(pieces), PIECES)]
            fused_adam(pieces[:PIECES], group, rate)
            for more, side in others:
                with side():
                    fused_adam(more, group, rate)
                side.join()


def piece_size(sizes: Sequence[int]) -> int:
    """The least with which parameters of these sizes make no more pieces than their launches take."""
    launches = max(1, min(-(-sum(sizes) // (LEAST * PIECES)), LAUNCHES))
    for size in range(LEAST, MOST, LEAST):
        if sum(-(-n // size) for n in sizes) <= launches * PIECES:
            return size
    return MOST


def _split(rows: list[tuple[Tensor, ...]]) -> Iterator[tuple[Tensor, ...]]:
    """Parameters, each with its gradient, averages and step, in pieces."""
    size = piece_size([row[0].numel() for row in rows])
    for *row, step in rows:
        if size == MOST or not all(x.is_contiguous() for x in row):
            yield *row, step
        else:
            for piece in zip(*(x.view(-1).split(size) for x in row), strict=True):
                yield *piece, step
