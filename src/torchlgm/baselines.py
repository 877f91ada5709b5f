"""The neural networks that layered graphical models of the same shape are compared with."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchlgm._utils.validate import is_int_at_least
from torchlgm.errors import DataError, GraphError

Kind = Literal["dense", "conv", "local"]
Activation = Literal["sigmoid", "relu"]
_ACTIVATIONS = {"sigmoid": nn.Sigmoid, "relu": nn.ReLU}
_FILLING = 0.5


def network(
    kind: Kind = "dense",
    input_shape: Sequence[int] = (1, 28, 28),
    classes: int = 10,
    hidden: int = 100,
    channels: Sequence[int] = (6, 16),
    activation: Activation = "sigmoid",
    mask_channel: bool = False,
    kernels: Sequence[int] = (5, 5),
    strides: Sequence[int] = (2, 2),
    padding: Sequence[tuple[int, int]] = ((1, 0), (0, 0)),
) -> nn.Sequential:
    """Make a neural network to compare with.

    Parameters
    ----------
    kind : {"dense", "conv", "local"}
        `"dense"` has one hidden layer; the others have (locally connected) convolutions below it.
    input_shape : sequence of int
        The shape of a sample.
    classes : int
        The number of classes.
    hidden : int
        The nodes of the hidden layer.
    channels, kernels, strides, padding : sequence
        An entry for each convolution; padding is `(before, after)` with zeros, on both axes.
    activation : {"sigmoid", "relu"}
        After each layer but the last.
    mask_channel : bool
        Whether the network also sees which entries were observed, by one more channel for each.

    Returns
    -------
    Sequential
        Maps inputs `(N, *input_shape)` to logits `(N, classes)`; NaN is missing and becomes 0.5.
    """
    if kind not in get_args(Kind) or activation not in _ACTIVATIONS:
        raise GraphError(
            f"expected a kind of {get_args(Kind)} and an activation of {get_args(Activation)}, "
            f"got {kind!r} and {activation!r}"
        )
    shape = tuple(input_shape) if isinstance(input_shape, Iterable) else ()
    if not all(map(is_int_at_least, (classes, hidden, *channels, *kernels, *strides, *shape))) or not shape:
        raise GraphError("expected input_shape, classes, hidden, channels, kernels and strides of whole numbers >= 1")
    act = _ACTIVATIONS[activation]
    layers: list[nn.Module] = [FillMissing(shape, mask_channel)]
    if mask_channel:
        shape = (2 * shape[0], *shape[1:])
    if kind != "dense":
        _check_image_layers(shape, channels, kernels, strides, padding)
        for layer in zip(channels, kernels, strides, padding, strict=True):
            modules, shape = _image_layer(kind, shape, *layer)
            layers += [*modules, act()]
    layers += [nn.Flatten(), nn.Linear(math.prod(shape), hidden), act(), nn.Linear(hidden, classes)]
    return nn.Sequential(*layers)


class FillMissing(nn.Module):
    """Replaces NaN by 0.5; `mask_channel` makes (N, C, ...) into (N, 2C, ...), the observed mask last."""

    def __init__(self, shape: Sequence[int], mask_channel: bool = False) -> None:
        super().__init__()
        self.shape = tuple(shape)
        self.mask_channel = mask_channel

    def forward(self, x: Tensor) -> Tensor:
        if tuple(x.shape[1:]) != self.shape:
            expected = ", ".join(["N", *map(str, self.shape)])
            raise DataError(f"expected inputs ({expected}), got {tuple(x.shape)}")
        missing = x.isnan()
        filled = x.masked_fill(missing, _FILLING)
        return torch.cat([filled, (~missing).to(x.dtype)], dim=1) if self.mask_channel else filled

    def extra_repr(self) -> str:
        return f"{self.shape}, mask_channel={self.mask_channel}"


class LocallyConnected2d(nn.Module):
    """A convolution whose weights and biases are not shared: each output position has its own.

    Maps (N, in_channels, *size) to (N, out_channels, *output_size).
    """

    def __init__(
        self, in_channels: int, out_channels: int, size: tuple[int, int], kernel: int, stride: int = 1
    ) -> None:
        super().__init__()
        self.kernel, self.stride = kernel, stride
        self.output_size = _output_size(size[0], kernel, stride), _output_size(size[1], kernel, stride)
        positions, fan_in = math.prod(self.output_size), in_channels * kernel**2
        self.weight = nn.Parameter(torch.empty(positions, out_channels, fan_in))
        self.bias = nn.Parameter(torch.empty(out_channels, positions))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform within 1 / sqrt(fan in), as nn.Conv2d does."""
        bound = 1 / math.sqrt(self.weight.shape[-1])
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        cut = windows if x.is_cuda else F.unfold  # which on a GPU launches a kernel for each sample
        patches = cut(x, self.kernel, stride=self.stride)
        return (torch.einsum("nip,poi->nop", patches, self.weight) + self.bias).unflatten(2, self.output_size)

    def extra_repr(self) -> str:
        return f"kernel={self.kernel}, stride={self.stride}, output_size={self.output_size}"


def windows(x: Tensor, kernel: int, stride: int) -> Tensor:
    """The same as `F.unfold`, by views: (N, C, H, W) to (N, C * kernel * kernel, positions)."""
    return x.unfold(2, kernel, stride).unfold(3, kernel, stride).permute(0, 1, 4, 5, 2, 3).flatten(1, 3).flatten(2)


def _check_image_layers(shape: tuple[int, ...], *per_layer: Sequence[object]) -> None:
    if len(shape) != 3:
        raise GraphError(f"convolutions need an input_shape of (channels, height, width), got {shape}")
    if len({len(values) for values in per_layer}) > 1:
        raise GraphError(
            f"expected one entry per convolution in channels, kernels, strides and padding, "
            f"got {', '.join(str(len(values)) for values in per_layer)}"
        )


def _image_layer(
    kind: Kind, shape: tuple[int, ...], channels: int, kernel: int, stride: int, padding: tuple[int, int]
) -> tuple[list[nn.Module], tuple[int, ...]]:
    """The modules of one (locally connected) convolution and the shape (C, H, W) of its output."""
    height, width = (size + sum(padding) for size in shape[1:])
    output = channels, _output_size(height, kernel, stride), _output_size(width, kernel, stride)
    modules: list[nn.Module] = [nn.ZeroPad2d((*padding, *padding))] if any(padding) else []
    if kind == "conv":
        modules.append(nn.Conv2d(shape[0], channels, kernel, stride))
    else:
        modules.append(LocallyConnected2d(shape[0], channels, (height, width), kernel, stride))
    return modules, output


def _output_size(size: int, kernel: int, stride: int) -> int:
    if size < kernel:
        raise GraphError(f"a kernel of {kernel} does not fit an image side of {size}; use smaller kernels or strides")
    return (size - kernel) // stride + 1
