"""A message, formulas 1 to 3 of docs/kernels.md, and the sum of its messages at the nodes of the target."""

from __future__ import annotations

import triton
import triton.language as tl

from torchlgm.ops.triton.kernels.chunks import gathered
from torchlgm.ops.triton.kernels.functions import exp, soft_difference
from torchlgm.ops.triton.kernels.loads import (
    SIZES,
    begin,
    lanes_inside,
    mask_of,
    next_edges,
    read_belief,
    read_cavity,
    shift,
    span_of,
)


@triton.jit(do_not_specialize=SIZES)
def send(
    edges_out, norms_out, inflow_out,  # the first two may be None
    chunk_sums, counters,  # used where edges are taken in chunks
    unary, field, first, second, reverse, table, factor, rho, edge_ids, node_ids, starts, rows, stride,
    batch, sources, targets, edges, table_rows, chunks,
    MODE: tl.constexpr, S: tl.constexpr, T: tl.constexpr, STEP_S: tl.constexpr, STEP_T: tl.constexpr,
    UNARY_WIDE: tl.constexpr, FIELD_WIDE: tl.constexpr, FIRST_WIDE: tl.constexpr, SECOND_WIDE: tl.constexpr,
    REVERSE_WIDE: tl.constexpr, LONG: tl.constexpr, UNROLL: tl.constexpr, BLOCK_C: tl.constexpr, EARLY: tl.constexpr,
    FAST: tl.constexpr, RAGGED: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_B: tl.constexpr,
):  # fmt: skip
    TYPE: tl.constexpr = inflow_out.dtype.element_ty
    if RAGGED or (BLOCK_B >= 4 and BLOCK_B < 16):
        batch = batch // 4 * 4  # which tells the compiler that rows are aligned
    target = tl.program_id(0) // T
    label = tl.program_id(0) % T
    lanes = tl.program_id(1) * BLOCK_B + tl.arange(0, BLOCK_B)
    inside = lanes_inside(lanes, batch, RAGGED)
    chunk = tl.program_id(2) % chunks
    model = (tl.program_id(2) // chunks).to(tl.int64)
    models = tl.num_programs(2) // chunks
    first_slot, end, base = span_of(starts, target, chunk, chunks, BLOCK_C)
    begin(EARLY)
    unary = shift(unary, model, sources * S, batch, UNARY_WIDE)
    field = shift(field, model, sources * S, batch, FIELD_WIDE)
    first = shift(first, model, sources * S, batch, FIRST_WIDE)
    second = shift(second, model, sources * S, batch, SECOND_WIDE)
    reverse = shift(reverse, model, edges * S, batch, REVERSE_WIDE)
    edges_out = shift(edges_out, model, edges * T, batch, True)
    norms_out = shift(norms_out, model, edges, batch, True)
    table += model * table_rows * (S * T) + label * STEP_T
    inflow = tl.zeros([BLOCK_E, BLOCK_B], TYPE)
    for start in tl.range(first_slot, end, BLOCK_E, num_stages=1):
        edge, node, row = next_edges(edge_ids, node_ids, rows, target, base, stride, start, end, LONG, BLOCK_E)
        slot = start + tl.arange(0, BLOCK_E)
        valid = slot < end
        scale = tl.load(factor + slot, mask=valid, other=0.0)
        weight = tl.full([BLOCK_E], 1.0, TYPE)
        if rho is not None:
            weight = tl.load(rho + slot, mask=valid, other=0.0)
        if S == 1:
            belief = read_belief(unary, field, first, second, node, lanes, inside, valid, batch, UNARY_WIDE, FIELD_WIDE,
                                 FIRST_WIDE, SECOND_WIDE, BLOCK_E, BLOCK_B, TYPE)  # fmt: skip
            c = read_cavity(belief, reverse, edge, lanes, inside, valid, batch, REVERSE_WIDE, BLOCK_E)
            t = (tl.load(table + row * T, mask=valid, other=0.0) * scale)[:, None]
            if MODE == "sum":
                m = tl.maximum(t, -c) + tl.minimum(c, 0.0) + soft_difference(t + c, c, FAST)
            elif MODE == "max":
                m = tl.maximum(t + c, 0.0) - tl.maximum(c, 0.0)
            else:
                m = t * c
        else:
            joint_top = tl.zeros([BLOCK_E, BLOCK_B], TYPE)
            joint_sum = joint_top + 1.0
            top = joint_top
            total = joint_sum
            m = joint_top
            for s in tl.range(0, S, loop_unroll_factor=UNROLL):
                belief = read_belief(unary, field, first, second, node * S + s, lanes, inside, valid, batch, UNARY_WIDE,
                                     FIELD_WIDE, FIRST_WIDE, SECOND_WIDE, BLOCK_E, BLOCK_B, TYPE)  # fmt: skip
                c = read_cavity(belief, reverse, edge * S + s, lanes, inside, valid, batch, REVERSE_WIDE, BLOCK_E)
                t = (tl.load(table + row * (S * T) + s * STEP_S, mask=valid, other=0.0) * scale)[:, None]
                if MODE == "linear":
                    m += t * c
                else:
                    new_joint, new = tl.maximum(joint_top, t + c), tl.maximum(top, c)
                    if MODE == "sum":
                        joint_sum = joint_sum * exp(joint_top - new_joint, FAST) + exp(t + c - new_joint, FAST)
                        total = total * exp(top - new, FAST) + exp(c - new, FAST)
                    joint_top, top = new_joint, new
            if MODE != "linear":
                m = joint_top - top
            if MODE == "sum":
                m += tl.log(joint_sum / total)
                if norms_out is not None:  # each label of the target writes the same
                    norm = top + tl.log(total)
                    tl.store(norms_out + (edge[:, None] * batch + lanes[None, :]), norm, mask=mask_of(valid, inside))
        if edges_out is not None:
            tl.store(edges_out + ((edge * T + label)[:, None] * batch + lanes[None, :]), m, mask=mask_of(valid, inside))
        inflow += m * weight[:, None]  # 0 where no edge is
    total = tl.sum(inflow, 0)
    out = inflow_out + (((model * targets + target) * T + label) * batch + lanes)
    if BLOCK_C > 1:
        total, last = gathered(chunk_sums, counters, total, target * T + label, targets * T, lanes, inside, batch,
                               chunk, chunks, model, models, BLOCK_C)  # fmt: skip
        if last:
            tl.store(out, total, mask=inside)
    else:
        tl.store(out, total, mask=inside)
