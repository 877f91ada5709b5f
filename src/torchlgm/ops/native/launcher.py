"""Launching the C code of `native.c`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int64, c_void_p
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from torchlgm.errors import InferenceError
from torchlgm.layout import LEFT
from torchlgm.ops.launch import Sink, Sinks, Slots, Wires, added_up
from torchlgm.ops.native import compiler
from torchlgm.ops.native.threads import usable_threads
from torchlgm.ops.program import MessageStep

SOURCE = Path(__file__).with_name("native.c")
MODES = {"sum": 0, "max": 1, "linear": 2}
LANES = 8  # numbers that are taken at once, as in native.c
SAMPLES = 512  # in a block
SHARE = 2**14  # table entries times samples that are worth another thread
NO_SINKS = (None,) * 6
looks_back = False  # messages are as quickly made again


_SIZES = (
    "mode", "models", "sources", "targets", "edges", "table_rows", "s", "t", "step_s", "step_t", "width", "samples",
    "blocks", "threads",
)  # fmt: skip
_LISTS = ("table", "factor", "rho", "edge_ids", "node_ids", "rows", "starts")
_PARTS = ("unary", "field", "first", "second", "reverse")


class _Job(ctypes.Structure):
    """As in `native.c`, where parts and sinks are structs of the same fields."""

    _fields_ = (
        *[(name, c_int64) for name in _SIZES],
        *[(name, c_void_p) for name in _LISTS],
        *[field for name in _PARTS for field in ((name, c_void_p), (f"{name}_wide", c_int64))],
        ("beliefs", c_void_p),
        ("beliefs_wide", c_int64),
        *[(name, c_void_p) for name in ("edges_out", "inflow_out", "inflow_grad", "edges_grad")],
        *[
            field
            for name in (*_PARTS, "table")
            for field in ((f"to_{name}", c_void_p), (f"to_{name}_wide", c_int64), (f"to_{name}_old", c_int64))
        ],
    )


def padded(batch: int) -> int:
    """The width of tensors for `batch` samples."""
    return 1 if batch == 1 else -(-batch // LANES) * LANES


def blocks(batch: int) -> int:
    """How many blocks of samples are taken one by one."""
    return -(-batch // SAMPLES)


def pack(x: Tensor, wide: int) -> Tensor:
    """`(models, nodes, k, batch)` with any strides -> the same in one piece, padded with 0."""
    batch = x.shape[-1]
    out = x.new_empty(*x.shape[:-1], wide)
    out[..., :batch] = x
    out[..., batch:] = 0
    return out


def send(step: MessageStep, wires: Wires, slots: Slots, width: int) -> None:
    outputs = slots[step.edges], slots[step.inflow], None, None
    _run("send", step, wires, slots, width, 1 - step.side, outputs, NO_SINKS)


def send_backward(
    step: MessageStep,
    wires: Wires,
    slots: Slots,
    width: int,
    inflow_grads: Sequence[Tensor],
    edges_grad: Tensor | None,
    sinks: Sinks,
) -> None:
    inflow_grad = added_up(inflow_grads) if inflow_grads else None
    edges_grad = None if edges_grad is None else added_up([edges_grad])
    written = (*sinks.belief, sinks.reverse, sinks.table)
    _run("send_backward", step, wires, slots, width, step.side, (None, None, inflow_grad, edges_grad), written)


def add_up(sums: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    return [added_up(terms) for terms in sums]


def _run(
    function: str,
    step: MessageStep,
    wires: Wires,
    slots: Slots,
    width: int,
    listed: int,
    messages: tuple[Tensor | None, ...],
    sinks: tuple[Sink | None, ...],
) -> None:
    """Call a function of the C code with the edges in the order of the side `listed`.

    `messages` are the edges and the inflow that it makes, and the gradients of both.
    """
    table, side, sides = slots[step.table], step.side, wires.incidence.sides
    assert table is not None
    belief = [slots[i] for i in step.belief]
    parts = [*belief, slots[step.reverse]]
    s, t, edges = wires.labels[side], wires.labels[1 - side], wires.incidence.count
    sources, targets, nodes = sides[side].nodes, sides[1 - side].nodes, sides[listed]
    beliefs_width = max([1 if x is None else x.shape[-1] for x in belief])
    beliefs = table.new_empty(3, wires.models, sources, s, beliefs_width)  # room for their sum, and shares of labels
    _require_alike(table, [*parts, *messages, *[sink.tensor for sink in sinks if sink is not None]])
    lists = table, wires.weights.factor[listed], wires.weights.rho[listed], nodes.edges, nodes.indices
    job = _Job(
        MODES[wires.mode], wires.models, sources, targets, edges, wires.table_rows,
        s, t, *((t, 1) if side == LEFT else (1, s)), width, SAMPLES, blocks(width),
        usable_threads(wires.models * edges * s * t * width // SHARE),
        *[None if x is None else x.data_ptr() for x in (*lists, wires.rows[listed], nodes.indptr)],
        *[y for x in parts for y in ((None, 0) if x is None else (x.data_ptr(), x.shape[-1] == width))],
        beliefs.data_ptr(), beliefs_width == width,
        *[None if x is None else x.data_ptr() for x in messages],
        *[
            number
            for sink, like in zip(sinks, (*parts, None), strict=True)
            for number in (
                (None, 0, 0)
                if sink is None
                else (sink.tensor.data_ptr(), like is not None and like.shape[-1] == width, sink.old)
            )
        ],
    )  # fmt: skip
    if getattr(library(table.dtype), function)(ctypes.byref(job)):
        raise MemoryError("the kernels for the CPU could not get their working memory")


def _require_alike(table: Tensor, others: Sequence[Tensor | None]) -> None:
    """The C code reads memory without looking at types and strides."""
    for x in others:
        if x is not None and not (x.dtype == table.dtype and x.is_contiguous()):
            raise InferenceError(
                f"expected contiguous tensors of {table.dtype} like the tables, got {x.dtype} with strides "
                f"{x.stride()}; convert the inputs, or use backend='eager'"
            )


@cache
def library(dtype: torch.dtype) -> ctypes.CDLL:
    """The code of `native.c`, compiled; raises InferenceError with the compiler's message where there is none."""
    return compiled(SOURCE, compiler.DOUBLE if dtype == torch.float64 else (), job_size=_Job)


def compiled(file: Path, define: tuple[str, ...] = (), **structs: type[ctypes.Structure]) -> ctypes.CDLL:
    """The library of a file of C; raises InferenceError with the compiler's message where there is none.

    `structs` are named by functions that say how many bytes the C code takes them to have.
    """
    try:
        loaded = compiler.load(file, define)
    except compiler.NoLibrary as error:
        raise InferenceError(str(error)) from error
    for name, struct in structs.items():
        size = getattr(loaded, name, None)
        if size is None:
            raise InferenceError(f"what was compiled of {file.name} lacks its function {name}; look at the compiler")
        size.restype = c_int64
        if size() != ctypes.sizeof(struct):
            raise InferenceError(
                f"{name}() is {size()} bytes in {file.name}, and {ctypes.sizeof(struct)} in {struct.__module__}; "
                "make their fields agree"
            )
    return loaded
