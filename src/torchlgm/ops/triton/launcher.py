"""How the Triton kernels are called: grids, tiles and arguments."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from torchlgm.layout import LEFT
from torchlgm.ops.launch import Sink, Sinks, Slots, Wires, added_up
from torchlgm.ops.program import MessageStep
from torchlgm.ops.triton import kernels as jit_kernels
from torchlgm.ops.triton.precompile import Call, Calls, gathering

kernels: Any = jit_kernels  # pyright does not know what triton.jit makes of a function
SPACE = 2**31  # numbers that 32-bit offsets can reach
MOST_SAMPLES = 64  # in a block
LITTLE = 32  # samples, padded
FEW = 256  # programs
MANY = 1024  # programs
BUSY = 2048  # programs
MOST_CHUNKS = 64
FEW_PARTS = 8  # of a gradient, read at once
MOST_SUMS = 16  # in one launch
FUSED = {"enable_fp_fusion": True}  # products and sums in one instruction, which Triton does if asked
PARTS = ("INFLOW_PARTS", "INFLOW_PARTS_2", "EDGES_PARTS")
WIDE = ("UNARY_WIDE", "FIELD_WIDE", "FIRST_WIDE", "SECOND_WIDE", "REVERSE_WIDE")


def padded(batch: int) -> int:
    """The width of tensors for `batch` samples."""
    if batch <= 2:
        return batch
    return _multiple(batch, 4 if batch <= LITTLE else MOST_SAMPLES)


def score(inflow: Tensor, unary: Tensor, labels: Tensor, calls: Calls) -> Tensor:
    """Costs `(models, blocks)` of labels `(models, batch, nodes)`, which sum to a mean over samples.

    Log-odds are `inflow` `(models, batch, nodes, k)` less `unary` `(models, 1, nodes, k)`.
    """
    tile = _score_tile(inflow)
    costs = inflow.new_empty(inflow.shape[0], triton.cdiv(inflow.shape[1], tile["BLOCK_B"]))
    _score((costs, None, None, None), inflow, unary, labels, tile, calls)
    return costs


def score_backward(
    outer: Tensor, inflow: Tensor, unary: Tensor, labels: Tensor, wanted: Sequence[bool], calls: Calls
) -> list[Tensor | None]:
    """The gradients of inflow and unary, where `wanted`, from those of the sums of costs `(models,)`."""
    tile = _score_tile(inflow)
    models, batch, nodes, k = inflow.shape
    to_inflow = torch.empty_like(inflow) if wanted[0] else None
    to_unary = inflow.new_empty(triton.cdiv(batch, tile["BLOCK_B"]), models, 1, nodes, k) if wanted[1] else None
    _score((None, to_inflow, to_unary, outer.contiguous()), inflow, unary, labels, tile, calls)
    return [to_inflow, None if to_unary is None else added_up([to_unary])]


def _score(
    outputs: tuple[Tensor | None, ...],
    inflow: Tensor,
    unary: Tensor,
    labels: Tensor,
    tile: dict[str, int],
    calls: Calls,
) -> None:
    models, batch, nodes, k = inflow.shape
    given = inflow, unary.contiguous(), labels.long().contiguous()
    like = inflow if outputs[1] is None else outputs[1]
    arguments = (*outputs, *given, batch, nodes, *inflow.stride(), *like.stride())
    grid = triton.cdiv(batch, tile["BLOCK_B"]), models
    Call(kernels.score, grid, arguments, {"K": k, **tile, **FUSED, **early(inflow)}).launch(inflow, calls)


def _score_tile(inflow: Tensor) -> dict[str, int]:
    """Samples of one node are not split among programs before there are many."""
    _, batch, nodes, k = inflow.shape
    block_k = triton.next_power_of_2(k)
    most = max(1, 4096 // block_k)
    block_b = _block(batch, most if nodes == 1 else min(most, MOST_SAMPLES))
    return {"BLOCK_K": block_k, "BLOCK_B": block_b, "num_warps": _block(block_b * block_k / 512, 8)}


class Launcher:
    """Launches the kernels of one program, forward and backward; the counters of these are nobody else's."""

    looks_back = True
    padded = staticmethod(padded)

    def __init__(self) -> None:
        self._counters: dict[int, Tensor] = {}  # by stream; all 0 between kernels
        self._calls = gathering.get()  # now, since gradients are computed in another thread

    def blocks(self, batch: int) -> int:
        return blocks(batch)

    def pack(self, x: Tensor, wide: int) -> Tensor:
        """`(models, nodes, k, batch)` with any strides -> the same in one piece, padded with 0."""
        models, nodes, k, batch = x.shape
        out = x.new_empty(models, nodes, k, wide)
        step_m, step_n, step_k, step_b = x.stride()
        block = {"BLOCK_R": 32, "BLOCK_B": _samples(wide)}
        grid = (triton.cdiv(nodes * k, 32), blocks(wide), models)
        arguments = (out, x, batch, wide, step_n, step_k, step_b, step_m, nodes * k)
        Call(kernels.pack, grid, arguments, {"K": k, **block, **FUSED, **early(x)}).launch(x, self._calls)
        return out

    def send(self, step: MessageStep, wires: Wires, slots: Slots, width: int) -> None:
        grid, chunks, scratch, options = self._how(step, wires, slots, width, 1 - step.side, wanted=True)
        outputs = slots[step.edges], slots[step.norms], slots[step.inflow]
        given = (*_parts(step, slots), *_constants(step, wires, slots, 1 - step.side))
        arguments = (*outputs, *scratch, *given, *_sizes(step, wires, width), chunks)
        Call(kernels.send, grid, arguments, options).launch(_table(step, slots), self._calls)

    def send_backward(
        self,
        step: MessageStep,
        wires: Wires,
        slots: Slots,
        width: int,
        inflow_grads: Sequence[Tensor],
        edges_grad: Tensor | None,
        sinks: Sinks,
    ) -> None:
        grads = [_in_few_parts(x) for x in (*(*inflow_grads, None, None)[:2], edges_grad)]
        counts = [1 if x is None else x.shape[0] for x in grads]
        grid, chunks, scratch, options = self._how(step, wires, slots, width, step.side, wanted=any(sinks.belief))
        outputs = _unzipped([*sinks.belief, sinks.reverse, sinks.table])
        sent = (slots[step.edges], slots[step.norms]) if step.look_back else (None, None)
        given = (*grads, *counts, *sent, *_parts(step, slots), *_constants(step, wires, slots, step.side))
        arguments = (*outputs, *scratch, *given, *_sizes(step, wires, width), chunks)
        options |= {name: triton.next_power_of_2(count) for name, count in zip(PARTS, counts, strict=True)}
        Call(kernels.send_backward, grid, arguments, options).launch(_table(step, slots), self._calls)

    def add_up(self, sums: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        outputs = [first.new_empty(first.shape[1:]) for first, *_ in sums]
        for start in range(0, len(sums), MOST_SUMS):
            self._add_up(outputs[start : start + MOST_SUMS], sums[start : start + MOST_SUMS])
        return outputs

    def _add_up(self, outputs: Sequence[Tensor], sums: Sequence[Sequence[Tensor]]) -> None:
        assert all(x.is_contiguous() for terms in sums for x in terms)
        firsts, seconds = tuple(terms[0] for terms in sums), tuple(terms[-1] for terms in sums)
        parts = tuple(len(x) for x in firsts)
        more = tuple(len(terms[1]) if len(terms) > 1 else 0 for terms in sums)
        sizes = tuple(out.numel() for out in outputs)
        block_p = _block(max(*parts, *more), FEW_PARTS)
        block = {"BLOCK_P": block_p, "BLOCK": 1024 // block_p}
        grid = triton.cdiv(max(1, *sizes), block["BLOCK"]), len(sums)
        arguments = tuple(outputs), firsts, seconds, parts, more, sizes
        Call(kernels.add_up, grid, arguments, {**block, **FUSED, **early(outputs[0])}).launch(outputs[0], self._calls)

    def _how(self, step: MessageStep, wires: Wires, slots: Slots, width: int, side: int, wanted: bool) -> _How:
        """With a program for each label of each node of `side`; `wanted` says that their sums over edges are."""
        table, nodes = _table(step, slots), wires.incidence.sides[side]
        rows = nodes.nodes * wires.labels[side]
        programs = rows * blocks(width) * wires.models
        heavy = side == step.side or wires.labels[step.side] > 1
        tile = _tile(programs, nodes.degree, width, heavy, wires.mode == "linear")
        chunks = _chunks(programs, nodes.degree, width, tile["BLOCK_E"])
        scratch = None, None
        if chunks > 1 and wanted:
            scratch = table.new_empty(chunks, wires.models, rows, width), self._counters_for(table)
        options = {**_options(step, wires, slots, width), **tile, "BLOCK_C": triton.next_power_of_2(chunks)}
        return _How((rows, blocks(width), wires.models * chunks), chunks, scratch, options | early(table))

    def _counters_for(self, like: Tensor) -> Tensor:
        """One for each program whose sum is made in chunks: kernels on one stream can share them."""
        stream = torch.cuda.current_stream(like.device).cuda_stream if like.is_cuda else 0
        if stream not in self._counters:
            self._counters[stream] = like.new_zeros(BUSY // 2, dtype=torch.int32)
        return self._counters[stream]


class _How(NamedTuple):
    grid: tuple[int, int, int]
    chunks: int
    scratch: tuple[Tensor | None, Tensor | None]  # sums of chunks, and counters
    options: dict[str, Any]


def _unzipped(sinks: Sequence[Sink | None]) -> list[Any]:
    tensors = [None if sink is None else sink.tensor for sink in sinks]
    return [*tensors, *[int(sink is not None and sink.old) for sink in sinks]]


def early(like: Tensor) -> dict[str, Any]:
    """Options to launch a kernel while the one before it is finishing, which hides the launch itself."""
    can = like.is_cuda and torch.version.hip is None and torch.cuda.get_device_capability(like.device) >= (9, 0)
    return {"EARLY": True, "launch_pdl": True} if can else {"EARLY": False}


def blocks(batch: int) -> int:
    """How many blocks of samples a kernel takes one by one."""
    return triton.cdiv(batch, _samples(batch))


def _samples(batch: int) -> int:
    """How many samples are in a block."""
    return _block(batch, MOST_SAMPLES)


def _multiple(size: int, of: int) -> int:
    return triton.cdiv(size, of) * of


def _block(size: float, most: int) -> int:
    return max(1, min(triton.next_power_of_2(math.ceil(size)), most))


def _tile(programs: int, degree: float, batch: int, heavy: bool, linear: bool) -> dict[str, int]:
    """How many edges and samples a program takes at once, and with how many warps: those that were fastest.

    `heavy` is a kernel that needs many registers.
    """
    block_b = _samples(batch)
    lanes = {"BLOCK_B": block_b, "RAGGED": batch % block_b > 0}
    if batch == 1:
        block_e = _block(degree, 512)
        return {"BLOCK_E": block_e, **lanes, "num_warps": _block(block_e / 64, 16)}
    each = 4 if programs >= MANY and not linear else 8  # numbers for a thread
    warps = 8 if FEW <= programs < 2 * FEW and batch <= LITTLE and not heavy else 4
    block_e = _block(degree, max(1, 32 * warps * each // block_b))
    return {"BLOCK_E": block_e, **lanes, "num_warps": _block(block_e * block_b / (32 * each), warps)}


def _chunks(programs: int, degree: float, batch: int, block_e: int) -> int:
    """Into how many parts the edges of a node are split, so that few nodes with many edges keep the device busy."""
    busy = BUSY if batch > LITTLE else BUSY * 3 // 8  # adding up takes as long as a few more turns of the loop
    return max(1, min(math.ceil(degree / block_e), busy // max(programs, 1), MOST_CHUNKS))


def _in_few_parts(grad: Tensor | None) -> Tensor | None:
    """Few enough for a kernel to read them at once."""
    return grad if grad is None or len(grad) <= FEW_PARTS else grad.sum(0, keepdim=True)


def _table(step: MessageStep, slots: Slots) -> Tensor:
    table = slots[step.table]
    assert table is not None
    return table


def _parts(step: MessageStep, slots: Slots) -> tuple[Tensor | None, ...]:
    """Those of the belief, and the message that came back."""
    return (*(slots[i] for i in step.belief), slots[step.reverse])


def _constants(step: MessageStep, wires: Wires, slots: Slots, side: int) -> tuple[Any, ...]:
    """What is read in the order of the list of one side."""
    factor, rho = wires.weights.factor[side], wires.weights.rho[side]
    nodes = wires.incidence.sides[side]
    edges = nodes.edges if nodes.stride is None else None  # what a kernel can compute it need not wait for
    indices = None if nodes.dense else nodes.indices
    rows = None if wires.table_rows == wires.incidence.count else wires.rows[side]
    return slots[step.table], factor, rho, edges, indices, nodes.indptr, rows, nodes.stride or 0


def _sizes(step: MessageStep, wires: Wires, width: int) -> tuple[int, ...]:
    sides = wires.incidence.sides
    return width, sides[step.side].nodes, sides[1 - step.side].nodes, wires.incidence.count, wires.table_rows


def _options(step: MessageStep, wires: Wires, slots: Slots, width: int) -> dict[str, Any]:
    side, table = step.side, _table(step, slots)
    s, t = wires.labels[side], wires.labels[1 - side]
    step_s, step_t = (t, 1) if side == LEFT else (1, s)
    wide = {name: x is None or x.shape[-1] == width for name, x in zip(WIDE, _parts(step, slots), strict=True)}
    rows = max(wires.incidence.count, *(one.nodes for one in wires.incidence.sides)) * max(s, t)
    fast = table.is_cuda and table.dtype == torch.float32 and torch.version.hip is None
    labels = {"MODE": wires.mode, "S": s, "T": t, "STEP_S": step_s, "STEP_T": step_t, "FAST": fast}
    sizes = {"LONG": rows * max(width, s, t) >= SPACE, "UNROLL": 16 if max(s, t) <= 16 else 1}
    exact = wires.mode == "max"  # whether two labels are equally good must not depend on how sums are fused
    return {**labels, **wide, **sizes, "enable_fp_fusion": not exact}
