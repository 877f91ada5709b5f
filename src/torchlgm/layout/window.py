"""Windows in one, two or three dimensions: convolutional (one table for all positions) and local (one each)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from torchlgm.layout.base import LEFT, Layout
from torchlgm.layout.sparse import SparseLayout
from torchlgm.spec import Layer, Neighbour, Window

_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_CONV_TRANSPOSE = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


class WindowLayout(Layout):
    """Edge axes `(left channel, right channel, *kernel, *right position)`."""

    def __init__(self, left: Layer, right: Layer, windows: Sequence[Window], shared: bool) -> None:
        super().__init__()
        self.windows = tuple(windows)
        self.dims = len(self.windows)
        self.shared = shared
        self.channels = (left.sizes[0], right.sizes[0])
        self.positions = (left.sizes[1:], right.sizes[1:])
        self.nodes = (left.nodes, right.nodes)
        self.kernel = tuple(w.kernel for w in self.windows)
        self.edge_shape = (*self.channels, *self.kernel, *self.positions[1])
        self.table_shape = (*self.channels, *self.kernel) if shared else self.edge_shape
        mask = self._windows_of(torch.ones(1, 1, *self.positions[0], 1))[0, ..., 0].unsqueeze(1)
        self.register_buffer("mask", None if bool(mask.all()) else mask.contiguous(), persistent=False)

    def gather(self, x: Tensor, side: int) -> Tensor:
        if side == LEFT:
            x = x.unflatten(1, (self.channels[0], *self.positions[0]))
            return self._windows_of(x).unsqueeze(2)
        return x.reshape(x.shape[0], 1, self.channels[1], *[1] * self.dims, *self.positions[1], x.shape[-1])

    def scatter(self, e: Tensor, side: int) -> Tensor:
        if side == LEFT:
            return self._overlap(e.sum(2)).flatten(1, -2)
        return e.sum((1, *range(3, 3 + self.dims))).flatten(1, -2)

    def spread(self, table: Tensor) -> Tensor:
        if not self._is_stored(table):
            return table
        return table.reshape(*self.table_shape, *[1] * self.dims, *table.shape[-2:])

    def _linear(self, table: Tensor, q: Tensor, side: int) -> Tensor:
        if self._is_stored(table):
            return self._convolve(table, q, side)
        table = table.expand(*self.edge_shape, *table.shape[-2:])
        flat = table.reshape(*self.channels, *self._flat_sizes, *table.shape[-2:])
        if side == LEFT:
            patches = self.gather(q, LEFT).squeeze(2)
            patches = patches.reshape(q.shape[0], self.channels[0], *self._flat_sizes, q.shape[-1])
            return torch.einsum("bcksl,crkslq->brsq", patches, flat).flatten(1, 2)
        q = q.unflatten(1, (self.channels[1], -1))
        edges = torch.einsum("brsq,crkslq->bcksl", q, flat)
        shape = (q.shape[0], self.channels[0], *self.kernel, *self.positions[1], table.shape[-2])
        return self._overlap(edges.reshape(shape)).flatten(1, -2)

    def _is_stored(self, table: Tensor) -> bool:
        return self.shared and table.dim() == len(self.table_shape) + 2

    @property
    def _flat_sizes(self) -> tuple[int, int]:
        kernel, positions = 1, 1
        for w in self.windows:
            kernel, positions = kernel * w.kernel, positions * w.right
        return kernel, positions

    @staticmethod
    def _reach(w: Window) -> int:
        """The number of left positions, padding included, that the windows touch."""
        return (w.right - 1) * w.stride + w.dilation * (w.kernel - 1) + 1

    def _pad(self, x: Tensor, trailing: int) -> Tensor:
        """Left positions, in front of `trailing` other axes, padded or cropped to just what the windows touch."""
        pads = [(w.before, self._reach(w) - w.before - w.left) for w in reversed(self.windows)]
        if any(p != (0, 0) for p in pads):
            x = F.pad(x, [*[0] * (2 * trailing), *[p for pair in pads for p in pair]])
        return x

    def _windows_of(self, x: Tensor) -> Tensor:
        """`(B, channels, *left positions, k)` -> `(B, channels, *kernel, *right positions, k)`, a strided view."""
        x = self._pad(x, trailing=1)
        for axis, w in enumerate(self.windows):
            x = x.unfold(2 + axis, w.dilation * (w.kernel - 1) + 1, w.stride)[..., :: w.dilation]
        positions = range(2, 2 + self.dims)
        label = 2 + self.dims
        return x.permute(0, 1, *range(label + 1, label + 1 + self.dims), *positions, label)

    def _overlap(self, e: Tensor) -> Tensor:
        """`(B, channels, *kernel, *right positions, k)` -> `(B, channels, *left positions, k)`, adding up."""
        for done, w in enumerate(self.windows):
            # (B, channels, *kernel to do, *positions to do, k, *left positions done)
            e = e.movedim((2 + self.dims - done, 2), (-2, -1))
            padded = e.new_zeros(*e.shape[:-2], max(self._reach(w), w.before + w.left))
            for k in range(w.kernel):
                start = k * w.dilation
                padded[..., start : start + (w.right - 1) * w.stride + 1 : w.stride] += e[..., k]
            e = padded[..., w.before : w.before + w.left]
        return e.movedim(2, -1)

    def _convolve(self, table: Tensor, q: Tensor, side: int) -> Tensor:
        """`linear` with a shared table is a convolution, or its transpose."""
        kl, kr = table.shape[-2:]
        # (left channel, right channel, *kernel, kl, kr) -> (right channel * kr, left channel * kl, *kernel)
        weight = table.movedim((-2, -1), (1, 3)).flatten(0, 1).flatten(1, 2).transpose(0, 1)
        stride = tuple(w.stride for w in self.windows)
        dilation = tuple(w.dilation for w in self.windows)
        channels, positions = self.channels[side], self.positions[side]
        x = q.unflatten(1, (channels, *positions)).movedim(-1, 2).flatten(1, 2)
        if side == LEFT:
            y = _CONV[self.dims](self._pad(x, trailing=0), weight, stride=stride, dilation=dilation)
            return y.unflatten(1, (self.channels[1], kr)).movedim(2, -1).flatten(1, -2)
        y = _CONV_TRANSPOSE[self.dims](x, weight, stride=stride, dilation=dilation)
        pads = [(-w.before, w.before + w.left - self._reach(w)) for w in reversed(self.windows)]
        y = F.pad(y, [p for pair in pads for p in pair])
        return y.unflatten(1, (self.channels[0], kl)).movedim(2, -1).flatten(1, -2)


class NeighbourLayout(SparseLayout):
    """Windows of a layer over itself. Edge axes `(neighbour, *position)`, the position being that of the left end."""

    def __init__(self, layer: Layer, neighbours: Sequence[Neighbour], shared: bool) -> None:
        nodes = torch.arange(layer.nodes).view(layer.sizes)
        axes = tuple(range(len(layer.sizes) - 1))
        ends, inside = [], []
        for near in neighbours:
            back = tuple(-o for o in near.offset)
            ends.append(torch.stack([nodes[near.left], nodes[near.right].roll(back, axes)]))
            places = [torch.arange(n) + o for n, o in zip(layer.sizes[1:], near.offset, strict=True)]
            exists = [(p >= 0) & (p < n) for p, n in zip(places, layer.sizes[1:], strict=True)]
            inside.append(torch.stack(torch.meshgrid(*exists, indexing="ij")).all(0))
        mask = torch.stack(inside)
        super().__init__(layer.nodes, layer.nodes, torch.stack(ends, 1), None if bool(mask.all()) else mask.float())
        if shared:
            self.table_shape = self.edge_shape[:1]

    def spread(self, table: Tensor) -> Tensor:
        if table.dim() != len(self.table_shape) + 2:
            return table
        return table.reshape(
            *self.table_shape, *[1] * (len(self.edge_shape) - len(self.table_shape)), *table.shape[-2:]
        )
