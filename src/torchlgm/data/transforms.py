"""Pure functions on inputs and targets, tensors or arrays; what is random takes a generator, as in PyTorch."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Generator, Tensor

from torchlgm._utils.arrays import Array, as_tensor
from torchlgm._utils.validate import check_share, is_int_at_least, is_number
from torchlgm.errors import DataError

Hiding = Literal["random", "block", "band"]
_LONGEST_BLOCK_RATIO = 2.0


def threshold(x: Array, at: float = 0.5) -> Tensor:
    """Turn values into 1.0 if they are larger than a threshold, and otherwise into 0.0; NaN stays NaN.

    Parameters
    ----------
    x : Tensor or array_like
        Values.
    at : float
        The threshold.

    Returns
    -------
    Tensor
        Shaped like `x`.

    Examples
    --------
    >>> threshold(torch.tensor([0.2, 0.7, torch.nan])).tolist()
    [0.0, 1.0, nan]
    """
    x = as_tensor("x", x)
    if not is_number(at):
        raise DataError(f"at={at!r}; expected a number")
    return torch.where(x.isnan(), x, (x > at).to(x.dtype))


def requantise(x: Array, colours: int) -> Tensor:
    """Turn values in [0, 1] into labels, by bins of equal width.

    Parameters
    ----------
    x : Tensor or array_like
        Values; NaN = missing.
    colours : int
        The number of labels, a power of two.

    Returns
    -------
    Tensor
        Labels from 0, as int64, or in the float dtype of `x` if it has NaN.

    Examples
    --------
    >>> requantise(torch.tensor([0.0, 0.3, 1.0]), colours=4).tolist()
    [0, 1, 3]
    """
    x = as_tensor("x", x)
    if not is_int_at_least(colours, 2) or colours & (colours - 1):
        raise DataError(f"expected the number of colours to be 2, 4, 8, ..., got {colours!r}")
    if ((x < 0) | (x > 1)).any():
        raise DataError(f"expected values in [0, 1], got {x.nan_to_num().min():g} to {x.nan_to_num().max():g}")
    labels = (x * colours).floor().clamp(max=colours - 1)
    return labels if x.isnan().any() else labels.long()


def hide(x: Array, visible: float | Tensor, generator: Generator | None = None, like: Hiding = "random") -> Tensor:
    """Hide entries at random, by setting them to NaN.

    Parameters
    ----------
    x : Tensor or array_like
        `(N, ...)`. Images, `(N, C, H, W)`, lose all channels of a pixel together.
    visible : float or Tensor
        The expected share that stays visible, one for all samples or `(N,)`.
    generator : torch.Generator, optional
        PyTorch's default generator if None.
    like : {"random", "block", "band"}
        Hide entries independently, a rectangle of each image, or a horizontal or vertical band.

    Returns
    -------
    Tensor
        Shaped like `x`.

    Examples
    --------
    >>> x = hide(torch.zeros(2, 1000), visible=0.7, generator=Generator().manual_seed(0))
    >>> round(1 - x.isnan().double().mean().item(), 1)
    0.7
    """
    x = as_tensor("x", x)
    if not x.is_floating_point():
        raise DataError(f"x: expected floats, of which some can become NaN, got {x.dtype}; pass x.float()")
    generator = torch.default_generator if generator is None else generator
    if not isinstance(generator, Generator):
        raise DataError(f"generator={generator!r}; expected torch.Generator().manual_seed(...) or None")
    shares = _shares(visible, len(x), generator)
    if like not in get_args(Hiding):
        raise DataError(f"expected like to be one of {get_args(Hiding)}, got {like!r}")
    if like != "random" and x.ndim != 4:
        raise DataError(f"hiding a {like} needs images (N, C, H, W), got {tuple(x.shape)}; use like='random'")
    if like == "random":
        hidden = _random_mask(x.shape, shares, generator)
    else:
        height, width = x.shape[-2:]
        shape_of = _block_shares if like == "block" else _band_shares
        rows, columns = shape_of(1 - shares, generator)
        inside_rows = _interval(rows, height, generator)
        inside_columns = _interval(columns, width, generator)
        hidden = (inside_rows[:, :, None] & inside_columns[:, None, :])[:, None]
    return x.masked_fill(hidden.to(x.device), math.nan)


def smooth_labels(y: Array, classes: int, epsilon: float) -> Tensor:
    """Smooth labels into probabilities: 1 - epsilon (K-1)/K for the label, and epsilon/K for each other class.

    Parameters
    ----------
    y : Tensor or array_like
        Labels `(N,)`.
    classes : int
        The number of classes, K.
    epsilon : float
        How much to smooth, from 0 to 1.

    Returns
    -------
    Tensor
        `(N, K)`.

    Examples
    --------
    >>> smooth_labels(torch.tensor([1]), classes=4, epsilon=0.5)
    tensor([[0.1250, 0.6250, 0.1250, 0.1250]])
    """
    y = as_tensor("y", y)
    epsilon = check_share("epsilon", epsilon, error=DataError)
    if y.ndim != 1 or ((y < 0) | (y >= classes)).any():
        raise DataError(f"expected labels (N,) in 0..{classes - 1}, got shape {tuple(y.shape)} or others")
    probs = torch.full((len(y), classes), epsilon / classes, device=y.device)
    return probs.scatter_(1, y[:, None].long(), 1 - epsilon * (classes - 1) / classes)


def _shares(visible: float | Tensor, count: int, generator: Generator) -> Tensor:
    shares = as_tensor("visible shares", visible).to(generator.device, torch.float32)
    if shares.ndim > 1 or (shares.ndim == 1 and len(shares) != count):
        raise DataError(f"expected one visible share or {count} of them, got shape {tuple(shares.shape)}")
    if not ((shares >= 0) & (shares <= 1)).all():
        raise DataError(f"expected visible shares in [0, 1], got {visible}")
    return shares.expand(count)


def _uniform(shape: tuple[int, ...] | torch.Size, generator: Generator) -> Tensor:
    return torch.rand(shape, generator=generator, device=generator.device)


def _random_mask(shape: torch.Size, shares: Tensor, generator: Generator) -> Tensor:
    if len(shape) == 4:
        shape = torch.Size((shape[0], 1, *shape[2:]))
    return _uniform(shape, generator) >= shares.view(-1, *[1] * (len(shape) - 1))


def _block_shares(area: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    """Shares (N,) of height and width whose product is `area`, neither above 1, sides at most 2 : 1."""
    side = area.sqrt()
    widest = (-side.log()).clamp(max=math.log(_LONGEST_BLOCK_RATIO) / 2)
    ratio = ((2 * _uniform(area.shape, generator) - 1) * widest).exp()
    return (side * ratio).clamp(max=1), (side / ratio).clamp(max=1)


def _band_shares(area: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    full = torch.ones_like(area)
    horizontal = _uniform(area.shape, generator) < 0.5
    return torch.where(horizontal, area, full), torch.where(horizontal, full, area)


def _interval(share: Tensor, size: int, generator: Generator) -> Tensor:
    """Mask (N, size) of one run at a random place; its length is share * size in expectation."""
    length = (share * size + _uniform(share.shape, generator)).floor().clamp(max=size)
    start = (_uniform(share.shape, generator) * (size - length + 1)).floor().minimum(size - length)
    place = torch.arange(size, device=share.device)
    return (place >= start[:, None]) & (place < (start + length)[:, None])
