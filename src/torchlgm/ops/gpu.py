"""Launching the Triton kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from torchlgm.layout import LEFT
from torchlgm.ops import kernels as jit_kernels
from torchlgm.ops.fused import Sent, Sink, Sinks, Wires

kernels: Any = jit_kernels  # pyright does not know what triton.jit makes of a function
SPACE = 2**31  # numbers that 32-bit offsets can reach
MOST_SAMPLES = 64  # in a block
BUSY = 2048  # programs
WIDE = ("UNARY_WIDE", "FIELD_WIDE", "FIRST_WIDE", "SECOND_WIDE", "REVERSE_WIDE")


def padded(batch: int) -> int:
    """The width of tensors for `batch` samples."""
    if batch <= 32:
        return triton.next_power_of_2(batch)
    return -(-batch // 64) * 64


def pack(x: Tensor, wide: int) -> Tensor:
    """`(models, nodes, k, batch)` with any strides -> the same in one piece, padded with 0."""
    models, nodes, k, batch = x.shape
    out = x.new_empty(models, nodes, k, wide)
    step_m, step_n, step_k, step_b = x.stride()
    block = {"BLOCK_R": 32, "BLOCK_B": _block(wide, 64 if wide % 64 == 0 else 32)}
    grid = (triton.cdiv(nodes * k, 32), wide // block["BLOCK_B"], models)
    with torch.cuda.device_of(x):
        kernels.pack[grid](out, x, batch, wide, step_n, step_k, step_b, step_m, nodes * k, K=k, **block, **early(x))
    return out


def send(sent: Sent, edges: Tensor | None, inflow: Tensor) -> None:
    wires, batch, like = sent.wires, sent.width, inflow
    there = wires.lists.sides[1 - sent.side]
    rows = there.nodes * inflow.shape[-2]
    tile = _tile(rows * wires.models, there.degree, batch)
    chunks = _chunks(rows * blocks(batch) * wires.models, there.degree, tile["BLOCK_E"])
    partial = like.new_empty(chunks, wires.models, rows, batch) if chunks > 1 else inflow
    grid = (rows, blocks(batch), wires.models * chunks)
    with torch.cuda.device_of(like):
        kernels.send[grid](
            edges, partial, *sent.belief, sent.reverse, *_constants(wires, 1 - sent.side), *_sizes(sent),
            **_options(sent), **tile, CHUNKS=chunks, **early(like),
        )  # fmt: skip
        if chunks > 1:
            _add_up(partial, [None, Sink(inflow, False), None, None], dict.fromkeys(WIDE[:-1], True))


def send_backward(
    sent: Sent, message: Tensor | None, inflow_grad: Tensor | None, edges_grad: Tensor | None, sinks: Sinks
) -> None:
    wires, batch = sent.wires, sent.width
    here = wires.lists.sides[sent.side]
    s, _ = wires.labels(sent.side)
    rows = here.nodes * s
    tile = _tile(rows * wires.models, here.degree, batch)
    chunks = _chunks(rows * blocks(batch) * wires.models, here.degree, tile["BLOCK_E"])
    partial = wires.table.new_empty(chunks, wires.models, rows, batch) if chunks > 1 else None
    grid = (rows, blocks(batch), wires.models * chunks)
    options = _options(sent)
    with torch.cuda.device_of(wires.table):
        kernels.send_backward[grid](
            *_unzipped([*sinks.belief, sinks.reverse, sinks.table]), partial, inflow_grad, edges_grad, message,
            *sent.belief, sent.reverse, *_constants(wires, sent.side), *_sizes(sent),
            **options, **tile, CHUNKS=chunks, **early(wires.table),
        )  # fmt: skip
        if partial is not None:
            _add_up(partial, sinks.belief, {name: options[name] for name in WIDE[:-1]})


def _add_up(partial: Tensor, sinks: Sequence[Sink | None], wide: dict[str, bool]) -> None:
    """Sum what was made in chunks, `(chunks, models, rows, width)`, into sinks for the parts of a belief."""
    chunks, models, rows, batch = partial.shape
    kernels.share[rows, blocks(batch), models](
        *_unzipped(sinks), partial, batch, rows, **wide, CHUNKS=chunks, BLOCK_C=triton.next_power_of_2(chunks),
        BLOCK_B=_samples(batch), **early(partial),
    )  # fmt: skip


def _unzipped(sinks: Sequence[Sink | None]) -> list[Any]:
    tensors = [None if sink is None else sink.tensor for sink in sinks]
    return [*tensors, *[int(sink is not None and sink.old) for sink in sinks]]


def early(like: Tensor) -> dict[str, Any]:
    """Options to launch a kernel while the one before it is finishing, which hides the launch itself."""
    can = like.is_cuda and torch.cuda.get_device_capability(like.device) >= (9, 0)
    return {"EARLY": True, "launch_pdl": True} if can else {"EARLY": False}


def blocks(batch: int) -> int:
    """How many blocks of samples a kernel takes one by one."""
    return batch // _samples(batch)


def _samples(batch: int) -> int:
    return min(batch, MOST_SAMPLES)


def _block(size: float, most: int) -> int:
    return max(1, min(triton.next_power_of_2(math.ceil(size)), most))


def _tile(rows: int, degree: float, batch: int) -> dict[str, int]:
    """How many edges and samples a program takes at once, and with how many warps."""
    block_b = _samples(batch)
    if batch == 1:
        block_e = _block(degree, 512)
        return {"BLOCK_E": block_e, "BLOCK_B": 1, "num_warps": _block(block_e / 64, 8)}
    elements = 512 if batch <= 32 else 1024
    block_e = _block(degree, max(1, elements // block_b))
    return {"BLOCK_E": block_e, "BLOCK_B": block_b, "num_warps": _block(block_e * block_b / 128, 4)}


def _chunks(programs: int, degree: float, block_e: int) -> int:
    """Into how many parts the edges of a node are split, so that few nodes with many edges keep the device busy."""
    return max(1, min(math.ceil(degree / block_e), BUSY // programs, 64))


def _constants(wires: Wires, side: int) -> tuple[Tensor | None, ...]:
    """What is read in the order of the list of one side."""
    factor, rho = wires.weights.factor[side], wires.weights.rho[side]
    return wires.table, factor, rho, *wires.lists.sides[side][:3], wires.rows[side]


def _sizes(sent: Sent) -> tuple[int, ...]:
    wires, sides = sent.wires, sent.wires.lists.sides
    return sent.width, sides[sent.side].nodes, sides[1 - sent.side].nodes, wires.lists.count, wires.table.shape[1]


def _options(sent: Sent) -> dict[str, Any]:
    wires, side, belief, reverse = sent
    batch = sent.width
    s, t = wires.labels(side)
    step_s, step_t = (t, 1) if side == LEFT else (1, s)
    wide = {name: x is None or x.shape[-1] == batch for name, x in zip(WIDE, (*belief, reverse), strict=True)}
    rows = max(wires.lists.count, *(one.nodes for one in wires.lists.sides)) * max(s, t)
    fast = wires.table.is_cuda and wires.table.dtype == torch.float32 and torch.version.hip is None
    labels = {"MODE": wires.mode, "S": s, "T": t, "STEP_S": step_s, "STEP_T": step_t, "FAST": fast}
    return {**labels, **wide, "LONG": rows * max(batch, s, t) >= SPACE, "UNROLL": 16 if max(s, t) <= 16 else 1}
